"""Months and days of an account, between local midnights, as instants.

Invariant: the months of a zone tile, and so do its days: no overlap, no hole, whatever its clocks do.
Lengths come from instants, never from 24 hours a day. Source: `reference/ledger.md §6`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

FIRST_YEAR, LAST_YEAR = 1971, 9998
"""Years that may be asked for: one year around them still is a time that Python and the store can hold."""

_MONTH = re.compile(r"(?P<year>\d{4})-(?P<month>0[1-9]|1[0-2])", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ONE_MS = timedelta(milliseconds=1)


class CalendarError(ValueError):
    """A zone or month that does not exist; the message says how to write one."""


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """A calendar month, in whatever zone."""

    year: int
    month: int

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.month:02d}"

    @property
    def first_day(self) -> date:
        """Its first day."""
        return date(self.year, self.month, 1)

    def next(self) -> Month:
        """The month after it."""
        return Month(self.year + self.month // 12, self.month % 12 + 1)


@lru_cache(maxsize=256)
def zone(name: str) -> ZoneInfo:
    """The IANA zone of this name.

    Raises:
        CalendarError: There is none.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CalendarError(f'time zone "{name}" is unknown; write an IANA name like Europe/Berlin') from None


def parse_month(text: str) -> Month:
    """Read `2026-10`.

    Raises:
        CalendarError: It is no month, or lies outside the years that may be asked for.
    """
    match = _MONTH.fullmatch(text)
    if match is None or not FIRST_YEAR <= int(match["year"]) <= LAST_YEAR:
        raise CalendarError(
            f'period "{text}" is no month from {FIRST_YEAR} to {LAST_YEAR}; write it like 2026-10'
        )
    return Month(int(match["year"]), int(match["month"]))


@lru_cache(maxsize=4096)
def midnight_ms(day: date, zone_name: str) -> int:
    """The instant at which a local day begins (its first, where the clock shows midnight twice)."""
    local = datetime(day.year, day.month, day.day, tzinfo=zone(zone_name))
    return (local.astimezone(UTC) - _EPOCH) // _ONE_MS


def month_bounds_ms(month: Month, zone_name: str) -> tuple[int, int]:
    """`[local midnight of the 1st, local midnight of the next 1st)`."""
    return midnight_ms(month.first_day, zone_name), midnight_ms(month.next().first_day, zone_name)


def local_date(at_ms: int, zone_name: str) -> date:
    """The local day that holds an instant."""
    day = (_EPOCH + at_ms * _ONE_MS).astimezone(zone(zone_name)).date()
    # Where clocks go back over midnight, the repeated hour still belongs to the day that had begun.
    following = day + timedelta(days=1)
    return following if at_ms >= midnight_ms(following, zone_name) else day


def day_bounds_ms(at_ms: int, zone_name: str) -> tuple[int, int]:
    """The local day that holds an instant, as instants."""
    day = local_date(at_ms, zone_name)
    return midnight_ms(day, zone_name), midnight_ms(day + timedelta(days=1), zone_name)


def month_of(at_ms: int, zone_name: str) -> Month:
    """The month that holds an instant."""
    day = local_date(at_ms, zone_name)
    return Month(day.year, day.month)


def midnights_ms(from_ms: int, to_ms: int, zone_name: str) -> list[int]:
    """The local midnights in `[from_ms, to_ms)`."""
    day = local_date(from_ms, zone_name)
    found: list[int] = []
    while (at_ms := midnight_ms(day, zone_name)) < to_ms:
        if at_ms >= from_ms and at_ms not in found[-1:]:
            found.append(at_ms)
        day += timedelta(days=1)
    return found


def at_text(at_ms: int) -> str:
    """An instant as RFC 3339 in UTC, to the millisecond where it has any."""
    when = _EPOCH + at_ms * _ONE_MS
    text = when.isoformat(timespec="milliseconds" if at_ms % 1000 else "seconds")
    return text.replace("+00:00", "Z")


def local_text(at_ms: int, zone_name: str) -> str:
    """An instant on a zone's clock, to the minute, with its offset."""
    return (_EPOCH + at_ms * _ONE_MS).astimezone(zone(zone_name)).strftime("%Y-%m-%d %H:%M %Z")


def parse_instant(text: str) -> int:
    """Read an RFC 3339 instant as Unix milliseconds.

    Raises:
        CalendarError: It is none, has no offset, or lies outside the years that may be asked for.
    """
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        raise CalendarError(f'"{text}" is no instant; write it with its offset, like 2026-10-01T00:00:00Z')
    if not FIRST_YEAR <= when.year <= LAST_YEAR:
        raise CalendarError(f'"{text}" lies outside the years {FIRST_YEAR} to {LAST_YEAR}; name one in them')
    return (when - _EPOCH) // _ONE_MS
