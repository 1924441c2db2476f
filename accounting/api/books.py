"""`GET /api/v1/tenants`, `prices`, `policies`, `periods`, `verify/{period}`: what the books rest on."""

from __future__ import annotations

from fastapi import APIRouter, Response

from accounting.api.dependencies import InService, Operator, Reader
from accounting.api.reports import answer
from accounting.api.windows import Period
from accounting.periods.verify import verify_period
from accounting.reports.books import (
    periods_document,
    policies_document,
    prices_document,
    tenants_document,
    verified_document,
)

router = APIRouter(prefix="/api/v1", tags=["books"])


@router.get("/tenants")
def tenants(service: InService, viewer: Reader) -> Response:
    """The tenants that the asker may see."""
    with service.database.reading() as session:
        return answer(tenants_document(session, viewer))


@router.get("/prices")
def prices(service: InService, viewer: Reader) -> Response:
    """Prices; superseded versions, and prices that touched no line of the asker's, are for operators."""
    with service.database.reading() as session:
        return answer(prices_document(session, viewer))


@router.get("/policies")
def policies(
    service: InService,
    viewer: Reader,  # noqa: ARG001 - asking is what keeps strangers out
) -> Response:
    """How shares, idle capacity, energy and unallocated use are treated, and were."""
    with service.database.reading() as session:
        return answer(policies_document(session))


@router.get("/periods")
def periods(service: InService, viewer: Reader) -> Response:
    """The periods of the accounts that the asker's tenants are billed in."""
    with service.database.reading() as session:
        return answer(periods_document(session, viewer))


@router.get("/verify/{period}")
def verify(
    service: InService,
    viewer: Operator,  # noqa: ARG001 - asking is what keeps tenants out
    period: Period,
) -> Response:
    """Check a month of every account; `holds` says whether anything failed."""
    with service.database.reading() as session:
        return answer(verified_document(verify_period(session, period)))
