"""The live table's looks: rich renderables out of the view's plain values.

Invariant: colour carries nothing that the words do not say as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lab.footprint import Footprint
from lab.live.view import Address, ClusterLine, Cost, SliceRow

BAR = "━"
BAR_WIDTH = 12
WIDE_COLUMNS = 112
LINES_OF_PANELS = 23
"""Lines beside the slices that the whole screen needs in the demo."""

TENANT_COLOURS = ("cyan", "magenta", "green", "yellow", "blue")
ABSENT = Text("–", style="dim")


@dataclass(frozen=True, slots=True)
class Screen:
    """Everything on the screen at one moment."""

    elapsed_s: int
    step: str
    rows: Sequence[SliceRow]
    clusters: Sequence[ClusterLine]
    addresses: Sequence[Address]
    peak: Footprint
    hint: str


def render(screen: Screen, size: tuple[int, int]) -> RenderableType:
    """The screen for a window of so many columns and lines.

    A narrow window gets no bars, a low one no panels: what is shown is shown whole.
    """
    columns, lines = size
    minutes, seconds = divmod(max(screen.elapsed_s, 0), 60)
    title = Text.assemble(
        ("slicemeter demo", "bold"),
        f"   {minutes:02}:{seconds:02}   ",
        ("three clusters, one computer, no GPU", "dim"),
    )
    step = Text.assemble(("▸ ", "bold yellow"), screen.step or "starting", overflow="ellipsis", no_wrap=True)
    peak = f"peak {screen.peak.memory_bytes / 1e9:.2f} GB of memory, {screen.peak.cores:.1f} cores"
    foot = Text.assemble((peak, "dim"), ("   " + screen.hint, "bold"))
    parts: list[RenderableType] = [title, step, _slices(screen.rows, is_wide=columns >= WIDE_COLUMNS)]
    if lines >= len(screen.rows) + LINES_OF_PANELS:
        below = Table.grid(expand=True, padding=(0, 1, 0, 0))
        below.add_column(ratio=1)
        below.add_column()
        below.add_row(_clusters(screen.clusters), _addresses(screen.addresses))
        parts.append(below)
    else:
        parts.append(Text("a taller window shows clusters and addresses too", style="dim"))
    return Group(*parts, foot)


def _slices(rows: Sequence[SliceRow], *, is_wide: bool) -> Table:
    padding = (0, 1) if is_wide else (0, 1, 0, 0)
    table = Table(box=box.SIMPLE_HEAD, expand=is_wide, pad_edge=False, header_style="bold", padding=padding)
    table.add_column("tenant", no_wrap=True)
    table.add_column("pod", no_wrap=True)
    table.add_column("device", no_wrap=True)
    table.add_column("memory used / limit (MiB)" if is_wide else "used / limit", no_wrap=True)
    table.add_column("SM now", no_wrap=True)
    table.add_column("SM mean", justify="right", no_wrap=True)
    table.add_column("cost so far" if is_wide else "cost", justify="right", no_wrap=True)
    tenants = sorted({row.tenant for row in rows})
    colours = {tenant: TENANT_COLOURS[i % len(TENANT_COLOURS)] for i, tenant in enumerate(tenants)}
    bar_width = BAR_WIDTH if is_wide else 0
    previous = None
    for row in rows:
        if previous not in {None, row.tenant}:
            table.add_section()
        name = Text(row.tenant, style=colours[row.tenant]) if previous != row.tenant else Text("")
        previous = row.tenant
        namespace = f"{row.key.namespace}/" if is_wide else ""
        table.add_row(
            name,
            Text.assemble((namespace, "dim"), row.key.pod),
            row.device,
            _memory(row, bar_width),
            _sm(row.sm_now, bar_width),
            _percent(row.sm_mean),
            _cost(row.cost),
        )
    return table


def _memory(row: SliceRow, bar_width: int) -> Text:
    limit = row.granted_mib if row.limit_mib is None else row.limit_mib
    space = " " if bar_width else ""
    if row.used_mib is None:
        granted = " granted" if bar_width else ""
        return Text(f"{' ' * bar_width}{space}{'–':>6} / {limit:>6,.0f}{granted}", style="dim")
    share = row.used_mib / limit if limit else 0.0
    colour = "red" if share > 0.9 else "yellow" if share > 0.75 else "green"
    return Text.assemble(_bar(share, colour, bar_width), f"{space}{row.used_mib:>6,.0f} / {limit:>6,.0f}")


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
    return ABSENT if cost is None else Text(f"{cost.amount:.4f} {cost.currency}")


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
    for address in addresses:
        grid.add_row(address.name, address.place)
    return Panel(grid, title="open these", title_align="left", border_style="dim", box=box.ROUNDED)
