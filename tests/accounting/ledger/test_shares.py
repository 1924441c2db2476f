"""One share function (`reference/ledger.md §2`)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.ledger.shares import (
    POLICIES,
    Grant,
    Policy,
    card_units,
    divide,
    mig_slices,
    mig_slices_of_card,
    share_units,
)

HOUR = 3_600_000
CARD_HOUR = 3_600_000_000_000


def charged_ppm(grants: list[Grant], capacity_mib: int, policy: Policy = "dominant") -> list[int]:
    """Parts per million of the card over one second, and the idle part last."""
    units = [share_units(grant, capacity_mib, policy=policy) for grant in grants]
    division = divide(1_000, units, card_units(capacity_mib))
    return [part // 1_000 for part in (*division.charged, division.idle)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("dominant", 400_000), ("memory", 400_000), ("whole_card", 1_000_000)],
)
def test_share_of_two_fifths_of_memory_and_a_tenth_of_cores(policy: Policy, expected: int) -> None:
    assert charged_ppm([Grant(4_000, 10)], 10_000, policy)[0] == expected


def test_dominant_takes_cores_when_they_block_more() -> None:
    assert charged_ppm([Grant(1_000, 70)], 10_000)[0] == 700_000


def test_no_core_request_never_means_that_nothing_is_used() -> None:
    assert charged_ppm([Grant(10_000, 0)], 10_000) == [1_000_000, 0]


def test_normalising_two_slices_that_fit_but_would_sell_the_card_twice() -> None:
    # X (0.60, 0.30) and Y (0.30, 0.70): own 0.60 and 0.70, f = 1/1.3.
    units = [share_units(Grant(6_000, 30), 10_000), share_units(Grant(3_000, 70), 10_000)]
    division = divide(HOUR, units, card_units(10_000))
    # 0.6/1.3 and 0.7/1.3 of 3.6e12; the parts are 1661538461538.46 and 1938461538461.54.
    assert division.charged == (1_661_538_461_538, 1_938_461_538_462)
    assert division.idle == 0
    assert division.own == (CARD_HOUR * 6 // 10, CARD_HOUR * 7 // 10)
    discounts = [own - charged for own, charged in zip(division.own, division.charged, strict=True)]
    assert discounts == [498_461_538_462, 581_538_461_538]
    assert sum(discounts) == CARD_HOUR * 3 // 10


def test_n_whole_card_slices_pay_one_nth_each() -> None:
    assert charged_ppm([Grant(100, 0)] * 4, 10_000, "whole_card") == [250_000] * 4 + [0]


def test_a_grant_larger_than_its_card_is_the_whole_card() -> None:
    assert share_units(Grant(20_000, 0), 10_000) == card_units(10_000)


def test_mig_instance_pays_its_slices_whatever_its_memory() -> None:
    # 3 of 7 slices, although 20,096 MiB of 40,960 are 0.49.
    grant = Grant(20_096, 0, mig_slices=mig_slices("3g.20gb"))
    division = divide(7, [share_units(grant, 40_960, "NVIDIA A100-SXM4-40GB")], card_units(40_960))
    assert division.charged == (3_000_000,)
    assert division.idle == 4_000_000


@pytest.mark.parametrize(
    ("mig", "slices"), [("1g.10gb", 1), ("7g.80gb", 7), ("MIG 2g.20gb+me", 2), ("0-2", 0), (None, 0)]
)
def test_slices_of_an_instance_are_read_from_its_profile(mig: str | None, slices: int) -> None:
    assert mig_slices(mig) == slices


def test_an_a30_has_four_slices_and_other_cards_seven() -> None:
    assert mig_slices_of_card("NVIDIA A30") == 4
    assert mig_slices_of_card("NVIDIA A100 80GB PCIe") == 7
    assert mig_slices_of_card("NVIDIA A300X") == 7


grants = st.builds(Grant, st.integers(0, 90_000), st.integers(0, 100), st.sampled_from([0, 0, 0, 1, 3]))


@given(
    st.lists(grants, max_size=12),
    st.integers(1, 81_920),
    st.integers(1, HOUR),
    st.sampled_from(POLICIES),
)
def test_division_is_exact_and_no_neighbour_makes_a_slice_dearer(
    held: list[Grant], capacity_mib: int, length_ms: int, policy: Policy
) -> None:
    whole = card_units(capacity_mib)
    units = [share_units(grant, capacity_mib, policy=policy) for grant in held]
    division = divide(length_ms, units, whole)
    assert sum(division.charged) + division.idle == length_ms * 1_000_000
    assert division.idle >= 0
    for unit, charged, own in zip(units, division.charged, division.own, strict=True):
        assert 0 <= charged <= own
        assert own - 1 < length_ms * 1_000_000 * unit / whole * (1 + 1e-12) + 1
    if sum(units) <= whole:
        assert division.own == division.charged
    else:
        assert division.idle == 0
