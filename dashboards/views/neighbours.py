"""Dashboard "Neighbours and locks": who is above its share while others starve, and which locks hold."""

from __future__ import annotations

from collections.abc import Iterator

from grafanalib import core

from dashboards import uids
from dashboards.frame import (
    CARD,
    MINE,
    NODE,
    cluster_variable,
    device_variable,
    namespace_variable,
    node_variable,
    tenant_variable,
    view,
)
from dashboards.names import D, N, metric
from dashboards.panels import Column, Panel, Query, Step, Tile, over_time, rising, table, tiles, timeline
from dashboards.queries import each, growth, speed, total
from dashboards.thresholds import DEFAULT

_CALM = "nobody is above its share in range"
_SLICE = "{{namespace}}/{{pod}} {{container}}"
_TO_CARD = ("Who shares this card", uids.panel_link(uids.CARD, "cluster", "node", "device_uuid"))


def _tiles() -> Iterator[core.Stat]:
    over = f"slice:slicemeter_sm_over:ratio5m{{{MINE}}} > {DEFAULT.over_entitlement_ratio}"
    starved = f"slice:slicemeter_sm_starved:ratio5m{{{MINE}}} > {DEFAULT.starved_ratio}"
    held = f"{metric('node_lock_held')}{{{NODE}}}"
    yield from tiles(
        (
            Tile(
                "Slices above their share",
                "By more than 10 % of a card. Bad: while others starve.",
                "short",
                f"count({over}) or vector(0)",
                rising(1),
            ),
            Tile(
                "Slices that starve",
                "They miss over 30 % of their share on a full card. Bad: any.",
                "short",
                f"count({starved}) or vector(0)",
                (Step(None, "green"), Step(1, "red")),
            ),
            Tile(
                "Node locks held",
                "HAMi's lock lives for seconds. Bad: the same one for minutes.",
                "short",
                f"sum({held}) or vector(0)",
                rising(1),
            ),
            Tile(
                "Pods waiting for a lock",
                "Their binding failed because of it. Bad: any for a minute.",
                "short",
                f"sum({metric('node_lock_waiting_pods')}{{{NODE}}}) or vector(0)",
                rising(1),
            ),
            Tile(
                "Locks expired",
                "In the range in view. Bad: any; pods waited for the whole timeout.",
                "short",
                growth("node_lock_transitions_total", f'{NODE}, outcome="expired"'),
                rising(1),
            ),
            Tile(
                "Locks nobody can read",
                "HAMi never removes them. Bad: any; a person must.",
                "short",
                f"sum({metric('node_lock_unreadable')}{{{NODE}}}) or vector(0)",
                (Step(None, "green"), Step(1, "red")),
            ),
        ),
        empty=_CALM,
    )


def _neighbours() -> Iterator[core.TimeSeries]:
    yield over_time(
        Panel(
            title="Above the share",
            description="SM use minus entitlement. Bad: above the line while others starve.",
            unit="percentunit",
            empty=_CALM,
            place=(0, 4, 12, 8),
            queries=each(f"slice:slicemeter_sm_over:ratio5m{{{MINE}}} > 0", _SLICE),
            steps=rising(DEFAULT.over_entitlement_ratio),
            link=_TO_CARD,
        )
    )
    yield over_time(
        Panel(
            title="Missing of the share",
            description="Part of its entitlement that a slice misses on a full card. Bad: above the line.",
            unit="percentunit",
            empty="nobody starves in range",
            place=(12, 4, 12, 8),
            queries=each(f"slice:slicemeter_sm_starved:ratio5m{{{MINE}}} > 0", _SLICE),
            steps=(Step(None, "green"), Step(DEFAULT.starved_ratio, "red")),
            link=_TO_CARD,
        )
    )
    yield over_time(
        Panel(
            title="Card busy",
            description="Below the line there is room for everybody. Bad: above it while slices starve.",
            unit="percentunit",
            empty="no card with a usage source in range",
            place=(0, 12, 12, 7),
            queries=each(speed("device_busy_seconds_total", CARD, D), "{{node}} {{device_uuid}}"),
            steps=rising(DEFAULT.busy_ratio),
            link=_TO_CARD,
        )
    )
    yield over_time(
        Panel(
            title="Blocked by a higher priority",
            description="Share of the time. Bad: high for a slice that should run.",
            unit="percentunit",
            empty="nobody is blocked",
            place=(12, 12, 12, 7),
            queries=each(
                speed("slice_blocked_seconds_total", MINE, "namespace, pod, container") + " > 0", _SLICE
            ),
            steps=rising(DEFAULT.blocked_ratio),
        )
    )


def _locks() -> Iterator[core.StateTimeline | core.TimeSeries]:
    yield timeline(
        Panel(
            title="Node lock",
            description="Held or free. Bad: long bars; a healthy lock is hardly seen.",
            unit="short",
            empty="no node lock seen",
            place=(0, 19, 12, 8),
            queries=each(total("node_lock_held", NODE, N), "{{cluster}} {{node}}"),
            steps=(Step(None, "green"), Step(1, "orange")),
        )
    )
    yield over_time(
        Panel(
            title="Node lock by outcome",
            description="How locks ended. Bad: expired, dangling or manual.",
            unit="short",
            empty="no lock changed in range",
            place=(12, 19, 12, 8),
            queries=each(
                f"sum by (outcome) (increase({metric('node_lock_transitions_total')}{{{NODE}}}"
                "[$__rate_interval]))",
                "{{outcome}}",
            ),
        ),
        stacked=True,
    )
    yield over_time(
        Panel(
            title="Age of the node lock",
            description="By the lock's own time. Bad: over a minute with pods waiting; 5 minutes is its end.",
            unit="s",
            empty="no lock is held",
            place=(0, 27, 12, 7),
            queries=each(
                f"time() - max by ({N}) ({metric('node_lock_acquired_timestamp_seconds')}{{{NODE}}})",
                "{{cluster}} {{node}}",
            ),
            steps=rising(DEFAULT.lock_held_seconds, DEFAULT.lock_timeout_seconds),
        )
    )
    yield over_time(
        Panel(
            title="Region lock held",
            description="Inside a container. Bad: over a minute, or an owner that is dead.",
            unit="s",
            empty="no region lock is held",
            place=(12, 27, 12, 7),
            queries=each(
                "time() - max by (namespace, pod, container) "
                f"({metric('slice_region_lock_held_since_timestamp_seconds')}{{{MINE}}})",
                _SLICE,
            ),
            steps=rising(DEFAULT.region_lock_held_seconds),
        )
    )


def _owners() -> core.Table:
    scope = f"{metric('node_lock_acquired_timestamp_seconds')}{{{NODE}}}"
    by = f"{N}, owner_namespace, owner_pod"
    return table(
        Panel(
            title="Who holds a node lock",
            description="Owner and age. Bad: an owner that is bound and does not start.",
            unit="short",
            empty="no lock is held",
            place=(0, 34, 24, 6),
            queries=[Query(f"time() - max by ({by}) ({scope})")],
        ),
        key=("cluster", "node", "owner_namespace", "owner_pod"),
        columns=(Column("A", "age", "s"),),
    )


dashboard = view(
    uid=uids.NEIGHBOURS,
    title="Neighbours and locks",
    description="Who is above its share while others starve, and which locks hold everybody up.",
    variables=(
        cluster_variable(),
        node_variable(),
        tenant_variable(NODE),
        namespace_variable(NODE),
        device_variable(),
    ),
    panels=[*_tiles(), *_neighbours(), *_locks(), _owners()],
)
