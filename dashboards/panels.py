"""Panel builders: the few kinds of panel our dashboards are made of, each with its house rules built in.

A panel cannot be made without a title, a description that says what bad looks like, a unit and a
text for the empty case. Grafana's features that grafanalib has no field for go in by `extraJson`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from grafanalib import core

DATASOURCE = "${datasource}"
COLUMN_PIXELS = 60
"""The least that a column of a table is given."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and the legend of its series (Grafana's `{{label}}` form)."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """From this value on (None: from the bottom) the colour applies."""

    value: float | None
    color: str


@dataclass(frozen=True, slots=True)
class Panel:
    """What every panel must say.

    Attributes:
        title: A noun phrase.
        description: One line that says what bad looks like.
        unit: A unit id of Grafana's list (`percentunit`, `bytes`, `watt`, `short`, `s`).
        empty: What the panel says when there is nothing to show.
        place: (x, y, width, height) in Grafana's 24-column grid.
        link: A data link (title, url) for drilling down, or None; in a table it stands on every cell.
        decimals: How many are shown; None: as many as the value needs.
    """

    title: str
    description: str
    unit: str
    empty: str
    place: tuple[int, int, int, int]
    queries: Sequence[Query]
    steps: Sequence[Step] = field(default=(Step(None, "green"),))
    maximum: float | None = None
    link: tuple[str, str] | None = None
    decimals: int | None = None

    @property
    def grid(self) -> core.GridPos:
        """The place as grafanalib wants it."""
        x, y, width, height = self.place
        return core.GridPos(h=height, w=width, x=x, y=y)

    def targets(self, *, instant: bool, table: bool = False) -> list[core.Target]:
        """The queries as targets, all of them "now" or all over time."""
        return [
            core.Target(
                expr=query.expr,
                legendFormat=query.legend,
                instant=instant,
                format="table" if table else "time_series",
                datasource=DATASOURCE,
            )
            for query in self.queries
        ]

    def defaults(self) -> dict[str, object]:
        """`fieldConfig.defaults` entries that every kind shares."""
        entries: dict[str, object] = {"unit": self.unit, "min": 0, "noValue": self.empty}
        if self.maximum is not None:
            entries["max"] = self.maximum
        if self.decimals is not None:
            entries["decimals"] = self.decimals
        entries["thresholds"] = {
            "mode": "absolute",
            "steps": [{"color": step.color, "value": step.value} for step in self.steps],
        }
        if self.link is not None:
            title, url = self.link
            entries["links"] = [{"title": title, "url": url}]
        return entries


def stat(panel: Panel, *, is_named: bool = False) -> core.Stat:
    """One number, now, with its recent course behind it; `is_named`: beside its legend, also when alone."""
    return core.Stat(
        title=panel.title,
        description=panel.description,
        dataSource=DATASOURCE,
        gridPos=panel.grid,
        targets=panel.targets(instant=False),
        reduceCalc="lastNotNull",
        colorMode="value",
        graphMode="area",
        textMode="value_and_name" if is_named else "auto",
        extraJson={"fieldConfig": {"defaults": panel.defaults()}},
    )


def over_time(panel: Panel, *, stacked: bool = False, lines: Sequence[str] = ()) -> core.TimeSeries:
    """Curves over time; `lines` names the legends that stay unstacked, dashed and unfilled (capacities)."""
    custom: dict[str, object] = {
        "fillOpacity": 30 if stacked else 5,
        "lineWidth": 1,
        "showPoints": "never",
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if len(panel.steps) > 1 else "off"},
    }
    overrides = [
        {
            "matcher": {"id": "byName", "options": name},
            "properties": [
                {"id": "custom.stacking", "value": {"mode": "none", "group": "A"}},
                {"id": "custom.fillOpacity", "value": 0},
                {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}},
                {"id": "color", "value": {"mode": "fixed", "fixedColor": "text"}},
            ],
        }
        for name in lines
    ]
    return core.TimeSeries(
        title=panel.title,
        description=panel.description,
        dataSource=DATASOURCE,
        gridPos=panel.grid,
        targets=panel.targets(instant=False),
        extraJson={
            "fieldConfig": {"defaults": {**panel.defaults(), "custom": custom}, "overrides": overrides},
            "options": {
                "legend": {
                    "displayMode": "table",
                    "placement": "right",
                    "calcs": ["mean", "max", "lastNotNull"],
                    "sortBy": "Last *",
                    "sortDesc": True,
                },
                "tooltip": {"mode": "multi", "sort": "desc"},
            },
        },
    )


def timeline(panel: Panel) -> core.StateTimeline:
    """States over time, one row an object; the thresholds' colours are the states."""
    return core.StateTimeline(
        title=panel.title,
        description=panel.description,
        dataSource=DATASOURCE,
        gridPos=panel.grid,
        targets=panel.targets(instant=False),
        extraJson={
            "fieldConfig": {"defaults": {**panel.defaults(), "custom": {"fillOpacity": 80, "lineWidth": 0}}}
        },
    )


@dataclass(frozen=True, slots=True)
class Tile:
    """One number of a row of tiles: what it is, what bad looks like, its unit and query."""

    title: str
    description: str
    unit: str
    expr: str
    steps: Sequence[Step] = (Step(None, "blue"),)
    legend: str = ""
    link: tuple[str, str] | None = None
    decimals: int | None = None
    is_named: bool = False


def tiles(row: Sequence[Tile], *, y: int = 0, height: int = 4, empty: str) -> Iterator[core.Stat]:
    """A row of numbers that share the grid's 24 columns evenly."""
    width = 24 // len(row)
    for number, tile in enumerate(row):
        yield stat(
            Panel(
                title=tile.title,
                description=tile.description,
                unit=tile.unit,
                empty=empty,
                place=(width * number, y, width, height),
                queries=[Query(tile.expr, tile.legend)],
                steps=tile.steps,
                maximum=1 if tile.unit == "percentunit" else None,
                link=tile.link,
                decimals=tile.decimals,
            ),
            is_named=tile.is_named,
        )


GOOD, WARN, BAD = "green", "orange", "red"


def rising(warn: float, bad: float | None = None) -> tuple[Step, ...]:
    """Good below, worse from each limit on."""
    steps = (Step(None, GOOD), Step(warn, WARN))
    return steps if bad is None else (*steps, Step(bad, BAD))


def falling(bad: float) -> tuple[Step, ...]:
    """Bad below, good from the limit on."""
    return (Step(None, BAD), Step(bad, GOOD))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a joined table: the query's letter, its heading, unit, and how its cells are drawn."""

    letter: str
    heading: str
    unit: str
    cell: str = "auto"
    decimals: int | None = None


def table(panel: Panel, *, key: Sequence[str], columns: Sequence[Column]) -> core.Table:
    """Instant queries joined on their labels, one row an object.

    Args:
        panel: Queries in the order of their letters (A, B, …).
        key: The labels that name a row, in the order in which they stand.
        columns: One for each query.
    """
    headings: dict[str, str] = {f"Value #{column.letter}": column.heading for column in columns}
    if len(panel.queries) == 1:
        # Grafana gives the value of a lone query no letter.
        headings["Value"] = columns[0].heading
    order = {name: place for place, name in enumerate([*key, *headings])}
    overrides = [
        {
            "matcher": {"id": "byName", "options": column.heading},
            "properties": [
                {"id": "unit", "value": column.unit},
                {"id": "custom.cellOptions", "value": {"type": column.cell}},
                # The text for an empty table would else stand in every cell that has no value.
                {"id": "noValue", "value": "-"},
                *([{"id": "max", "value": 1}] if column.cell == "gauge" else []),
                *([{"id": "decimals", "value": column.decimals}] if column.decimals is not None else []),
            ],
        }
        for column in columns
    ]
    return core.Table(
        title=panel.title,
        description=panel.description,
        dataSource=DATASOURCE,
        gridPos=panel.grid,
        targets=panel.targets(instant=True, table=True),
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": headings},
            },
        ],
        extraJson={
            "fieldConfig": {
                # Grafana's own 150 pixels a column would push the figures out of a narrow table.
                "defaults": {**panel.defaults(), "custom": {"minWidth": COLUMN_PIXELS}},
                "overrides": overrides,
            },
            "options": {"showHeader": True, "cellHeight": "sm"},
        },
    )
