"""`GET /api/v1/prices`, `policies`, `periods`, `verify/{period}`: what the books rest on."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from accounting.api.answering import Wanted
from accounting.api.dependencies import InService, Operator, Reader
from accounting.api.reports import answer
from accounting.api.windows import AskedPage, Period
from accounting.periods.months import find_account
from accounting.periods.preflight import preflight
from accounting.periods.verify import verify_period
from accounting.reports.books import (
    periods_document,
    policies_document,
    prices_document,
    verified_document,
)
from accounting.reports.seals import audit_document, preflight_document

MAX_SEQ = 2**63 - 1

router = APIRouter(prefix="/api/v1", tags=["books"])


@router.get("/prices")
def prices(service: InService, viewer: Reader, page: AskedPage, wants: Wanted) -> Response:
    """Prices; superseded versions, and prices that touched no line of the asker's, are for operators."""
    with service.database.reading() as session:
        return wants.answer(prices_document(session, viewer, page))


@router.get("/policies")
def policies(
    service: InService,
    viewer: Reader,  # noqa: ARG001 - asking is what keeps strangers out
    page: AskedPage,
    wants: Wanted,
) -> Response:
    """How shares, idle capacity, energy and unallocated use are treated, and were."""
    with service.database.reading() as session:
        return wants.answer(policies_document(session, page))


@router.get("/periods")
def periods(service: InService, viewer: Reader, page: AskedPage, wants: Wanted) -> Response:
    """The periods of the accounts that the asker's tenants are billed in."""
    with service.database.reading() as session:
        return wants.answer(periods_document(session, viewer, page))


@router.get("/periods/{period}/preflight")
def period_preflight(
    service: InService,
    viewer: Operator,  # noqa: ARG001 - asking is what keeps tenants out
    period: Period,
    account: Annotated[str, Query(description="whose month")],
) -> Response:
    """Whether a month could be closed now, and everything that keeps it open."""
    with service.database.reading() as session:
        found = preflight(session, find_account(session, account), period, now_ms=service.clock())
    return answer(preflight_document(found))


@router.get("/audit")
def audit(
    service: InService,
    viewer: Operator,  # noqa: ARG001 - asking is what keeps tenants out
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    before: Annotated[int | None, Query(ge=0, le=MAX_SEQ, description="`seq` of the last row seen")] = None,
) -> Response:
    """Who changed what, newest first."""
    with service.database.reading() as session:
        return answer(audit_document(session, limit=limit, before_seq=before))


@router.get("/verify/{period}")
def verify(
    service: InService,
    viewer: Operator,  # noqa: ARG001 - asking is what keeps tenants out
    period: Period,
) -> Response:
    """Check a month of every account; `holds` says whether anything failed."""
    with service.database.reading() as session:
        return answer(verified_document(verify_period(session, period)))
