"""The options that name a window of time, shared by the commands that report."""

from __future__ import annotations

import argparse
import re
from datetime import date

from accounting.errors import InvalidError
from accounting.ledger.calendar import (
    CalendarError,
    Month,
    at_text,
    midnight_ms,
    month_bounds_ms,
    month_of,
    parse_instant,
    parse_month,
)
from accounting.ledger.intervals import Interval
from accounting.reports.spans import NAMES, Span, instants_span, named_span, require_zone

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def instant_of(text: str) -> int:
    """Read a day (its midnight in UTC) or an instant with its offset.

    Raises:
        InvalidError: It is neither.
    """
    try:
        return parse_instant(f"{text}T00:00:00Z" if _DAY.fullmatch(text) else text)
    except CalendarError as error:
        raise InvalidError(f"{error}, or as a day in UTC, like 2026-10-01") from None


def local_instant_of(text: str, time_zone: str) -> int:
    """Read a day (its midnight in a zone) or an instant with its offset.

    Raises:
        InvalidError: It is neither.
    """
    if not _DAY.fullmatch(text):
        return instant_of(text)
    try:
        return midnight_ms(date.fromisoformat(text), time_zone)
    except (ValueError, OverflowError):
        raise InvalidError(f'"{text}" is no day; write it like 2026-10-01') from None


def month_from(text: str) -> Month:
    """Read a month.

    Raises:
        InvalidError: It is none.
    """
    try:
        return parse_month(text)
    except CalendarError as error:
        raise InvalidError(str(error)) from None


def add_window_options(target: argparse.ArgumentParser) -> None:
    """Add `--from` and `--to`."""
    target.add_argument(
        "--from", dest="from_", metavar="WHEN", help="a day or instant; default: the month's begin, UTC"
    )
    target.add_argument("--to", metavar="WHEN", help="the first instant after the window; default: now")
    target.add_argument("--window", metavar="NAME", help=f"instead: {', '.join(NAMES)}")
    target.add_argument("--tz", metavar="ZONE", help="whose days, as Europe/Berlin; default: UTC")


def window_of(arguments: argparse.Namespace, now_ms: int) -> Interval:
    """The window that was asked for.

    Raises:
        InvalidError: It is none.
    """
    return span_of(arguments, now_ms).interval


def span_of(arguments: argparse.Namespace, now_ms: int) -> Span:
    """The window that was asked for, in whatever zone; without any option this month so far.

    Raises:
        InvalidError: It is none.
    """
    time_zone = require_zone(arguments.tz)
    if arguments.window is not None:
        if arguments.from_ is not None or arguments.to is not None:
            raise InvalidError("--window and --from or --to are two windows; name one")
        return named_span(arguments.window, now_ms, time_zone)
    if arguments.from_ is None and arguments.to is None:
        return named_span("month", now_ms, time_zone)
    named = time_zone or "UTC"
    ends = now_ms if arguments.to is None else local_instant_of(arguments.to, named)
    if arguments.from_ is None:
        begins = month_bounds_ms(month_of(ends, named), named)[0]
    else:
        begins = local_instant_of(arguments.from_, named)
    if begins > ends:
        raise InvalidError("--from lies after --to; swap them")
    return instants_span(f"{at_text(begins)} to {at_text(ends)}", (begins, ends))
