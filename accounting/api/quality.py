"""`GET /api/v1/quality`: how good the facts are."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from accounting.api.dependencies import InService, Operator
from accounting.api.reports import answer
from accounting.reports.quality import MAX_DAYS, quality_document

router = APIRouter(prefix="/api/v1", tags=["books"])


@router.get("/quality")
def quality(
    service: InService,
    viewer: Operator,  # noqa: ARG001 - asking is what keeps tenants out
    days: Annotated[int, Query(ge=1, le=MAX_DAYS, description="how far back coverage and gaps go")] = 7,
) -> Response:
    """Exporters with their clocks, coverage, gaps in presence, and facts in quarantine by reason."""
    with service.database.reading() as session:
        document = quality_document(session, now_ms=service.clock(), days=days)
    return answer(document)
