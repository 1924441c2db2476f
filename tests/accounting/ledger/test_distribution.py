"""Idle capacity handed on (`reference/ledger.md §3, §4`): exact, order-free, never by nothing."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.ledger.distribution import IdleTime, distribute_idle, weights_of
from accounting.ledger.rounding import exact_sum, round_statement


def test_even_gives_each_active_tenant_one_part_and_by_allocation_what_it_held() -> None:
    held = {"acme/a": 30, "acme/b": 10, "acme/away": 0}
    idle = IdleTime(1_000, Decimal("4.00"))
    assert distribute_idle(idle, weights_of(held, "even")) == {
        "acme/a": IdleTime(500, Decimal("2.00")),
        "acme/b": IdleTime(500, Decimal("2.00")),
    }
    assert distribute_idle(idle, weights_of(held, "by_allocation")) == {
        "acme/a": IdleTime(750, Decimal("3.00")),
        "acme/b": IdleTime(250, Decimal("1.00")),
    }


@pytest.mark.parametrize("policy", ["keep", "even", "by_allocation"])
@pytest.mark.parametrize("held", [{}, {"acme/a": 0, "acme/b": 0}])
def test_weights_that_are_all_zero_hand_nothing_on(held: dict[str, int], policy: str) -> None:
    assert distribute_idle(IdleTime(1_000, Decimal("4.00")), weights_of(held, policy)) == {}


def test_unrated_idle_time_is_handed_on_without_an_amount() -> None:
    assert distribute_idle(IdleTime(3, None), {"a": 1, "b": 1}) == {
        "a": IdleTime(2, None),
        "b": IdleTime(1, None),
    }


_tenants = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 10**15), max_size=6)
_amounts = st.none() | st.decimals(0, 10**9, places=17)


@given(
    _tenants,
    st.integers(0, 10**17),
    _amounts,
    st.sampled_from(["even", "by_allocation"]),
    st.randoms(use_true_random=False),
)
def test_what_receivers_get_is_what_there_was_in_any_order(
    held: dict[str, int], quantity: int, amount: Decimal | None, policy: str, random: Random
) -> None:
    weights = weights_of(held, policy)
    shuffled = list(held.items())
    random.shuffle(shuffled)
    parts = distribute_idle(IdleTime(quantity, amount), weights)
    assert parts == distribute_idle(IdleTime(quantity, amount), weights_of(dict(shuffled), policy))
    if not any(held.values()):
        assert parts == {}
        return
    assert sum(part.quantity_ppm_ms for part in parts.values()) == quantity
    amounts = [part.amount for part in parts.values() if part.amount is not None]
    assert exact_sum(amounts) == (0 if amount is None else amount)
    for currency in ("JPY", "EUR", "KWD"):
        rounded = round_statement(amounts, currency)
        assert exact_sum(rounded.shown) + rounded.rounding == rounded.total
