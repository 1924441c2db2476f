"""Dashboard "Pod": one pod's slices: memory by kind, SM time and its source, limits and what is unknown."""

from __future__ import annotations

from collections.abc import Iterator

from grafanalib import core

from dashboards import uids
from dashboards.frame import (
    NODE,
    POD,
    cluster_variable,
    namespace_variable,
    node_variable,
    pod_variable,
    tenant_variable,
    view,
)
from dashboards.names import ST, metric
from dashboards.panels import Column, Panel, Query, Step, Tile, over_time, rising, table, tiles
from dashboards.queries import each, speed, total
from dashboards.thresholds import DEFAULT

_NONE = "no slice of this pod in range"
_SLICE = "container, device_uuid"
_NAMED = "{{container}} {{device_uuid}}"


def _tiles() -> Iterator[core.Stat]:
    used, limit = total("slice_memory_used_bytes", POD), total("slice_memory_limit_bytes", POD)
    yield from tiles(
        (
            Tile(
                "Memory used of its limit",
                "Of the limit that HAMi-core enforces. Bad: near 100 %.",
                "percentunit",
                f"{used} / {limit}",
                rising(DEFAULT.near_limit_ratio),
            ),
            Tile(
                "Memory peak",
                "Highest since the slice began. Bad: at the limit.",
                "bytes",
                total("slice_memory_peak_bytes", POD),
            ),
            Tile(
                "SM time in use",
                "Whole cards, from counters. Bad: near 0 while the pod should work.",
                "percentunit",
                speed("slice_sm_seconds_total", POD),
            ),
            Tile(
                "SM limit",
                "What HAMi-core holds it to; 100 % = a whole card. Bad: below its use.",
                "percentunit",
                total("slice_core_limit_ratio", POD),
            ),
            Tile(
                "GPU processes",
                "Living processes on the card. Bad: 0 while the pod should work.",
                "short",
                total("slice_processes", POD),
            ),
            Tile(
                "Slots of dead processes",
                "Left out of every figure. Bad: many; processes are killed.",
                "short",
                total("slice_stale_processes", POD),
                rising(1),
            ),
        ),
        empty=_NONE,
    )


def _memory() -> Iterator[core.TimeSeries]:
    yield over_time(
        Panel(
            title="Memory by kind",
            description="Of living processes. Bad: data climbs without end, or touches the limit.",
            unit="bytes",
            empty=_NONE,
            place=(0, 4, 12, 8),
            queries=[
                Query(total("slice_memory_bytes", POD, "kind"), "{{kind}}"),
                Query(total("slice_memory_limit_bytes", POD), "limit"),
            ],
        ),
        stacked=True,
        lines=("limit",),
    )
    yield over_time(
        Panel(
            title="Over the limit, blocked",
            description="Share of the time over the memory limit, or held back. Bad: anything for long.",
            unit="percentunit",
            empty=_NONE,
            place=(0, 12, 12, 7),
            queries=[
                Query(speed("slice_over_memory_limit_seconds_total", POD, _SLICE), f"over limit {_NAMED}"),
                Query(speed("slice_blocked_seconds_total", POD, _SLICE), f"blocked {_NAMED}"),
            ],
            steps=rising(DEFAULT.blocked_ratio),
        )
    )


def _time() -> Iterator[core.TimeSeries]:
    yield over_time(
        Panel(
            title="SM time and its limit",
            description="From counters; single samples swing under the limit's duty cycle. Bad: above it.",
            unit="percentunit",
            empty=_NONE,
            place=(12, 4, 12, 8),
            queries=[
                Query(speed("slice_sm_seconds_total", POD, _SLICE), _NAMED),
                Query(total("slice_core_limit_ratio", POD), "limit"),
                Query(total("slice_sm_utilization_ratio", POD, f"{_SLICE}, source"), "sample, {{source}}"),
            ],
        ),
        lines=("limit",),
    )
    yield over_time(
        Panel(
            title="Unknown time by reason",
            description="Share of the time whose SM use is not known. Bad: more than a few percent.",
            unit="percentunit",
            empty=_NONE,
            place=(12, 12, 12, 7),
            queries=each(speed("slice_unknown_seconds_total", POD, "reason"), "{{reason}}"),
            steps=rising(DEFAULT.unknown_ratio),
        ),
        stacked=True,
    )
    yield over_time(
        Panel(
            title="Power of the pod",
            description="Active part by its SM time, idle part by its memory. Bad: idle only, for long.",
            unit="watt",
            empty="no board reports its energy",
            place=(0, 26, 12, 7),
            queries=each(speed("slice_energy_joules_total", POD, "kind"), "{{kind}}"),
        ),
        stacked=True,
    )
    yield over_time(
        Panel(
            title="Region lock held",
            description="How long the same process has held HAMi-core's lock. Bad: over a minute.",
            unit="s",
            empty="nobody holds the lock",
            place=(12, 26, 12, 7),
            queries=each(
                f"time() - max by ({_SLICE}) "
                f"({metric('slice_region_lock_held_since_timestamp_seconds')}{{{POD}}})",
                _NAMED,
            ),
            steps=rising(DEFAULT.region_lock_held_seconds),
        )
    )


def _identity() -> core.Table:
    info = f"{metric('slice_info')}{{{POD}}}"
    shown = "model, layout, policy, priority, enforcement, memory_source"
    return table(
        Panel(
            title="What these slices are",
            description="Policy, enforcement and sources. Bad: enforcement missing where a limit is wanted.",
            unit="short",
            empty=_NONE,
            place=(0, 19, 24, 7),
            queries=[
                Query(f"max by ({ST}, {shown}) ({info})"),
                Query(total("slice_memory_allocated_bytes", POD, ST)),
                Query(total("slice_core_allocated_ratio", POD, ST)),
                Query(total("slice_core_limit_enforced", POD, ST)),
            ],
            steps=(Step(None, "text"),),
            link=("Its card", uids.row_link(uids.CARD, "cluster", "node", "device_uuid")),
        ),
        key=("cluster", "node", "tenant", "namespace", "pod", "container", "device_uuid"),
        columns=(
            Column("A", "exists", "short"),
            Column("B", "memory held", "bytes"),
            Column("C", "cores held", "percentunit"),
            Column("D", "SM limit enforced", "short"),
        ),
    )


dashboard = view(
    uid=uids.POD,
    title="Pod",
    description="One pod's slices: memory by kind, SM time and its source, limits, and what is unknown.",
    variables=(
        cluster_variable("slice_info"),
        node_variable("slice_info"),
        tenant_variable(NODE),
        namespace_variable(NODE),
        pod_variable(),
    ),
    panels=[*_tiles(), *_memory(), *_time(), _identity()],
)
