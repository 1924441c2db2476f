"""Dashboard "Who shares this card": one device, its slices, and whether one of them crowds the others.

Utilisation over time comes from the SM-seconds counter: under HAMi's duty cycle an average of the
gauge says nothing. Every figure carries the cluster, since node names and UUIDs repeat.
"""

from __future__ import annotations

from collections.abc import Iterator

from grafanalib import core

from dashboards import frame, uids
from dashboards.frame import (
    NODE,
    cluster_variable,
    device_variable,
    namespace_variable,
    node_variable,
    tenant_variable,
    view,
)
from dashboards.names import ST, D, metric
from dashboards.panels import Column, Panel, Query, Step, over_time, stat, table
from dashboards.thresholds import DEFAULT

UID = "slicemeter-card"
CARD = f"{{{frame.CARD}}}"
"""The card in view."""

MINE = f"{{{frame.MINE}}}"
"""The slices in view on it."""

SLICE_NAME = "{{namespace}}/{{pod}} {{container}}"
CAPACITY = "capacity"

_GOOD_TO_FULL = (Step(None, "green"), Step(DEFAULT.busy_ratio, "orange"))


def _rate(name: str, labels: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric(name)}{labels}[$__rate_interval]))"


def _part(used: str, whole: str) -> str:
    return f"sum({metric(used)}{CARD}) / sum({metric(whole)}{CARD})"


def _tiles() -> Iterator[core.Stat]:
    tiles = [
        (
            "SM time in use",
            "Share of the card's SM time in use. Bad: above 90 % while slices wait for their share.",
            "percentunit",
            f"avg(rate({metric('device_busy_seconds_total')}{CARD}[$__rate_interval]))",
            _GOOD_TO_FULL,
        ),
        (
            "Memory allocated",
            "Share of registered memory held by slices. Bad: near 100 % while pods are pending.",
            "percentunit",
            _part("device_memory_allocated_bytes", "device_memory_registered_bytes"),
            _GOOD_TO_FULL,
        ),
        (
            "Cores allocated",
            "Share of registered cores held by slices. Bad: 100 % refuses even pods that ask for none.",
            "percentunit",
            _part("device_core_allocated_ratio", "device_core_registered_ratio"),
            _GOOD_TO_FULL,
        ),
        (
            "Slots taken",
            "Share of the card's slots held. Bad: 100 % with memory left over: that memory is stranded.",
            "percentunit",
            _part("device_slots_allocated", "device_slots"),
            _GOOD_TO_FULL,
        ),
        (
            "Power",
            "Power draw of the board. Bad: high while no slice uses SM time.",
            "watt",
            f"sum(rate({metric('device_energy_joules_total')}{CARD}[$__rate_interval]))",
            (Step(None, "blue"),),
        ),
        (
            "Memory of no known pod",
            "Used memory that no pod accounts for. Bad: anything that stays above a few hundred MiB.",
            "bytes",
            f"sum({metric('device_memory_unattributed_bytes')}{CARD})",
            (Step(None, "green"), Step(512 * 1024 * 1024, "orange")),
        ),
    ]
    for place, (title, description, unit, expr, steps) in enumerate(tiles):
        yield stat(
            Panel(
                title=title,
                description=description,
                unit=unit,
                empty="no measurement in range",
                place=(4 * place, 0, 4, 4),
                queries=[Query(expr)],
                steps=steps,
                maximum=1 if unit == "percentunit" else None,
            )
        )


def _curves() -> Iterator[core.TimeSeries]:
    yield over_time(
        Panel(
            title="SM time by slice",
            description="Whole-card share by slice, from counters. Bad: one band pushes the others down.",
            unit="percentunit",
            empty="no slice with a usage source in range",
            place=(0, 4, 12, 8),
            queries=[
                Query(_rate("slice_sm_seconds_total", MINE, ST), SLICE_NAME),
                Query(_rate("device_sm_unattributed_seconds_total", CARD, D), "no known pod"),
            ],
        ),
        stacked=True,
    )
    yield over_time(
        Panel(
            title="Memory in use by slice",
            description="Living processes only. Bad: a band at its limit: the next allocation is refused.",
            unit="bytes",
            empty="no slice with a usage source in range",
            place=(12, 4, 12, 8),
            queries=[
                Query(f"sum by ({ST}) ({metric('slice_memory_used_bytes')}{MINE})", SLICE_NAME),
                Query(f"sum({metric('device_memory_registered_bytes')}{CARD})", CAPACITY),
            ],
        ),
        stacked=True,
        lines=(CAPACITY,),
    )
    yield over_time(
        Panel(
            title="Use above the entitlement",
            description="SM use minus the entitlement. Bad: above the line while others starve.",
            unit="percentunit",
            empty="no slice above its entitlement in range",
            place=(0, 20, 12, 7),
            queries=[Query(f"slice:slicemeter_sm_over:ratio5m{MINE} > 0", SLICE_NAME)],
            steps=(Step(None, "green"), Step(DEFAULT.over_entitlement_ratio, "orange")),
        )
    )
    yield over_time(
        Panel(
            title="Starved share",
            description="Part of its own entitlement a slice misses on a full card. Bad: above the line.",
            unit="percentunit",
            empty="nobody starves in range",
            place=(12, 20, 12, 7),
            queries=[Query(f"slice:slicemeter_sm_starved:ratio5m{MINE} > 0", SLICE_NAME)],
            steps=(Step(None, "green"), Step(DEFAULT.starved_ratio, "red")),
        )
    )


def _slices() -> core.Table:
    def now(name: str) -> Query:
        return Query(f"sum by ({ST}) ({metric(name)}{MINE})")

    return table(
        Panel(
            title="Slices on this card",
            description="What each slice holds, is held to, and uses. Bad: used close to the limit.",
            unit="short",
            empty="no slices in range",
            place=(0, 12, 24, 8),
            link=("This pod", uids.row_link(uids.POD, "cluster", "node", "tenant", "namespace", "pod")),
            queries=[
                now("slice_memory_allocated_bytes"),
                now("slice_memory_limit_bytes"),
                now("slice_memory_used_bytes"),
                now("slice_core_allocated_ratio"),
                Query(f"sum by ({ST}) (rate({metric('slice_sm_seconds_total')}{MINE}[$__range]))"),
                Query(f"sum by ({ST}) (increase({metric('slice_blocked_seconds_total')}{MINE}[$__range]))"),
            ],
        ),
        key=("cluster", "node", "device_uuid", "tenant", "namespace", "pod", "container"),
        columns=(
            Column("A", "memory held", "bytes"),
            Column("B", "memory limit", "bytes"),
            Column("C", "memory used", "bytes"),
            Column("D", "cores held", "percentunit"),
            Column("E", "SM mean", "percentunit", cell="gauge"),
            Column("F", "blocked", "s"),
        ),
    )


dashboard = view(
    uid=uids.CARD,
    title="Who shares this card",
    description="One GPU: who holds it, who uses it, and who crowds whom.",
    variables=(
        cluster_variable("device_info"),
        node_variable(),
        tenant_variable(NODE),
        namespace_variable(NODE),
        device_variable(),
    ),
    panels=[*_tiles(), *_curves(), _slices()],
)
