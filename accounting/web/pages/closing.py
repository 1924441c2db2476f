"""Closing a month: everything that keeps it open, with the way out, and the button once nothing does.

Invariant: the list is the preflight that the close itself makes; the page never closes past it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from accounting.access.audit import MAX_REASON
from accounting.access.viewer import Viewer
from accounting.api.dependencies import InService, Operator, Service
from accounting.errors import AccountingError, InvalidError
from accounting.ledger.calendar import CalendarError, Month, parse_month
from accounting.periods.close import close_period
from accounting.periods.months import CLOSED, find_account
from accounting.periods.preflight import Preflight, preflight
from accounting.web.links import link
from accounting.web.own_forms import Form
from accounting.web.pages.filled import optional_text, status_of, text_of
from accounting.web.pages.months import AccountMonth, account_months
from accounting.web.rendering import render

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Open:
    """The earliest month of an account that is not closed, and what keeps it open."""

    month: AccountMonth
    found: Preflight
    later: int
    """How many months of the account wait behind it."""


def _page(
    request: Request,
    service: Service,
    viewer: Viewer,
    *,
    fields: Mapping[str, str],
    refused: AccountingError | None = None,
    done: str = "",
) -> Response:
    with service.database.reading() as session:
        months = account_months(session, viewer)
        waiting: dict[str, list[AccountMonth]] = {}
        for one in months:
            if one.state != CLOSED:
                waiting.setdefault(one.account, []).append(one)
        opens: Sequence[Open] = [
            Open(
                mine[0],
                preflight(
                    session,
                    find_account(session, code),
                    parse_month(mine[0].period),
                    now_ms=service.clock(),
                ),
                len(mine) - 1,
            )
            for code, mine in waiting.items()
        ]
        return render(
            request,
            "closing.html",
            viewer=viewer,
            status=200 if refused is None else status_of(refused),
            opens=opens,
            has_months=bool(months),
            fields=fields,
            refused="" if refused is None else str(refused),
            done=done,
        )


@router.get("/closing")
def closing_page(request: Request, service: InService, viewer: Operator, done: str = "") -> Response:
    """The earliest open month of each account, with its preflight."""
    said = f"{done} is closed. Its statement has its number." if done and _is_month(done) else ""
    return _page(request, service, viewer, fields={}, done=said)


@router.post("/closing")
def close_a_month(request: Request, service: InService, viewer: Operator, fields: Form) -> Response:
    """Close a month of an account."""
    try:
        account, month = text_of(fields, "account", at_most=63), _month(text_of(fields, "period"))
        found = close_period(
            service.database,
            account,
            month,
            by=viewer,
            now_ms=service.clock(),
            grace_ms=service.settings.grace_ms,
            override_reason=optional_text(fields, "override_reason", at_most=MAX_REASON) or None,
        )
    except AccountingError as error:
        return _page(request, service, viewer, fields=fields, refused=error)
    if isinstance(found, Preflight):
        names = ", ".join(one.check.replace("_", " ") for one in found.blockers)
        refused = InvalidError(
            f"{found.period} of {found.account} stays open: {names}; see the way out below"
        )
        return _page(request, service, viewer, fields=fields, refused=refused)
    return RedirectResponse(link("closing", done=found.period), status_code=303)


def _month(text: str) -> Month:
    try:
        return parse_month(text)
    except CalendarError as error:
        raise InvalidError(str(error)) from None


def _is_month(text: str) -> bool:
    try:
        parse_month(text)
    except CalendarError:
        return False
    return True
