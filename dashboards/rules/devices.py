"""Cards that are failing: XID errors, and health.

An XID's counter is born at 1 with the first error and may never grow again, so the alert reads when the
code was last seen. Fatal codes and all others never share a tier.
"""

from __future__ import annotations

from contract.xid import FATAL_XIDS
from dashboards import uids
from dashboards.names import D, increase, metric, once
from dashboards.rules.rule import Alert
from dashboards.thresholds import Thresholds

CARD_LINK = uids.alert_link(uids.CARD, "cluster", "node", "device_uuid")
_FATAL = "|".join(map(str, sorted(FATAL_XIDS)))


def device_alerts(limits: Thresholds) -> tuple[Alert, ...]:
    """XID errors in two tiers, and cards that are down or about to be."""

    def seen(matcher: str) -> str:
        since = once("device_xid_last_timestamp_seconds", f"{D}, code", matcher)
        return f"time() - {since} < {limits.xid_window_seconds}"

    unhealthy = f"min by ({D}) ({metric('device_health')}) == 0"
    remapping = f"{once('device_remapped_rows_pending', D)} == 1"
    uncorrected = f"{increase('device_ecc_errors_total', D, '1h', _UNCORRECTED)} > 0"
    return (
        Alert(
            name="SlicemeterXid",
            expr=seen(f'code=~"{_FATAL}"'),
            hold="0s",
            severity="critical",
            summary="The driver reported an XID error that takes a card out of service",
            description=(
                "Card {{ $labels.device_uuid }} on {{ $labels.node }} reported XID {{ $labels.code }} "
                "{{ $value | humanizeDuration }} ago. Its time is not charged until it is reset."
            ),
            dashboard=CARD_LINK,
        ),
        Alert(
            name="SlicemeterXid",
            expr=seen(f'code!~"{_FATAL}"'),
            hold="0s",
            severity="info",
            summary="The driver reported an XID error after which the card goes on",
            description=(
                "Card {{ $labels.device_uuid }} on {{ $labels.node }} reported XID {{ $labels.code }} "
                "{{ $value | humanizeDuration }} ago: mostly a program's own error; the card goes on."
            ),
            dashboard=CARD_LINK,
        ),
        Alert(
            name="SlicemeterDeviceUnhealthy",
            expr=f"({unhealthy})\nor\n({remapping})\nor\n({uncorrected})",
            hold="5m",
            severity="critical",
            summary="A card is down, or about to be",
            description=(
                "Card {{ $labels.device_uuid }} on {{ $labels.node }} is down, waits for a reset to remap "
                "memory rows, or counted uncorrected ECC errors in the last hour."
            ),
            dashboard=CARD_LINK,
        ),
    )


_UNCORRECTED = 'kind="uncorrected"'
