"""`GET /api/v1/statements`, `statements/{period}`: what was issued, and a tenant's month."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from accounting.api.answering import Wanted
from accounting.api.dependencies import InService, Reader
from accounting.api.windows import AskedPage, Period, month_of_text
from accounting.periods.statement import state_statement
from accounting.reports.rendering import CONTENT_TYPES, render_statement
from accounting.reports.seals import issued_list_document
from accounting.reports.statement_pdf import statement_pdf

router = APIRouter(prefix="/api/v1", tags=["statements"])


@router.get("/statements")
def statements(
    *,
    service: InService,
    viewer: Reader,
    page: AskedPage,
    wants: Wanted,
    account: Annotated[str | None, Query(description="only of this account")] = None,
    period: Annotated[str | None, Query(description="only of this month, as 2026-10")] = None,
) -> Response:
    """Numbered statements and credit notes of the accounts whose whole the asker may see."""
    month = None if period is None else month_of_text(period)
    with service.database.reading() as session:
        document = issued_list_document(session, viewer, account=account, month=month, asked=page)
    return wants.answer(document)


@router.get("/statements/{period}")
def statement(
    *,
    service: InService,
    viewer: Reader,
    period: Period,
    page: AskedPage,
    wants: Wanted,
    tenant: Annotated[
        str | None, Query(description="its path, or its code where only one has it; default: the asker's own")
    ] = None,
    account: Annotated[str | None, Query(description="all its tenants, or where one has several")] = None,
    format: Annotated[  # noqa: A002 - a parameter's name
        Literal["json", "csv", "html", "pdf"] | None,
        Query(description="default: csv where Accept asks for it"),
    ] = None,
) -> Response:
    """The lines, rounding line and total of a tenant and of all below it in a month, as `2026-10`."""
    with service.database.reading() as session:
        found = state_statement(session, viewer, period, tenant, account_code=account)
    if format == "pdf":
        return wants.content(statement_pdf(found), "application/pdf", is_final=not found.is_provisional)
    form: Literal["json", "csv", "html"] = format or ("csv" if wants.as_csv else "json")
    body = render_statement(found, form, page).encode()
    return wants.content(body, CONTENT_TYPES[form], is_final=not found.is_provisional)
