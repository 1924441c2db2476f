"""Slices near or over what they were given, held back, or measured badly."""

from __future__ import annotations

from dashboards import uids
from dashboards.names import ST, D, increase, once, rate
from dashboards.rules.rule import Alert
from dashboards.thresholds import Thresholds

POD_LINK = uids.alert_link(uids.POD, "cluster", "node", "tenant", "namespace", "pod")
CARD_LINK = uids.alert_link(uids.CARD, "cluster", "node", "device_uuid")
_WHICH = "{{ $labels.namespace }}/{{ $labels.pod }} ({{ $labels.container }})"


def near_limit(limits: Thresholds) -> Alert:
    """Used memory close to the limit that HAMi-core enforces; per slice, and only where it enforces one."""
    used = once("slice_memory_used_bytes", ST)
    limit = once("slice_memory_limit_bytes", ST)
    text = f"{_WHICH} uses {{{{ $value | humanizePercentage }}}} of its GPU memory limit"
    return Alert(
        name="SlicemeterSliceNearLimit",
        expr=f"{used}\n/ {limit}\n> {limits.near_limit_ratio}",
        hold="10m",
        severity="info",
        summary="A slice has used nearly all of its GPU memory for a while",
        description=f"{text} on {{{{ $labels.node }}}}: the next allocation is likely refused.",
        tenant_text=f"{text}: the next allocation is likely refused.",
        dashboard=POD_LINK,
    )


def slice_alerts(limits: Thresholds) -> tuple[Alert, ...]:
    """Over the limit, held back, and use that no pod accounts for."""
    over = increase("slice_over_memory_limit_seconds_total", ST, "15m")
    blocked = rate("slice_blocked_seconds_total", ST, "15m")
    memory = f"{once('device_memory_unattributed_bytes', D)}\n/ {once('device_memory_total_bytes', D)}"
    stray = rate("device_sm_unattributed_seconds_total", D, "5m")
    return (
        Alert(
            name="SlicemeterSliceOverMemoryLimit",
            expr=f"{over} > {limits.over_limit_seconds}",
            hold="0s",
            severity="warning",
            summary="A slice uses more GPU memory than its limit",
            description=(
                f"{_WHICH} was over its GPU memory limit for {{{{ $value | humanizeDuration }}}} of the last "
                "15 minutes: HAMi-core does not hold it."
            ),
            tenant_text=(
                f"{_WHICH} was over its GPU memory limit for {{{{ $value | humanizeDuration }}}} of the last "
                "15 minutes."
            ),
            dashboard=POD_LINK,
        ),
        Alert(
            name="SlicemeterSliceBlocked",
            expr=f"{blocked} > {limits.blocked_ratio}",
            hold="15m",
            severity="info",
            summary="A slice is held back by a higher priority most of the time",
            description=f"{_WHICH} was blocked {{{{ $value | humanizePercentage }}}} of the last 15 minutes.",
            tenant_text=(
                f"{_WHICH} was blocked {{{{ $value | humanizePercentage }}}} of the last 15 minutes: another "
                "slice of a higher priority runs on its card."
            ),
            dashboard=POD_LINK,
        ),
        Alert(
            name="SlicemeterUnattributedHigh",
            expr=f"({memory}\n> {limits.unattributed_ratio})\nor\n({stray} > {limits.unattributed_ratio})",
            hold="15m",
            severity="warning",
            summary="Part of a card is used by processes of no known pod",
            description=(
                "Processes in no known pod use {{ $value | humanizePercentage }} of card "
                "{{ $labels.device_uuid }} on {{ $labels.node }}, in memory or SM time: nobody pays for it."
            ),
            dashboard=CARD_LINK,
        ),
    )
