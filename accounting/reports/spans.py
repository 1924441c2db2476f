"""Windows that have a name, and those that begin and end with the days of whoever asks.

Invariant: a span is half-open and gives, for one zone, one interval; days and months are those of the zone,
never multiples of 24 hours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta

from accounting.errors import InvalidError
from accounting.ledger.calendar import (
    CalendarError,
    Month,
    local_date,
    midnight_ms,
    month_bounds_ms,
    month_of,
    zone,
)
from accounting.ledger.intervals import Interval

NAMES = ("month", "last_month", "today", "yesterday", "7d", "30d")
"""As examples: any number of days up to `MAX_DAYS` may stand before the d."""

MAX_DAYS = 400
_DAYS = re.compile(r"([1-9][0-9]{0,2})d")


@dataclass(frozen=True, slots=True)
class Span:
    """A window that knows its interval in every zone."""

    text: str
    """As it was asked for."""
    of: Callable[[str], Interval]
    time_zone: str | None = None
    """Whose days; None: each account's own, or UTC where no account is asked about."""

    def within(self, account_zone: str) -> Interval:
        """The interval for an account of a zone."""
        return self.of(self.time_zone or account_zone)

    @property
    def interval(self) -> Interval:
        """The interval where no account is asked about."""
        return self.of(self.time_zone or "UTC")


def month_span(month: Month, time_zone: str | None = None) -> Span:
    """A month."""
    return Span(str(month), lambda named: month_bounds_ms(month, named), time_zone)


def instants_span(text: str, interval: Interval) -> Span:
    """From one instant to another, whatever the zone."""
    return Span(text, lambda _: interval)


def named_span(name: str, now_ms: int, time_zone: str | None = None) -> Span:
    """A window by its name, seen from now: `month`, `last_month`, `today`, `yesterday`, `7d`.

    Raises:
        InvalidError: There is no such window.
    """
    days = _DAYS.fullmatch(name)
    if days is not None and int(days[1]) <= MAX_DAYS:
        back = int(days[1])
        return Span(name, lambda named: (_midnight(now_ms, -back, named), now_ms), time_zone)
    known: dict[str, Callable[[str], Interval]] = {
        "month": lambda named: (month_bounds_ms(month_of(now_ms, named), named)[0], now_ms),
        "last_month": lambda named: _last_month(now_ms, named),
        "today": lambda named: (_midnight(now_ms, 0, named), now_ms),
        "yesterday": lambda named: (_midnight(now_ms, -1, named), _midnight(now_ms, 0, named)),
    }
    if name not in known:
        raise InvalidError(f'window "{name}" is unknown; there are {", ".join(NAMES)} (1d to {MAX_DAYS}d)')
    return Span(name, known[name], time_zone)


def require_zone(name: str | None) -> str | None:
    """Let a zone pass that is known.

    Raises:
        InvalidError: It is not.
    """
    if name is not None:
        try:
            zone(name)
        except CalendarError as error:
            raise InvalidError(str(error)) from None
    return name


def _midnight(now_ms: int, days: int, time_zone: str) -> int:
    return midnight_ms(local_date(now_ms, time_zone) + timedelta(days=days), time_zone)


def _last_month(now_ms: int, time_zone: str) -> Interval:
    first = local_date(now_ms, time_zone).replace(day=1)
    before: date = first - timedelta(days=1)
    return midnight_ms(before.replace(day=1), time_zone), midnight_ms(first, time_zone)
