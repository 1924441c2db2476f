"""What requests share: a window by its name, a month or half-open instants (RFC 3339), and a page."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from accounting.api.dependencies import InService
from accounting.api.problems import Problem
from accounting.ledger.calendar import (
    CalendarError,
    Month,
    at_text,
    month_bounds_ms,
    month_of,
    parse_instant,
    parse_month,
)
from accounting.ledger.intervals import Interval
from accounting.reports.paging import MAX_LIMIT, Asked
from accounting.reports.spans import Span, instants_span, month_span, named_span, require_zone
from contract.units import MS_PER_DAY

MAX_WINDOW_MS = 400 * MS_PER_DAY


_From = Annotated[str | None, Query(alias="from", description="RFC 3339; default: the month's begin")]
_To = Annotated[str | None, Query(description="RFC 3339; default: now")]
_Named = Annotated[
    str | None, Query(alias="window", description="month, last_month, today, yesterday, or as 7d")
]
_Zone = Annotated[str | None, Query(alias="tz", description="whose days and months, as Europe/Berlin")]


def _window(
    *, service: InService, from_: _From = None, to: _To = None, named: _Named = None, tz: _Zone = None
) -> Interval:
    return _asked_span(service.clock(), from_, to, named, require_zone(tz)).interval


def _asked_span(now_ms: int, from_: str | None, to: str | None, named: str | None, tz: str | None) -> Span:
    if named is not None:
        if from_ is not None or to is not None:
            raise Problem(422, "window and from or to are two windows; name one")
        return named_span(named, now_ms, tz)
    zone = tz or "UTC"
    try:
        ends = now_ms if to is None else parse_instant(to)
        begins = month_bounds_ms(month_of(ends, zone), zone)[0] if from_ is None else parse_instant(from_)
    except CalendarError as error:
        raise Problem(422, str(error)) from None
    if not 0 <= begins <= ends <= begins + MAX_WINDOW_MS:
        raise Problem(422, "from and to are no window: from lies before to, and not more than 400 days")
    return instants_span(f"{at_text(begins)} to {at_text(ends)}", (begins, ends))


def _span(
    *,
    service: InService,
    period: Annotated[str | None, Query(description="a month, as 2026-10")] = None,
    from_: _From = None,
    to: _To = None,
    named: _Named = None,
    tz: _Zone = None,
) -> Span:
    zone = require_zone(tz)
    if period is not None:
        if (from_, to, named) != (None, None, None):
            raise Problem(422, "period and window, from or to are two windows; name one")
        return month_span(month_of_text(period), zone)
    if (from_, to, named) == (None, None, None):
        return named_span("month", service.clock(), zone)
    return _asked_span(service.clock(), from_, to, named, zone)


def month_of_text(period: str) -> Month:
    """Read a month, or answer 422."""
    try:
        return parse_month(period)
    except CalendarError as error:
        raise Problem(422, str(error)) from None


def instant_of_text(text: str) -> int:
    """Read an instant, or answer 422."""
    try:
        return parse_instant(text)
    except CalendarError as error:
        raise Problem(422, str(error)) from None


def _period(period: str) -> Month:
    return month_of_text(period)


def _page(
    *,
    limit: Annotated[int | None, Query(ge=1, le=MAX_LIMIT, description="default: every row")] = None,
    cursor: Annotated[str | None, Query(description="`next` of the page before")] = None,
) -> Asked:
    return Asked(limit, cursor)


Window = Annotated[Interval, Depends(_window)]
AskedSpan = Annotated[Span, Depends(_span)]
Period = Annotated[Month, Depends(_period)]
AskedPage = Annotated[Asked, Depends(_page)]
