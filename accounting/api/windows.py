"""What requests share: a half-open window `from`, `to` (RFC 3339 with an offset), a month, a page."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from accounting.api.dependencies import InService
from accounting.api.problems import Problem
from accounting.ledger.calendar import (
    CalendarError,
    Month,
    month_bounds_ms,
    month_of,
    parse_instant,
    parse_month,
)
from accounting.reports.paging import MAX_LIMIT, Asked

MAX_WINDOW_MS = 400 * 86_400_000


def _window(
    *,
    service: InService,
    from_: Annotated[str | None, Query(alias="from", description="default: the month's begin, UTC")] = None,
    to: Annotated[str | None, Query(description="default: now")] = None,
) -> tuple[int, int]:
    now_ms = service.clock()
    try:
        ends = now_ms if to is None else parse_instant(to)
        begins = month_bounds_ms(month_of(ends, "UTC"), "UTC")[0] if from_ is None else parse_instant(from_)
    except CalendarError as error:
        raise Problem(422, str(error)) from None
    if not 0 <= begins <= ends <= begins + MAX_WINDOW_MS:
        raise Problem(422, "from and to are no window: from lies before to, and not more than 400 days")
    return begins, ends


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


Window = Annotated[tuple[int, int], Depends(_window)]
Period = Annotated[Month, Depends(_period)]
AskedPage = Annotated[Asked, Depends(_page)]
