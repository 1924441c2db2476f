"""The live table's looks: rich renderables out of rows; a narrow window loses columns, never digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from contract.units import MIB
from slicemeter.top.rows import SORTS, Row, SliceKey, sparkline

ABSENT = Text("–", style="dim")
KEYS = "q quit  s sort  r reverse  ↑↓ scroll"
_WIDE, _MIDDLE = 150, 110
_FRAME_LINES = 4
"""Head, headings with their rule, and the line of keys."""


@dataclass(frozen=True, slots=True)
class View:
    """Everything on the screen at one moment.

    Attributes:
        rows: Those shown, in order.
        histories: Rates by slice, oldest first.
        errors: By address: exporters that did not answer, and why.
        exporters: How many are asked.
        top: The first row that is shown.
    """

    rows: Sequence[Row]
    histories: Mapping[SliceKey, Sequence[float | None]]
    errors: Mapping[str, str]
    exporters: int
    sort: str
    is_reversed: bool = False
    top: int = 0
    is_live: bool = True


def render(view: View, columns: int, lines: int | None) -> RenderableType:
    """The screen for a window of so many columns and lines; without lines all rows are shown."""
    errors = [
        Text(f"{url}: {error}", "red", no_wrap=True, overflow="ellipsis")
        for url, error in view.errors.items()
    ]
    shown = view.rows
    if lines is not None:
        room = max(1, lines - _FRAME_LINES - min(len(errors), 3))
        shown = view.rows[view.top : view.top + room]
        if len(errors) > 3:
            errors = [*errors[:2], Text(f"and {len(errors) - 2} more exporters do not answer", "red")]
    parts: list[RenderableType] = [_head(view), *errors, _table(shown, view, columns)]
    if not view.rows:
        parts.append(_empty(view))
    if view.is_live:
        place = f"   {view.top + 1}-{view.top + len(shown)} of {len(view.rows)}" if view.rows else ""
        parts.append(Text(KEYS + place, "dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _head(view: View) -> Text:
    used = sum(row.used_bytes or 0 for row in view.rows)
    held = sum(row.allocated_bytes or 0 for row in view.rows)
    cards = len({(row.key[0], row.node, row.card) for row in view.rows})
    known = [row.sm_ratio for row in view.rows if row.sm_ratio is not None]
    answering = view.exporters - len(view.errors)
    return Text.assemble(
        ("slicemeter top", "bold"),
        f"  {len(view.rows)} slices on {cards} cards, {answering} of {view.exporters} exporters answer   ",
        f"SM {sum(known):.2f} cards   memory {used / MIB:,.0f} of {held / MIB:,.0f} MiB held   ",
        (f"by {view.sort}{' reversed' if view.is_reversed else ''}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _empty(view: View) -> Text:
    if len(view.errors) == view.exporters:
        return Text("no exporter answers; where does one run? name it: --url http://gpu-node:9476", "yellow")
    return Text("no slice; a pod with nvidia.com/gpu on one of these nodes would stand here", "yellow")


def _table(rows: Sequence[Row], view: View, columns: int) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 1, 0, 0)
    )
    is_wide, is_middle = columns >= _WIDE, columns >= _MIDDLE
    table.add_column("tenant", no_wrap=True, overflow="ellipsis", max_width=24)
    table.add_column(
        "pod" if not is_middle else "namespace/pod/container", no_wrap=True, overflow="ellipsis", max_width=48
    )
    if is_middle:
        table.add_column("node", no_wrap=True, overflow="ellipsis", max_width=20)
    table.add_column("card", no_wrap=True, overflow="ellipsis", max_width=28 if is_wide else 8)
    table.add_column("cores", justify="right", no_wrap=True)
    table.add_column("SM", justify="right", no_wrap=True)
    if is_middle:
        table.add_column("SM lately", no_wrap=True)
    table.add_column("MiB used", justify="right", no_wrap=True)
    table.add_column("held", justify="right", no_wrap=True)
    if is_wide:
        table.add_column("watts", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row in rows:
        name = f"{row.namespace}/{row.pod}/{row.container}" if is_middle else row.pod
        table.add_row(
            row.tenant,
            name,
            *([row.node] if is_middle else []),
            f"{row.card} {row.model}" if is_wide else row.card,
            _share(row.core_ratio) if row.core_ratio else ABSENT,
            _sm(row),
            *([Text(sparkline(view.histories.get(row.key, ())), "cyan")] if is_middle else []),
            _memory(row),
            _mib(row.allocated_bytes),
            *([ABSENT if row.power_watts is None else Text(f"{row.power_watts:.0f}")] if is_wide else []),
            _notes(row),
        )
    return table


def _share(ratio: float | None) -> Text:
    return ABSENT if ratio is None else Text(f"{ratio:.0%}")


def _sm(row: Row) -> Text:
    """Red beyond the cores it holds, where it holds some."""
    if row.sm_ratio is None:
        return ABSENT
    is_beyond = bool(row.core_ratio) and row.sm_ratio > (row.core_ratio or 0.0) + 0.10
    return Text(f"{row.sm_ratio:.0%}", "red" if is_beyond else "")


def _mib(count: float | None) -> Text:
    return ABSENT if count is None else Text(f"{count / MIB:,.0f}")


def _memory(row: Row) -> Text:
    text = _mib(row.used_bytes)
    if row.used_bytes is not None and row.allocated_bytes and row.used_bytes > 0.9 * row.allocated_bytes:
        return Text(text.plain, "red" if row.is_over_limit else "yellow")
    return text


def _notes(row: Row) -> Text:
    notes = []
    if row.is_over_limit:
        notes.append(("over its limit", "red"))
    if row.blocked_ratio:
        notes.append((f"blocked {row.blocked_ratio:.0%}", "yellow"))
    if row.unknown_ratio:
        notes.append((f"{row.unknown_ratio:.0%} not measured", "yellow"))
    return Text(", ").join(Text(words, style) for words, style in notes)


def next_sort(sort: str) -> str:
    """The order after this one."""
    names = list(SORTS)
    return names[(names.index(sort) + 1) % len(names)]
