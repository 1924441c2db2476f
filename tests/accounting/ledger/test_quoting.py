"""No neighbour makes a slice dearer than quoted (`reference/ledger.md §2`)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.ledger.columns import Hold, PolicySpan
from accounting.ledger.presence import PresenceSpan
from accounting.ledger.quoting import share_bound_ppm
from accounting.ledger.shares import POLICIES, Grant, Policy
from accounting.ledger.sweep import sweep
from contract.ids import ClusterCode, DeviceUuid, PodUid, SliceKey

START = 500_000 * 3_600_000
CARD_MIB = 15_360


def key(pod: str) -> SliceKey:
    return SliceKey(ClusterCode("c"), PodUid(pod), "main", DeviceUuid("GPU-1"))


@pytest.mark.parametrize(
    ("grant", "policy", "ppm"),
    [
        # 4,000 / 15,360 = 0.260416…, the larger of it and the cores.
        (Grant(4_000, 0), "dominant", 260_417),
        (Grant(4_000, 30), "dominant", 300_000),
        (Grant(4_000, 30), "memory", 260_417),
        (Grant(4_000, 30), "whole_card", 1_000_000),
        # 2 of 7 MIG slices; a grant beyond the card is the card.
        (Grant(4_000, 0, mig_slices=2), "dominant", 285_715),
        (Grant(20_000, 0), "dominant", 1_000_000),
    ],
)
def test_a_quoted_share_is_the_own_share_rounded_up(grant: Grant, policy: Policy, ppm: int) -> None:
    assert share_bound_ppm(grant, CARD_MIB, "Tesla T4", policy) == ppm


_grants = st.builds(Grant, st.integers(0, 20_000), st.integers(0, 120), st.sampled_from([0, 0, 1, 3]))
_times = st.tuples(st.integers(0, 7_000), st.integers(0, 7_000)).map(lambda ends: (min(ends), max(ends)))


@given(_grants, _times, st.lists(st.tuples(_grants, _times), max_size=8), st.sampled_from(POLICIES))
def test_no_neighbour_makes_a_slice_dearer_than_quoted(
    grant: Grant, when: tuple[int, int], neighbours: list[tuple[Grant, tuple[int, int]]], policy: Policy
) -> None:
    holds = [
        Hold(key(f"p{number}"), START + held[0], START + held[1], other)
        for number, (other, held) in enumerate([(grant, when), *neighbours])
    ]
    window = (START, START + 7_000)
    segments = sweep(
        [PresenceSpan(*window, False, None, "Tesla T4", CARD_MIB, "reported")],
        holds,
        window,
        policies=[PolicySpan(*window, policy)],
    )
    parts = [part for segment in segments for part in segment.parts if part.slice_key == key("p0")]
    bound = share_bound_ppm(grant, CARD_MIB, "Tesla T4", policy) * (when[1] - when[0])
    assert sum(part.charged_ppm_ms for part in parts) <= bound
    assert all(part.charged_ppm_ms <= part.own_ppm_ms for part in parts)
