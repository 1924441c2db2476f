"""Recording rules and alerts, as one table of values; `dashboards/writing.py` writes them out.

The level comes first in a recording rule's name (`level:metric:operations`). Every expression carries
`cluster`, because node names and GPU UUIDs repeat between clusters, and is written for the PromQL of
Prometheus 2.42. Source of the arithmetic: `reference/dashboards.md §8-9`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

from dashboards.card import UID as CARD_UID
from dashboards.names import ST, D, S, metric
from dashboards.thresholds import DEFAULT, Thresholds

Severity: TypeAlias = Literal["critical", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert.

    Attributes:
        name: CamelCase with the prefix `Slicemeter`; its runbook is the page of this name in lower case.
        hold: How long the expression must hold before it fires (`for`).
        summary: What is wrong, without values.
        description: With values and units; may name other tenants, so it goes to platform receivers.
        tenant_text: What a tenant's own receiver may show: names its own slices and "another slice".
        dashboard: Path and variables of the dashboard to open.
    """

    name: str
    expr: str
    hold: str
    severity: Severity
    summary: str
    description: str
    tenant_text: str = ""
    dashboard: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together, in order: a later rule reads what an earlier one wrote."""

    name: str
    rules: tuple[Recording | Alert, ...]


CARD_LINK = (
    f"/d/{CARD_UID}?var-cluster={{{{ $labels.cluster }}}}&var-node={{{{ $labels.node }}}}"
    "&var-device={{ $labels.device_uuid }}"
)
NODE_LINK = f"/d/{CARD_UID}?var-cluster={{{{ $labels.cluster }}}}&var-node={{{{ $labels.node }}}}"


def neighbour_recordings(limits: Thresholds) -> tuple[Recording, ...]:
    """Use, entitlement, over-use and starvation of every slice, each a step on the one before.

    A slice with reserved cores is entitled to them (scaled down where a card's cores are over-booked);
    slices without share what is left among those that are active. On cards with scaled cores the
    registered ratio takes the place of 1. `max` before every sum: a second scrape of the same exporter
    must not double a figure.
    """
    held, use = "slice:slicemeter_core_held:ratio", "slice:slicemeter_sm_use:rate5m"
    unknown, entitled = "slice:slicemeter_unknown:rate5m", "slice:slicemeter_core_entitled:ratio"
    total = f"sum by ({D}) ({held})"
    registered = f"max by ({D}) ({metric('device_core_registered_ratio')})"
    busy = f"max by ({D}) (rate({metric('device_busy_seconds_total')}[5m]))"
    lost = f"max by ({ST}, reason) (rate({metric('slice_unknown_seconds_total')}[5m]))"
    return (
        Recording(held, f"max by ({ST}) ({metric('slice_core_allocated_ratio')})"),
        Recording(use, f"max by ({ST}) (rate({metric('slice_sm_seconds_total')}[5m]))"),
        Recording(unknown, f"sum by ({ST}) ({lost})"),
        Recording(
            entitled,
            f"(\n"
            f"  ({held} > 0)\n"
            f"  / on ({D}) group_left ()\n"
            f"  (({total} > on ({D}) {registered}) or on ({D}) {registered})\n"
            f")\n"
            f"or\n"
            f"(\n"
            f"  (({held} == 0) + 1)\n"
            f"  * on ({D}) group_left ()\n"
            f"  (\n"
            f"    clamp_min(1 - {total} / on ({D}) {registered}, 0)\n"
            f"    / on ({D})\n"
            f"    count by ({D}) (({held} == 0) and on ({S}) ({use} > {limits.active_ratio}))\n"
            f"  )\n"
            f")",
        ),
        Recording("slice:slicemeter_sm_over:ratio5m", f"{use} - {entitled}"),
        Recording(
            "slice:slicemeter_sm_starved:ratio5m",
            f"(1 - {use} / {entitled})\n"
            f"and on ({S}) ({held} > 0)\n"
            f"and on ({S}) (min_over_time({use}[15m]) > {limits.active_ratio})\n"
            f"and on ({S}) ({unknown} < {limits.unknown_ratio})\n"
            f"and on ({D}) ({busy} > {limits.busy_ratio})",
        ),
    )


def noisy_neighbour(limits: Thresholds) -> Alert:
    """A slice above its entitlement while a neighbour with reserved cores starves on the full card.

    Keyed on the aggressor; victims are found by query when the text is made, since a label pair of
    aggressor and victim would begin its `for` anew whenever the pair changes.
    """
    victims = (
        'range query (printf "slice:slicemeter_sm_starved:ratio5m'
        f'{{cluster=%q,node=%q,device_uuid=%q}} > {limits.starved_ratio}" '
        "$labels.cluster $labels.node $labels.device_uuid)"
    )
    return Alert(
        name="SlicemeterNoisyNeighbour",
        expr=f"(slice:slicemeter_sm_over:ratio5m > {limits.over_entitlement_ratio})\n"
        f"and on ({D}) (slice:slicemeter_sm_starved:ratio5m > {limits.starved_ratio})",
        hold="15m",
        severity="warning",
        summary="A slice uses more than its share while a neighbour on the same card starves",
        description=(
            "{{ $labels.namespace }}/{{ $labels.pod }} ({{ $labels.container }}, of {{ $labels.tenant }}) "
            "uses {{ $value | humanizePercentage }} of card {{ $labels.device_uuid }} on {{ $labels.node }} "
            "beyond its entitlement. Starved: {{ " + victims + " }}{{ .Labels.namespace }}/{{ .Labels.pod }} "
            "({{ .Labels.container }}) misses {{ .Value | humanizePercentage }} of its share; {{ end }}"
        ),
        tenant_text=(
            "{{ $labels.namespace }}/{{ $labels.pod }} ({{ $labels.container }}) uses "
            "{{ $value | humanizePercentage }} of its card beyond its entitlement, while another slice "
            "starves."
        ),
        dashboard=CARD_LINK,
    )


def lock_alerts(limits: Thresholds) -> tuple[Alert, ...]:
    """The node lock: held too long while pods wait for it, and expired."""
    held = f"max by (cluster, node) ({metric('node_lock_acquired_timestamp_seconds')})"
    waiting = f"max by (cluster, node) ({metric('node_lock_waiting_pods')})"
    expired = f'{metric("node_lock_transitions_total")}{{outcome="expired"}}'
    return (
        Alert(
            name="SlicemeterNodeLockBlocking",
            expr=f"(time() - {held} > {limits.lock_held_seconds})\nand on (cluster, node) ({waiting} > 0)",
            hold="1m",
            severity="warning",
            summary="HAMi's node lock is held while pods wait for it",
            description=(
                "The lock of node {{ $labels.node }} has been held for {{ $value | humanizeDuration }} and "
                "pods wait for it: nothing binds there until it is released or expires."
            ),
            dashboard=NODE_LINK,
        ),
        Alert(
            name="SlicemeterNodeLockTimeout",
            expr=f"max by (cluster, node) (increase({expired}[{limits.lock_timeout_window}])) > 0",
            hold="0s",
            severity="warning",
            summary="A HAMi node lock ran into its timeout",
            description=(
                f"Locks of node {{{{ $labels.node }}}} expired in the last {limits.lock_timeout_window}: "
                "pods waited for the whole timeout before the next could bind."
            ),
            dashboard=NODE_LINK,
        ),
    )


def groups(limits: Thresholds = DEFAULT) -> tuple[Group, ...]:
    """Every rule group that is shipped, with the given thresholds."""
    return (
        Group("slicemeter-neighbours", (*neighbour_recordings(limits), noisy_neighbour(limits))),
        Group("slicemeter-node-lock", lock_alerts(limits)),
    )
