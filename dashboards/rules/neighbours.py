"""Who takes more than its share of a card, and who misses its own because of that.

Under HAMi's duty cycle single samples say nothing, so everything here reads rates over minutes. Source
of the arithmetic: `reference/dashboards.md §9`.
"""

from __future__ import annotations

from dashboards import uids
from dashboards.names import ST, D, S, metric
from dashboards.rules.rule import Alert, Recording
from dashboards.thresholds import Thresholds

CARD_LINK = uids.alert_link(uids.NEIGHBOURS, "cluster", "node", "device_uuid")


def neighbour_recordings(limits: Thresholds) -> tuple[Recording, ...]:
    """Use, entitlement, over-use and starvation of every slice, each a step on the one before.

    A slice with reserved cores is entitled to them (scaled down where a card's cores are over-booked);
    slices without share what is left among those that are active. On cards with scaled cores the
    registered ratio takes the place of 1. `max` before every sum: a second scrape of the same exporter
    must not double a figure. A victim is active throughout: each moment of the alert's fifteen minutes looks
    back over five.
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
            f"and on ({S}) (min_over_time({use}[5m]) > {limits.active_ratio})\n"
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
