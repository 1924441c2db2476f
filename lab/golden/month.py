"""October 2026, as data. The comments say what each pod is there for.

In Berlin the month begins on 30 September 22:00Z and ends on 31 October 23:00Z: 745 hours, since clocks go
back on the 25th. Node names and the first card's UUID are the same in clusters alpha and beta.
"""

from __future__ import annotations

from contract.ids import ClusterCode, DeviceUuid, NodeUid, PodUid, TenantKey
from lab.golden.world import Card, Node, Outage, Pod, World, at

MONTH = "2026-10"
STARTS_MS = at("2026-09-30T22:00Z")
ENDS_MS = at("2026-10-31T23:00Z")
NOW_MS = at("2026-11-02T09:00Z")
"""When the month is billed."""

A100 = Card(DeviceUuid("GPU-00000000-0000-0000-0000-000000000001"), "NVIDIA A100-SXM4-80GB", 81_920, 60)
L4_FIRST = Card(DeviceUuid("GPU-00000000-0000-0000-0000-000000000002"), "NVIDIA L4", 24_576, 16)
L4_SECOND = Card(DeviceUuid("GPU-00000000-0000-0000-0000-000000000003"), "NVIDIA L4", 24_576, 16)
L4_MOCK = Card(A100.uuid, "NVIDIA L4", 24_576, 0)
T4 = Card(DeviceUuid("GPU-00000000-0000-0000-0000-000000000004"), "Tesla T4", 15_360, 10)

ALPHA_1 = Node(ClusterCode("alpha"), NodeUid("alpha-node-1"), "gpu-1", (A100,))
# The weekend: Friday 22:00 to Monday 07:00 in Berlin. Its outbox then shows that it lived until 03:00.
ALPHA_2 = Node(
    ClusterCode("alpha"),
    NodeUid("alpha-node-2"),
    "gpu-2",
    (L4_FIRST, L4_SECOND),
    outage=Outage(at("2026-10-16T20:00Z"), at("2026-10-17T01:00Z"), at("2026-10-19T05:00Z")),
)
BETA_1 = Node(ClusterCode("beta"), NodeUid("beta-node-1"), "gpu-1", (L4_MOCK,), is_mock=True)
GAMMA_1 = Node(ClusterCode("gamma"), NodeUid("gamma-node-1"), "gpu-1", (T4,))

RED, GREEN, BLUE = TenantKey("red"), TenantKey("green"), TenantKey("blue")


def _uid(number: int) -> PodUid:
    return PodUid(f"00000000-0000-4000-8000-{number:012d}")


PODS = (
    # All month and beyond both of its edges; half a card by memory.
    Pod(
        ALPHA_1, _uid(1), "red", "train", RED, (A100.uuid,), 40_960, 30,
        at("2026-09-30T12:00Z"), at("2026-09-30T12:10Z"), at("2026-11-01T12:00Z"),
        sm_percent=30, active_watts=100,
    ),
    # With the one above 0.5 + 0.7 of a card: over-booked for 12 hours, 70 % by cores, 30 % by memory.
    Pod(
        ALPHA_1, _uid(2), "green", "burst", GREEN, (A100.uuid,), 24_576, 70,
        at("2026-10-12T06:00Z"), at("2026-10-12T06:00Z"), at("2026-10-12T18:00Z"),
        sm_percent=60, active_watts=150,
    ),
    # A whole card without a core request; bound for an hour before it ran.
    Pod(
        ALPHA_2, _uid(3), "blue", "whole", BLUE, (L4_FIRST.uuid,), 24_576, 0,
        at("2026-10-05T06:00Z"), at("2026-10-05T07:00Z"), at("2026-10-07T06:00Z"),
        sm_percent=90, active_watts=50,
    ),
    # Holds half a card over the weekend on which its node was gone.
    Pod(
        ALPHA_2, _uid(4), "green", "serve", GREEN, (L4_SECOND.uuid,), 12_288, 50,
        at("2026-10-14T00:00Z"), at("2026-10-14T00:00Z"), at("2026-10-20T00:00Z"),
        sm_percent=10, active_watts=5,
    ),
    # The cluster witness missed it at 10:00; the node witness went on confirming until its end.
    Pod(
        ALPHA_2, _uid(5), "blue", "missed", BLUE, (L4_SECOND.uuid,), 6_144, 0,
        at("2026-10-21T06:00Z"), at("2026-10-21T06:00Z"), at("2026-10-21T16:00Z"),
        missed_ms=at("2026-10-21T10:00Z"), sm_percent=5, active_watts=2,
    ),
    # Over the night in which clocks go back: 22:00 to 13:00 are 16 hours.
    Pod(
        ALPHA_2, _uid(6), "blue", "night", BLUE, (L4_SECOND.uuid,), 6_144, 0,
        at("2026-10-24T20:00Z"), at("2026-10-24T20:00Z"), at("2026-10-25T12:00Z"),
        sm_percent=20, active_watts=10,
    ),
    # Nobody saw it end: it is held for the grace of 15 minutes after its last confirmation.
    Pod(
        ALPHA_2, _uid(7), "blue", "ghost", BLUE, (L4_FIRST.uuid,), 12_288, 0,
        at("2026-10-28T08:00Z"), at("2026-10-28T08:00Z"), vanished_ms=at("2026-10-28T09:45Z"),
        sm_percent=1, active_watts=1,
    ),
    # 36 seconds on a whole card.
    Pod(
        ALPHA_2, _uid(8), "green", "quick", GREEN, (L4_FIRST.uuid,), 24_576, 100,
        at("2026-10-29T10:00Z"), at("2026-10-29T10:00Z"), at("2026-10-29T10:00:36Z"),
        sm_percent=50, active_watts=30,
    ),
    # A quarter of each of two cards.
    Pod(
        ALPHA_2, _uid(9), "blue", "pair", BLUE, (L4_FIRST.uuid, L4_SECOND.uuid), 6_144, 25,
        at("2026-10-30T00:00Z"), at("2026-10-30T00:00Z"), at("2026-10-30T10:00Z"),
        sm_percent=25, active_watts=12,
    ),
    # One hour in October, three in November.
    Pod(
        ALPHA_2, _uid(10), "green", "edge", GREEN, (L4_FIRST.uuid,), 12_288, 0,
        at("2026-10-31T22:00Z"), at("2026-10-31T22:00Z"), at("2026-11-01T02:00Z"),
        sm_percent=40, active_watts=20,
    ),
    # On a mock node nothing is measured; 40 % by cores, a third by memory.
    Pod(
        BETA_1, _uid(1), "red", "train", RED, (L4_MOCK.uuid,), 8_192, 40,
        at("2026-10-01T00:00Z"), at("2026-10-01T00:00Z"), at("2026-10-11T00:00Z"),
    ),
    # In an account without a currency; still running. Another tenant than the red ones above.
    Pod(
        GAMMA_1, _uid(11), "red", "notebook", RED, (T4.uuid,), 3_840, 0,
        at("2026-09-29T10:00Z"), at("2026-09-29T10:00Z"), sm_percent=2, active_watts=3,
    ),
    # Uses the card without an allocation for three hours.
    Pod(
        GAMMA_1, _uid(12), "blue", "bypass", BLUE, (T4.uuid,), 0, 0,
        at("2026-10-08T12:00Z"), at("2026-10-08T12:00Z"), at("2026-10-08T15:00Z"),
        sm_percent=50, active_watts=20, bypasses=True,
    ),
)  # fmt: skip

GOLDEN_MONTH = World(at("2026-09-29T00:00Z"), (ALPHA_1, ALPHA_2, BETA_1, GAMMA_1), PODS)
