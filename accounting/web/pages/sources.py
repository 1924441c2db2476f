"""Who reports, how well, and where presence has gaps: what `quality` says, as a page."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from accounting.api.dependencies import InService, Operator
from accounting.reports.quality import MAX_DAYS, quality_document
from accounting.web.rendering import render

router = APIRouter()

DAYS = (1, 7, 30, 90)


@router.get("/sources")
def sources_page(
    request: Request,
    service: InService,
    viewer: Operator,
    days: Annotated[int, Query(ge=1, le=MAX_DAYS)] = 7,
) -> Response:
    """Exporters with their clocks, coverage, gaps, and what was refused."""
    with service.database.reading() as session:
        document = quality_document(session, now_ms=service.clock(), days=days)
    choices = sorted({*DAYS, days})
    return render(request, "sources.html", viewer=viewer, shown=document, days=days, choices=choices)
