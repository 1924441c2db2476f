"""A statement line by line, with a link from each amount to its explanation; and the list of statements.

Invariant: the lines, the rounding line and the total are those of the statement's files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.api.dependencies import InService, Reader
from accounting.ledger.tenancy import path_step
from accounting.periods.statement import Statement, StatementLine, state_statement
from accounting.reports.documents import Document
from accounting.reports.seals import issued_list_document
from accounting.reports.statement_basis import Basis, basis_of
from accounting.web.pages.asked import AccountName, TenantName
from accounting.web.pages.months import AccountMonth, AskedMonth, account_months, months_of
from accounting.web.rendering import render

router = APIRouter()

LINES_PER_PAGE = 200


@dataclass(frozen=True, slots=True)
class StatementPage:
    """What the page of one statement shows."""

    statement: Statement
    basis: Basis
    lines: Sequence[StatementLine]
    """Of the page."""
    pod: str
    """Only the lines of this pod, as `namespace/pod`; empty: all."""
    page: int
    pages: int
    found: int


def page_of_lines(statement: Statement, pod: str, page: int) -> StatementPage:
    """Cut a page of lines out of a statement."""
    lines = [one for one in statement.lines if not pod or f"{one.namespace}/{one.pod}" == pod]
    pages = max(1, -(-len(lines) // LINES_PER_PAGE))
    chosen = min(page, pages)
    cut = lines[(chosen - 1) * LINES_PER_PAGE : chosen * LINES_PER_PAGE]
    return StatementPage(statement, basis_of(statement), cut, pod, chosen, pages, len(lines))


@router.get("/statement")
def statement_page(
    *,
    request: Request,
    service: InService,
    viewer: Reader,
    tenant: TenantName,
    account: AccountName = None,
    period: AskedMonth = None,
    pod: Annotated[str, Query(max_length=600)] = "",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> Response:
    """A tenant's statement, line by line."""
    with service.database.reading() as session:
        months = months_of(session, viewer, period, now_ms=service.clock())
        statement = state_statement(session, viewer, months.chosen, tenant, account_code=account or None)
        return render(
            request,
            "statement.html",
            viewer=viewer,
            months=months,
            shown=page_of_lines(statement, pod, page),
            account=account or "",
        )


@dataclass(frozen=True, slots=True)
class Statements:
    """What the list shows."""

    months: Sequence[AccountMonth]
    """Newest first."""
    whose: dict[str, str]
    """By account: the tenant whose statement is linked; its own for a reader of a part of the account."""
    issued: Sequence[Document]
    """Numbered documents of the accounts that the viewer sees as a whole."""


def statements_of(session: Session, viewer: Viewer) -> Statements:
    """Every month that a viewer has a statement of."""
    months = account_months(session, viewer)
    issued = issued_list_document(session, viewer)["rows"]
    assert isinstance(issued, list)
    return Statements(
        months=sorted(months, key=lambda one: (-one.starts_at_ms, one.account)),
        whose={one.account: viewer.tenant_path or path_step(one.account) for one in months},
        issued=list(reversed(issued)),
    )


@router.get("/statements")
def statements_page(request: Request, service: InService, viewer: Reader) -> Response:
    """The months, open and closed, with the files of each, and the numbered documents."""
    with service.database.reading() as session:
        return render(request, "statements.html", viewer=viewer, shown=statements_of(session, viewer))
