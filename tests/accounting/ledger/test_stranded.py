"""What is free although a card is sold (`reference/ledger.md §2`), worked out by hand."""

from __future__ import annotations

from accounting.ledger.columns import Hold
from accounting.ledger.presence import PresenceSpan
from accounting.ledger.shares import Grant
from accounting.ledger.stranded import Free, free_of
from accounting.ledger.sweep import sweep
from contract.ids import ClusterCode, DeviceUuid, PodUid, SliceKey

START = 500_000 * 3_600_000
MINUTE = 60_000
CARD_MINUTE = 60_000_000_000


def key(pod: str) -> SliceKey:
    return SliceKey(ClusterCode("c"), PodUid(pod), "main", DeviceUuid("GPU-1"))


def test_two_slices_fill_a_card_while_a_third_of_each_resource_is_free() -> None:
    # X: memory 0.60, cores 0.10; Y: memory 0.10, cores 0.60, over the last half of an hour.
    # The last ten minutes the card is down, and nothing is free.
    hour = START + 60 * MINUTE
    holds = [
        Hold(key("x"), START, hour, Grant(9_600, 10)),
        Hold(key("y"), START + 30 * MINUTE, hour, Grant(1_600, 60)),
    ]
    spans = [
        PresenceSpan(START, hour - 10 * MINUTE, False, None, "Tesla T4", 16_000, "reported"),
        PresenceSpan(hour - 10 * MINUTE, hour, True, "xid", "Tesla T4", 16_000, "reported"),
    ]
    free = free_of(sweep(spans, holds, (START, hour)), {hold.slice_key: hold.grant for hold in holds})
    # 30 minutes of X alone: memory 0.4, cores 0.9; 20 minutes of both: memory 0.3, cores 0.3.
    assert free == Free(
        up_ppm_ms=50 * CARD_MINUTE,
        memory_ppm_ms=(12 + 6) * CARD_MINUTE,
        cores_ppm_ms=(27 + 6) * CARD_MINUTE,
        stranded_ppm_ms=(12 + 6) * CARD_MINUTE,
        idle_ppm_ms=12 * CARD_MINUTE,
    )
