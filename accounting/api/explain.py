"""`GET /api/v1/explain/{line}` and `explain?tenant=…&day=…`: why an amount is what it is."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from accounting.api.answering import Wanted
from accounting.api.dependencies import InService, Reader
from accounting.api.reports import answer
from accounting.api.windows import AskedPage
from accounting.periods.explain import explain_line, lines_of_day
from accounting.reports.explanation import explanation_document, explanations_document

MAX_ID = 2**63 - 1

router = APIRouter(prefix="/api/v1", tags=["explain"])


@router.get("/explain/{line}")
def explain(service: InService, viewer: Reader, line: Annotated[int, Path(ge=1, le=MAX_ID)]) -> Response:
    """One line: its versions, and the card's day swept again, in steps that add up to it."""
    with service.database.reading() as session:
        return answer(explanation_document(explain_line(session, viewer, line)))


@router.get("/explain")
def explain_a_day(
    *,
    service: InService,
    viewer: Reader,
    tenant: Annotated[str, Query(description="a tenant's path, or its code where only one has it")],
    day: Annotated[date, Query(description="a local day of its account, as 2026-10-01")],
    page: AskedPage,
    wants: Wanted,
) -> Response:
    """Every line of a tenant, and of all below it, on a day."""
    with service.database.reading() as session:
        lines = lines_of_day(session, viewer, tenant, day)
        return wants.answer(explanations_document(session, viewer, lines, page))
