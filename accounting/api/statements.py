"""`GET /api/v1/statements/{period}`: a tenant's month."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from accounting.api.dependencies import InService, Reader
from accounting.api.windows import Period
from accounting.periods.statement import state_statement
from accounting.reports.rendering import CONTENT_TYPES, render_statement

router = APIRouter(prefix="/api/v1", tags=["statements"])


@router.get("/statements/{period}")
def statement(
    *,
    service: InService,
    viewer: Reader,
    period: Period,
    tenant: Annotated[str, Query(description="a tenant's path, or its code where only one has it")],
    account: Annotated[str | None, Query(description="only for a tenant with lines in several")] = None,
    format: Annotated[Literal["json", "csv", "html"], Query()] = "json",  # noqa: A002 - a parameter's name
) -> Response:
    """The lines, rounding line and total of a tenant and of all below it in a month, as `2026-10`."""
    with service.database.reading() as session:
        found = state_statement(session, viewer, period, tenant, account_code=account)
    return Response(render_statement(found, format), media_type=CONTENT_TYPES[format])
