"""Largest remainder: parts add up, ties go to the first key, and the written examples hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.apportion import apportion


@pytest.mark.parametrize(
    ("total", "weights", "parts"),
    [
        (1000, [1, 1, 4], [167, 167, 666]),  # 10.00 in cents: equal remainders go to the first keys
        (100, [5, 3, 3], [46, 27, 27]),
        (1000, [2, 2, 3], [286, 286, 428]),  # a currency without minor unit
        (0, [0, 0], [0, 0]),
        (7, [1], [7]),
    ],
)
def test_the_written_examples_hold(total: int, weights: list[int], parts: list[int]) -> None:
    assert apportion(total, weights) == parts


@given(st.integers(0, 10**24), st.lists(st.integers(0, 10**18), min_size=1).filter(any))
def test_parts_add_up_and_none_is_a_unit_away_from_its_share(total: int, weights: list[int]) -> None:
    parts = apportion(total, weights)
    assert sum(parts) == total
    whole = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        assert total * weight // whole <= part <= total * weight // whole + 1
        assert weight > 0 or part == 0


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(ValueError, match="all 0"):
        apportion(5, [0, 0])
    with pytest.raises(ValueError, match="negative"):
        apportion(-1, [1])
    with pytest.raises(ValueError, match="negative"):
        apportion(1, [2, -1])
