"""Where a month will end, worked out by hand."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from accounting.budgets.forecast import Spending, forecast

D = Decimal
DAY_MS = 86_400_000
NOVEMBER = [day * DAY_MS for day in range(31)]
"""Thirty days of 24 hours and the end, counted from 0."""


def test_a_steady_month_ends_at_its_daily_cost_times_its_days() -> None:
    # 10 a day; ten full days are over: 100 + 20 × 10.
    spending = Spending({day: D(10) for day in NOVEMBER[:10]})
    assert forecast(spending, NOVEMBER, 10 * DAY_MS) == 300


def test_the_last_seven_full_days_set_the_rate_and_the_running_day_does_not() -> None:
    # Days 1-3 cost 100 each, days 4-10 cost 14 each; 5 so far on day 11, which is half over.
    costs = {day: D(100 if day < 3 * DAY_MS else 14) for day in NOVEMBER[:10]}
    spending = Spending({**costs, 10 * DAY_MS: D(5)})
    # 300 + 98 + 5 spent, 19.5 days are left at 14 a day.
    assert forecast(spending, NOVEMBER, 10 * DAY_MS + DAY_MS // 2) == 403 + D("19.5") * 14


def test_before_the_first_full_day_the_rate_is_what_was_spent_so_far() -> None:
    # 3 in six hours: 12 a day, 29.75 days are left.
    assert forecast(Spending({0: D(3)}), NOVEMBER, DAY_MS // 4) == 3 + D("29.75") * 12


def test_what_happens_once_counts_once() -> None:
    spending = Spending({day: D(10) for day in NOVEMBER[:10]}, once=D(-50))
    assert forecast(spending, NOVEMBER, 10 * DAY_MS) == 250


def test_a_day_of_25_hours_weighs_what_it_lasts() -> None:
    # 25 in 25 hours, then 24 in 24: one an hour, ten hours are left.
    days = [0, 25 * 3_600_000, 49 * 3_600_000, 59 * 3_600_000]
    spending = Spending({days[0]: D(25), days[1]: D(24)})
    assert forecast(spending, days, days[2]) == 49 + 10


@given(st.lists(st.decimals(0, 1000, places=4), min_size=30, max_size=30), st.integers(30, 60))
def test_a_month_that_is_over_costs_what_it_cost(costs: list[Decimal], days: int) -> None:
    spending = Spending(dict(zip(NOVEMBER, costs, strict=False)))
    assert forecast(spending, NOVEMBER, days * DAY_MS) == sum(costs, D(0))
