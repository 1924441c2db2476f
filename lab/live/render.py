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

from lab.exporters import Target
from lab.footprint import Footprint
from lab.live.view import ClusterLine, Cost, SliceRow

BAR = "━"
BAR_WIDTH = 12
TENANT_COLOURS = ("cyan", "magenta", "green", "yellow", "blue")
ABSENT = Text("–", style="dim")


@dataclass(frozen=True, slots=True)
class Screen:
    """Everything on the screen at one moment."""

    elapsed_s: int
    step: str
    rows: Sequence[SliceRow]
    clusters: Sequence[ClusterLine]
    addresses: Sequence[Target]
    peak: Footprint
    hint: str


def render(screen: Screen) -> RenderableType:
    """The whole screen."""
    minutes, seconds = divmod(max(screen.elapsed_s, 0), 60)
    title = Text.assemble(
        ("slicemeter demo", "bold"),
        ("   three clusters, one computer, no GPU", "dim"),
        f"   {minutes:02}:{seconds:02}",
    )
    step = Text.assemble(("▸ ", "bold yellow"), screen.step or "starting")
    peak = f"peak {screen.peak.memory_bytes / 1e9:.2f} GB of memory, {screen.peak.cores:.1f} cores"
    foot = Text.assemble((peak, "dim"), ("   " + screen.hint, "dim"))
    below = Table.grid(expand=True, padding=(0, 1))
    below.add_column(ratio=3)
    below.add_column(ratio=2)
    below.add_row(_clusters(screen.clusters), _addresses(screen.addresses))
    return Group(title, step, _slices(screen.rows), below, foot)


def _slices(rows: Sequence[SliceRow]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, header_style="bold")
    table.add_column("tenant", no_wrap=True)
    table.add_column("pod", no_wrap=True)
    table.add_column("device", no_wrap=True)
    table.add_column("memory used / limit (MiB)", no_wrap=True)
    table.add_column("SM now", no_wrap=True)
    table.add_column("SM mean", justify="right", no_wrap=True)
    table.add_column("cost so far", justify="right", no_wrap=True)
    tenants = sorted({row.tenant for row in rows})
    colours = {tenant: TENANT_COLOURS[i % len(TENANT_COLOURS)] for i, tenant in enumerate(tenants)}
    previous = None
    for row in rows:
        if previous not in {None, row.tenant}:
            table.add_section()
        name = Text(row.tenant, style=colours[row.tenant]) if previous != row.tenant else Text("")
        previous = row.tenant
        pod = Text.assemble((f"{row.key.namespace}/", "dim"), row.key.pod)
        table.add_row(
            name, pod, row.device, _memory(row), _sm(row.sm_now), _percent(row.sm_mean), _cost(row.cost)
        )
    return table


def _memory(row: SliceRow) -> Text:
    limit = row.granted_mib if row.limit_mib is None else row.limit_mib
    if row.used_mib is None:
        granted = Text(f"{'–':>6} / {limit:>6,.0f}", style="dim")
        return Text.assemble(_bar(0.0, "dim"), " ", granted, (" granted", "dim"))
    share = row.used_mib / limit if limit else 0.0
    colour = "red" if share > 0.9 else "yellow" if share > 0.75 else "green"
    return Text.assemble(_bar(share, colour), f" {row.used_mib:>6,.0f} / {limit:>6,.0f}")


def _sm(share: float | None) -> Text:
    if share is None:
        return ABSENT
    return Text.assemble(_bar(share, "cyan"), f" {share:>4.0%}")


def _bar(share: float, colour: str) -> Text:
    filled = min(BAR_WIDTH, round(share * BAR_WIDTH))
    return Text.assemble((BAR * filled, colour), (BAR * (BAR_WIDTH - filled), "grey23"))


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


def _addresses(targets: Sequence[Target]) -> Panel:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold", style="blue")
    for target in targets:
        grid.add_row(target.name, Text(target.url, style=f"link {target.url}"))
    return Panel(grid, title="open these", title_align="left", border_style="dim", box=box.ROUNDED)
