"""What a tenant's slices held and did not use, and requests that would have done."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from accounting.api.dependencies import InService, Reader
from accounting.reports.grouping import Filters
from accounting.reports.spans import month_span
from accounting.reports.waste import report_waste, waste_by_tenant
from accounting.web.pages.asked import OptionalTenant
from accounting.web.pages.months import AskedMonth, months_of
from accounting.web.rendering import render

router = APIRouter()

ROWS_AT_MOST = 200


@router.get("/waste")
def waste_page(
    *,
    request: Request,
    service: InService,
    viewer: Reader,
    tenant: OptionalTenant = None,
    period: AskedMonth = None,
) -> Response:
    """Held before it ran, reserved cores and memory that stayed idle, by slice."""
    with service.database.reading() as session:
        months = months_of(session, viewer, period, now_ms=service.clock())
        window = month_span(months.chosen, months.zone).interval
        report = report_waste(session, viewer, window, Filters(tenant=tenant or None))
        return render(
            request,
            "waste.html",
            viewer=viewer,
            months=months,
            tenant=tenant or viewer.tenant_path or "",
            report=report,
            rows=report.rows[:ROWS_AT_MOST],
            left_out=len(report.rows[ROWS_AT_MOST:]),
            tenants=waste_by_tenant(report),
        )
