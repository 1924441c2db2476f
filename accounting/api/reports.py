"""`GET /api/v1/usage`, `costs`, `capacity`, `allocations`: reports as JSON."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from accounting.api.dependencies import InService, Operator, Reader
from accounting.api.windows import AskedPage, Period, Window
from accounting.reports.allocations import allocations_document, list_allocations
from accounting.reports.capacity import capacity_document, report_capacity
from accounting.reports.cost import GroupBy, cost_document, report_cost
from accounting.reports.documents import Document, encode
from accounting.reports.stranded import report_stranded, stranded_document
from accounting.reports.usage import report_usage, usage_document

router = APIRouter(prefix="/api/v1", tags=["reports"])


def answer(document: Document) -> Response:
    """A document as the body of an answer."""
    return Response(encode(document), media_type="application/json")


@router.get("/usage")
def usage(service: InService, viewer: Reader, window: Window, page: AskedPage) -> Response:
    """What slices held and used in a window, one row a slice."""
    with service.database.reading() as session:
        return answer(usage_document(report_usage(session, viewer, window), page))


@router.get("/costs")
def costs(
    service: InService,
    viewer: Reader,
    period: Period,
    group_by: Annotated[GroupBy, Query()] = "tenant",
) -> Response:
    """What a month cost so far, added up by one thing."""
    with service.database.reading() as session:
        return answer(cost_document(report_cost(session, viewer, period, group_by)))


@router.get("/capacity")
def capacity(
    *,
    service: InService,
    viewer: Operator,  # noqa: ARG001 - asking is what keeps tenants out
    window: Window,
    page: AskedPage,
    cluster: Annotated[str | None, Query()] = None,
) -> Response:
    """Device hours: charged + idle + down = present."""
    with service.database.reading() as session:
        return answer(capacity_document(report_capacity(session, window, cluster=cluster), page))


@router.get("/capacity/stranded")
def stranded(
    *,
    service: InService,
    viewer: Operator,  # noqa: ARG001 - asking is what keeps tenants out
    window: Window,
    cluster: Annotated[str | None, Query()] = None,
) -> Response:
    """Free memory and cores by device: where another slice would fit although a card is sold."""
    with service.database.reading() as session:
        return answer(stranded_document(report_stranded(session, window, cluster=cluster)))


@router.get("/allocations")
def allocations(service: InService, viewer: Reader, window: Window, page: AskedPage) -> Response:
    """Slices held in a window, merged from both witnesses."""
    with service.database.reading() as session:
        found = list_allocations(
            session, viewer, window, as_of_ms=service.clock(), grace_ms=service.settings.grace_ms
        )
    return answer(allocations_document(found, window, page))
