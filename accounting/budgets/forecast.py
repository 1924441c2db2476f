"""Where a month will end: what is spent, and the rest at the rate of the last full days. Pure.

Invariant: corrections, adjustments and what was handed on count once and never set the rate; a month that
is over is forecast to cost what it costs. Source: run-rate forecasting as finance tools do it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from accounting.ledger.rounding import EXACT, exact_sum

FULL_DAYS = 7
"""So many of the last full days set the rate: a week has each weekday once."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What a month has cost so far.

    Attributes:
        by_day: Rated amounts by the start of the local day, Unix milliseconds.
        once: Corrections, adjustments and idle capacity handed on.
    """

    by_day: Mapping[int, Decimal]
    once: Decimal = Decimal(0)

    @property
    def total(self) -> Decimal:
        """All of it."""
        return EXACT.add(exact_sum(self.by_day.values()), self.once)


def forecast(spending: Spending, midnights_ms: list[int], as_of_ms: int) -> Decimal:
    """What the month will have cost when it is over.

    Args:
        spending: So far.
        midnights_ms: The starts of the month's local days, and its end.
        as_of_ms: Up to when it is rated.
    """
    start_ms, end_ms = midnights_ms[0], midnights_ms[-1]
    if as_of_ms >= end_ms or as_of_ms <= start_ms:
        return spending.total
    full = [(begin, end) for begin, end in pairwise(midnights_ms) if end <= as_of_ms][-FULL_DAYS:]
    if full:
        from_ms, to_ms = full[0][0], full[-1][1]
        recent = exact_sum(spending.by_day.get(begin, Decimal(0)) for begin, _ in full)
    else:
        from_ms, to_ms = start_ms, as_of_ms
        recent = exact_sum(spending.by_day.values())
    rest = EXACT.divide(EXACT.multiply(recent, Decimal(end_ms - as_of_ms)), Decimal(to_ms - from_ms))
    return EXACT.add(spending.total, rest)
