"""Prices by instant, money by half even, sums that add up (`reference/ledger.md §4`)."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.ledger.pricing import AmbiguousPriceError, Price, edges, resolve, resolve_sku
from accounting.ledger.rounding import (
    amount_of,
    card_hours,
    exact_sum,
    minor_digits,
    round_statement,
    to_currency,
)

CARD_HOUR = 3_600_000_000_000
At = Callable[..., int]


def price(id_: int, unit_price: str, from_ms: int, to_ms: int | None = None, **fields: str) -> Price:
    known = {"book": "list", "sku": "gpu-slice", "model": "T4", "currency": "EUR"} | fields
    return Price(id=id_, unit_price=Decimal(unit_price), valid_from_ms=from_ms, valid_to_ms=to_ms, **known)


def find(prices: list[Price], at_ms: int, model: str = "T4", sku: str = "gpu-slice") -> Price | None:
    return resolve(prices, book="list", sku=sku, model=model, currency="EUR", at_ms=at_ms)


def test_a_change_of_price_bills_each_side_at_its_own(at: At) -> None:
    # Half a card from 11:00 to 14:00; 2.40 until 12:00, then 3.00: 0.5 × (1 × 2.40 + 2 × 3.00) = 4.20.
    prices = [price(1, "2.40", at("00:00"), at("12:00")), price(2, "3.00", at("12:00"))]
    assert edges(prices) == {at("00:00"), at("12:00")}
    total = Decimal(0)
    for hour in ("11:00", "12:00", "13:00"):
        found = find(prices, at(hour))
        assert found is not None
        total += amount_of(CARD_HOUR // 2, found.unit_price)
    assert total == Decimal("4.20")


def test_price_is_valid_from_its_first_instant_to_before_its_last(at: At) -> None:
    prices = [price(1, "2", at("10:00"), at("12:00"))]
    assert find(prices, at("10:00")) is prices[0]
    assert find(prices, at("12:00") - 1) is prices[0]
    assert find(prices, at("12:00")) is None
    assert find(prices, at("10:00") - 1) is None


def test_model_without_a_price_is_unrated_and_an_explicit_zero_is_a_price() -> None:
    assert find([price(1, "2", 0)], 5, model="L4") is None
    free = price(2, "0", 0, model="L4")
    assert find([free], 5, model="L4") is free
    assert amount_of(CARD_HOUR, free.unit_price) == 0


def test_price_that_names_the_model_goes_before_one_for_all() -> None:
    every, named = price(1, "1", 0, model=""), price(2, "2", 0)
    assert find([every, named], 5) is named
    assert find([every, named], 5, model="L4") is every


def test_two_prices_that_hold_at_once_are_never_chosen_between() -> None:
    with pytest.raises(AmbiguousPriceError, match="versions 1, 2"):
        find([price(1, "1", 0), price(2, "2", 0)], 5)


def test_idle_takes_its_own_price_where_there_is_one() -> None:
    slices, idle = price(1, "2", 0), price(2, "0.5", 10, 20, sku="gpu-idle")

    def at_ms(instant: int) -> Price | None:
        return resolve_sku(
            [slices, idle], book="list", sku="gpu-idle", model="T4", currency="EUR", at_ms=instant
        )

    assert at_ms(5) is slices
    assert at_ms(15) is idle


def test_shown_lines_and_the_rounding_line_are_the_total() -> None:
    rounded = round_statement([Decimal("1.234"), Decimal("2.345"), Decimal("3.456")], "EUR")
    assert rounded.shown == (Decimal("1.23"), Decimal("2.34"), Decimal("3.46"))
    assert (rounded.total, rounded.rounding) == (Decimal("7.04"), Decimal("0.01"))


def test_currencies_have_their_own_digits() -> None:
    assert [minor_digits(code) for code in ("EUR", "JPY", "KWD")] == [2, 0, 3]
    assert to_currency(Decimal("0.125"), "EUR") == Decimal("0.12")
    assert to_currency(Decimal("0.5"), "JPY") == 0


def test_amount_of_a_third_of_a_card_hour_keeps_seventeen_digits() -> None:
    assert amount_of(CARD_HOUR // 3, Decimal(1)) == Decimal("0.33333333333333333")
    assert card_hours(CARD_HOUR // 3) == Decimal("0.333333")


@given(
    st.integers(-(10**16), 10**16),
    st.decimals(0, 10**6, places=6),
    st.none() | st.decimals(0, 100, places=4),
    st.sampled_from([("ppm_ms", CARD_HOUR), ("mj", 3_600_000_000)]),
)
def test_an_amount_is_the_exact_product_rounded_once_half_even(
    quantity: int, unit_price: Decimal, percent: Decimal | None, unit: tuple[str, int]
) -> None:
    exact = Fraction(quantity, unit[1]) * Fraction(unit_price) * (1 - Fraction(percent or 0) / 100)
    # `round` of a fraction is half even.
    wanted = Fraction(round(exact * 10**17), 10**17)
    amount = amount_of(quantity, unit_price, unit=unit[0], percent=percent)
    assert Fraction(amount) == wanted
    assert amount.as_tuple().exponent == -17


amounts = st.decimals(min_value=-(10**6), max_value=10**6, places=17)


@given(st.lists(amounts, max_size=30), st.sampled_from(["EUR", "JPY", "KWD"]), st.randoms())
def test_statement_adds_up_whatever_the_order(lines: list[Decimal], currency: str, random: object) -> None:
    rounded = round_statement(lines, currency)
    assert exact_sum(rounded.shown) + rounded.rounding == rounded.total
    assert rounded.total == to_currency(exact_sum(reversed(lines)), currency)
