"""The live table's looks: rich renderables out of the view's plain values.

Invariants: colour carries nothing that the words do not say as well; a small window loses ornaments first,
then whole parts, and never a digit of a figure that it shows.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lab.footprint import Footprint
from lab.live.front_page import Question
from lab.live.view import Address, ClusterLine, Cost, SliceRow

BAR = "━"
TENANT_COLOURS = ("cyan", "magenta", "green", "yellow", "blue")
ABSENT = Text("–", style="dim")
_RULER = Console(width=1_000, file=io.StringIO())
"""Never printed to: it only measures."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Everything on the screen at one moment.

    Attributes:
        addresses: What one may open, the one to open first in front.
        question: What one may ask the API.
    """

    elapsed_s: int
    step: str
    rows: Sequence[SliceRow]
    clusters: Sequence[ClusterLine]
    addresses: Sequence[Address]
    question: Question | None
    peak: Footprint
    hint: str


@dataclass(frozen=True, slots=True)
class Look:
    """How much ornament the table of slices has; the figures are the same in all."""

    bar_width: int
    is_wordy: bool = False
    has_device: bool = True
    padding: int = 1
    has_sections: bool = True


LOOKS = (Look(12, is_wordy=True), Look(6, is_wordy=True), Look(6), Look(0), Look(0, padding=0))
"""From the richest to the poorest."""

LAST_LOOK = Look(0, padding=0, has_device=False)


def render(screen: Screen, size: tuple[int, int]) -> RenderableType:
    """The screen for a window of so many columns and lines; the last line always says how to stop."""
    columns, lines = size
    head = _head(screen)
    table, left_out = _fitting_table(screen.rows, columns, lines - 2)
    room = lines - 2 - _height(table, columns)
    below, missing = next(
        choice
        for choice in _below(screen, columns)
        if not choice[0] or _height(Group(*choice[0]), columns) <= room
    )
    foot = _foot(screen, f"{left_out} more slices" if left_out else " and ".join(missing), columns)
    if room - _height(Group(*below), columns) >= 2:
        return Group(head, Text(""), table, Text(""), *below, foot)
    return Group(head, table, *below, foot)


def _head(screen: Screen) -> Text:
    minutes, seconds = divmod(max(screen.elapsed_s, 0), 60)
    return Text.assemble(
        ("slicemeter demo", "bold"),
        f"  {minutes:02}:{seconds:02}  ",
        ("▸ ", "bold yellow"),
        screen.step or "starting",
        overflow="ellipsis",
        no_wrap=True,
    )


def _foot(screen: Screen, more: str, columns: int) -> Text:
    """How to stop, then what else there is room for."""
    foot = Text(screen.hint, "bold", overflow="ellipsis", no_wrap=True)
    peak = f"peak {screen.peak.memory_bytes / 1e9:.2f} GB of memory, {screen.peak.cores:.1f} cores"
    for words, style in ((f"a larger window shows {more}", "yellow"), (peak, "dim")):
        if (more or words == peak) and len(foot) + 3 + len(words) <= columns:
            foot.append(f"   {words}", style)
    return foot


def _below(screen: Screen, columns: int) -> Iterator[tuple[list[RenderableType], list[str]]]:
    """What may stand below the slices, from the fullest to nothing, each with the names of what it lacks."""
    ask = [] if screen.question is None else [_question(screen.question)]
    if any(_width(part) > columns for part in ask):
        ask = []
    clusters, addresses = _clusters(screen.clusters), _addresses(screen.addresses)
    clusters_width, addresses_width = _width(clusters), _width(addresses)
    start: list[RenderableType] = [
        Text.assemble((f"{first.name}  ", "bold"), (first.place, "blue"), overflow="fold")
        for first in screen.addresses[:1]
    ]
    if clusters_width + addresses_width < columns:
        beside = Table.grid(expand=True, padding=(0, 1, 0, 0))
        beside.add_column(ratio=1)
        beside.add_column()
        beside.add_row(clusters, addresses)
        yield [beside, *ask], []
    if max(clusters_width, addresses_width) <= columns:
        yield [clusters, addresses, *ask], []
        yield [clusters, addresses], []
    if clusters_width <= columns:
        yield [clusters, *start, *ask], ["pages"]
        yield [clusters, *start], ["pages"]
    if addresses_width <= columns:
        yield [addresses, *ask], ["clusters"]
    yield [*start, *ask], ["clusters", "pages"]
    yield start, ["clusters", "pages"]
    yield [], ["clusters", "pages"]


def _fitting_table(rows: Sequence[SliceRow], columns: int, lines: int) -> tuple[Table, int]:
    """The richest table that fits, and how many rows had to be left out."""
    look = next((look for look in LOOKS if _width(_slices(rows, look)) <= columns), LAST_LOOK)
    table = _slices(rows, look)
    if _height(table, columns) <= lines:
        return table, 0
    look = replace(look, has_sections=False)
    for shown in range(len(rows), 0, -1):
        table = _slices(rows[:shown], look)
        if _height(table, columns) <= lines:
            return table, len(rows) - shown
    return _slices([], look), len(rows)


def _width(part: RenderableType) -> int:
    return Measurement.get(_RULER, _RULER.options, part).maximum


def _height(part: RenderableType, columns: int) -> int:
    return len(_RULER.render_lines(part, _RULER.options.update(width=columns), pad=False))


def _slices(rows: Sequence[SliceRow], look: Look) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        expand=look.is_wordy,
        pad_edge=False,
        show_edge=False,
        header_style="bold",
        padding=(0, look.padding, 0, 0),
    )
    table.add_column("tenant", no_wrap=True)
    table.add_column("pod", no_wrap=True)
    if look.has_device:
        table.add_column("device", no_wrap=True)
    table.add_column("memory used / limit (MiB)" if look.is_wordy else "MiB used/limit", no_wrap=True)
    table.add_column("SM now", justify="right", no_wrap=True)
    table.add_column("SM mean", justify="right", no_wrap=True)
    table.add_column("cost so far" if look.is_wordy else "cost", justify="right", no_wrap=True)
    tenants = sorted({row.tenant for row in rows})
    colours = {tenant: TENANT_COLOURS[i % len(TENANT_COLOURS)] for i, tenant in enumerate(tenants)}
    previous = None
    for row in rows:
        if look.has_sections and previous not in {None, row.tenant}:
            table.add_section()
        name = Text(row.tenant, style=colours[row.tenant]) if previous != row.tenant else Text("")
        previous = row.tenant
        namespace = f"{row.key.namespace}/" if look.is_wordy else ""
        table.add_row(
            name,
            Text.assemble((namespace, "dim"), row.key.pod),
            *([row.device] if look.has_device else []),
            _memory(row, look),
            _sm(row.sm_now, look.bar_width),
            _percent(row.sm_mean),
            _cost(row.cost),
        )
    return table


def _memory(row: SliceRow, look: Look) -> Text:
    limit = row.granted_mib if row.limit_mib is None else row.limit_mib
    space = " " if look.bar_width else ""
    if row.used_mib is None:
        granted = " granted" if look.is_wordy else ""
        return Text(f"{' ' * look.bar_width}{space}{'–':>6} / {limit:>6,.0f}{granted}", style="dim")
    share = row.used_mib / limit if limit else 0.0
    colour = "red" if share > 0.9 else "yellow" if share > 0.75 else "green"
    return Text.assemble(
        _bar(share, colour, look.bar_width), f"{space}{row.used_mib:>6,.0f} / {limit:>6,.0f}"
    )


def _sm(share: float | None, bar_width: int) -> Text:
    space = " " if bar_width else ""
    if share is None:
        return Text(f"{' ' * bar_width}{space}{'–':>4}", style="dim")
    return Text.assemble(_bar(share, "cyan", bar_width), f"{space}{share:>4.0%}")


def _bar(share: float, colour: str, width: int) -> Text:
    filled = min(width, round(share * width))
    return Text.assemble((BAR * filled, colour), (BAR * (width - filled), "grey23"))


def _percent(share: float | None) -> Text:
    return ABSENT if share is None else Text(f"{share:.0%}")


def _cost(cost: Cost | None) -> Text:
    return ABSENT if cost is None else Text(f"{cost.amount:,.2f} {cost.currency}")


def _clusters(lines: Sequence[ClusterLine]) -> Panel:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for line in lines:
        about = Text("\n".join(line.cards) or "–")
        for note in line.notes:
            about.append(f"\n{note}", style="yellow")
        grid.add_row(line.code, about)
    return Panel(grid, title="clusters", title_align="left", border_style="dim", box=box.ROUNDED)


def _addresses(addresses: Sequence[Address]) -> Panel:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, style="blue")
    for number, address in enumerate(addresses):
        grid.add_row(Text(address.name, style="" if number else "bold"), address.place)
    return Panel(grid, title="open these", title_align="left", border_style="dim", box=box.ROUNDED)


def _question(question: Question) -> Text:
    return Text(question.text, "green", no_wrap=True)
