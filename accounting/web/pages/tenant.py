"""One tenant's month: its projects and models, its days, its slices, and what they used of what they held.

Invariant: everything on the page is the tenant's statement, so its total is the statement's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.api.dependencies import InService, Reader
from accounting.budgets.standing import Standing, standings
from accounting.ledger.tenancy import is_at_or_below
from accounting.periods.statement import Statement, state_statement
from accounting.reports.statement_groups import StatementGroup, group_lines
from accounting.reports.statement_slices import StatementSlice, slices_of
from accounting.web.charts import Chart
from accounting.web.links import link
from accounting.web.pages.asked import AccountName, TenantName
from accounting.web.pages.month_chart import month_chart
from accounting.web.pages.months import AskedMonth, Months, months_of
from accounting.web.rendering import render

router = APIRouter()

SLICES_AT_MOST = 100


@dataclass(frozen=True, slots=True)
class TenantMonth:
    """What the page shows."""

    statement: Statement
    groups: Sequence[StatementGroup]
    """The costliest first."""
    slices: Sequence[StatementSlice]
    slices_left_out: int
    budgets: Sequence[Standing]
    chart: Chart | None
    above: Sequence[str]
    """The paths above it that the viewer may see, from the top."""

    @property
    def measured_ppm_ms(self) -> int:
        """What was charged by lines beside which use was measured."""
        return sum(line.charged_ppm_ms for line in self.statement.lines if line.use is not None)


def tenant_month(
    session: Session, viewer: Viewer, months: Months, tenant: str, account: str | None
) -> TenantMonth:
    """Read a tenant's month.

    Raises:
        NotFoundError: No such tenant, or none that the viewer may see.
    """
    statement = state_statement(session, viewer, months.chosen, tenant, account_code=account)
    path = statement.tenant
    groups = sorted(group_lines(statement), key=lambda one: (-(one.amount or 0), -one.charged_ppm_ms))
    slices = slices_of(statement)
    steps = path.split("/")
    above = ["/".join(steps[:length]) for length in range(1, len(steps))]
    top = viewer.tenant_path
    return TenantMonth(
        statement=statement,
        groups=groups,
        slices=slices[:SLICES_AT_MOST],
        slices_left_out=len(slices[SLICES_AT_MOST:]),
        budgets=[
            one for one in standings(session, viewer, months.chosen) if is_at_or_below(path, one.tenant)
        ],
        chart=month_chart(statement, lambda day: link("day", day=day, tenant=path, account=account)),
        above=[one for one in above if top is None or is_at_or_below(one, top)],
    )


@router.get("/tenant")
def tenant_page(
    *,
    request: Request,
    service: InService,
    viewer: Reader,
    tenant: TenantName,
    account: AccountName = None,
    period: AskedMonth = None,
) -> Response:
    """A tenant's month."""
    with service.database.reading() as session:
        months = months_of(session, viewer, period, now_ms=service.clock())
        shown = tenant_month(session, viewer, months, tenant, account)
        return render(
            request, "tenant.html", viewer=viewer, months=months, shown=shown, account=account or ""
        )
