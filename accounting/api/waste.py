"""`GET /api/v1/waste`: what is held and not used, with a request that would have done."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from accounting.api.answering import Wanted
from accounting.api.dependencies import InService, Reader
from accounting.api.problems import Problem
from accounting.api.reports import AskedFilters
from accounting.api.windows import AskedPage, Window
from accounting.reports.waste import report_waste, waste_document

router = APIRouter(prefix="/api/v1", tags=["reports"])


@router.get("/waste")
def waste(
    *,
    service: InService,
    viewer: Reader,
    window: Window,
    page: AskedPage,
    filters: AskedFilters,
    wants: Wanted,
    by: Annotated[Literal["slice", "tenant"], Query(description="one row each")] = "slice",
) -> Response:
    """Card time held before anything ran, reserved cores and memory that stayed idle, and suggestions."""
    if filters.sku is not None:
        raise Problem(422, "waste has no SKU; ask costs for it")
    with service.database.reading() as session:
        report = report_waste(session, viewer, window, filters)
    return wants.answer(waste_document(report, page, by_tenant=by == "tenant"))
