"""Months and days between local midnights (`reference/ledger.md §6`)."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.ledger.calendar import (
    CalendarError,
    Month,
    at_text,
    day_bounds_ms,
    local_date,
    midnight_ms,
    midnights_ms,
    month_bounds_ms,
    month_of,
    parse_instant,
    parse_month,
)

HOUR = 3_600_000
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "America/Havana",
    "America/Santiago",
    "Africa/Cairo",
    "Pacific/Apia",
    "Asia/Beirut",
]


def utc_ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    return round(datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()) * 1000


@pytest.mark.parametrize(
    ("month", "zone", "half_hours"),
    [
        ("2026-10", "Europe/Berlin", 2 * 745),
        ("2026-03", "Europe/Berlin", 2 * 743),
        ("2026-11", "America/New_York", 2 * 721),
        ("2026-04", "Australia/Lord_Howe", 2 * 720 + 1),
        ("2028-02", "UTC", 2 * 29 * 24),
    ],
)
def test_months_have_the_hours_that_their_clocks_show(month: str, zone: str, half_hours: int) -> None:
    start, end = month_bounds_ms(parse_month(month), zone)
    assert (end - start) * 2 == half_hours * HOUR


def test_october_in_berlin_begins_and_ends_at_these_instants() -> None:
    assert month_bounds_ms(Month(2026, 10), "Europe/Berlin") == (
        utc_ms(2026, 9, 30, 22),
        utc_ms(2026, 10, 31, 23),
    )


def test_month_in_kathmandu_begins_within_an_hour() -> None:
    assert month_bounds_ms(Month(2026, 10), "Asia/Kathmandu")[0] == utc_ms(2026, 9, 30, 18, 15)


def test_day_of_the_clock_change_has_25_hours() -> None:
    start, end = day_bounds_ms(utc_ms(2026, 10, 25, 12), "Europe/Berlin")
    assert end - start == 25 * HOUR


def test_midnight_that_the_clock_skips_is_the_instant_of_the_change() -> None:
    # Chile goes from 00:00 to 01:00 on 6 September 2026, which is 04:00 UTC.
    assert midnight_ms(date(2026, 9, 6), "America/Santiago") == utc_ms(2026, 9, 6, 4)


@pytest.mark.parametrize("zone", ZONES)
def test_days_and_months_tile(zone: str) -> None:
    start, end = utc_ms(2024, 1, 1), utc_ms(2027, 1, 1)
    starts = midnights_ms(start, end, zone)
    assert starts == sorted(set(starts))
    for before, after in itertools.pairwise(starts):
        assert day_bounds_ms(before, zone) == (before, after)
        assert day_bounds_ms(after - 1, zone) == (before, after)
    month = Month(2024, 1)
    for _ in range(40):
        assert month_bounds_ms(month, zone)[1] == month_bounds_ms(month.next(), zone)[0]
        month = month.next()


@given(st.integers(utc_ms(2020, 1, 1), utc_ms(2030, 1, 1)), st.sampled_from(ZONES))
def test_an_instant_lies_in_its_day_and_month(at_ms: int, zone: str) -> None:
    start, end = day_bounds_ms(at_ms, zone)
    assert start <= at_ms < end
    month_start, month_end = month_bounds_ms(month_of(at_ms, zone), zone)
    assert month_start <= start < end <= month_end
    assert midnight_ms(local_date(at_ms, zone), zone) == start


@pytest.mark.parametrize("text", [
        "2026-13", "2026", "26-10", "2026-1", "0000-01", "0001-01", "1970-12", "9999-01", "9999-12",
        "2026-10-01", "٢٠٢٦-10", "２０２６-10", "2026-10\n", "",
    ])  # fmt: skip
def test_no_month_is_refused_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(CalendarError, match="like 2026-10"):
        parse_month(text)


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12", "UTC"])
def test_first_and_last_month_that_may_be_asked_for_can_be_reckoned_with(zone: str) -> None:
    for text in ("1971-01", "9998-12"):
        start, end = month_bounds_ms(parse_month(text), zone)
        assert (end - start) == 31 * 24 * HOUR
        assert start - 24 * HOUR > 0
        assert midnights_ms(start, end, zone)[0] == start


@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00:00+23:59",
        "1970-12-31T23:59:59Z",
        "9999-01-01T00:00:00Z",
        "9999-12-31T23:59:59-23:59",
    ],
)
def test_instants_that_no_window_can_hold_are_refused(text: str) -> None:
    with pytest.raises(CalendarError, match="1971 to 9998"):
        parse_instant(text)


def test_unknown_zone_is_named() -> None:
    with pytest.raises(CalendarError, match="Mars/Olympus"):
        month_bounds_ms(Month(2026, 10), "Mars/Olympus")


def test_instants_are_read_and_written_with_their_offset() -> None:
    assert parse_instant("2026-10-01T00:00:00+02:00") == utc_ms(2026, 9, 30, 22)
    assert parse_instant("2026-10-01T00:00:00Z") == utc_ms(2026, 10, 1)
    assert at_text(utc_ms(2026, 10, 1)) == "2026-10-01T00:00:00Z"
    assert at_text(utc_ms(2026, 10, 1) + 7) == "2026-10-01T00:00:00.007Z"
    with pytest.raises(CalendarError, match="with its offset"):
        parse_instant("2026-10-01T00:00:00")
