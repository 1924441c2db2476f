"""The month at a glance: who spent what, how much was idle, what the budgets say.

Invariant: the rows are those of `costs?group_by=tenant,account`, the totals those beneath them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.api.dependencies import InService, Reader
from accounting.budgets.standing import Outlook, Standing, outlooks, standings
from accounting.reports.budgets import outlook_totals
from accounting.reports.cost import CostReport, CostRow, report_cost
from accounting.reports.documents import Document
from accounting.reports.spans import month_span
from accounting.web.charts import Chart
from accounting.web.links import link
from accounting.web.pages.day_bars import day_bars
from accounting.web.pages.months import AskedMonth, Months, months_of
from accounting.web.rendering import render

router = APIRouter()

ROWS_AT_MOST = 200
"""More tenants are in the CSV file."""


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One tenant and currency."""

    cost: CostRow
    part: int
    """Of the largest amount in that currency, in per cent."""
    forecast: Decimal | None

    @property
    def tenant(self) -> str:
        """Its path."""
        return self.cost.keys[0]

    @property
    def account(self) -> str:
        """Whose month its lines are in."""
        return self.cost.keys[1]


@dataclass(frozen=True, slots=True)
class Overview:
    """What the page shows."""

    report: CostReport
    rows: Sequence[TenantRow]
    left_out: int
    budgets: Sequence[Standing]
    forecasts: Sequence[Document]
    """By currency; empty: nothing in the month has a currency."""
    chart: Chart | None

    @property
    def idle_ppm_ms(self) -> int:
        """Of all currencies."""
        return sum(row.sums.idle_ppm_ms for row in self.report.totals)

    @property
    def charged_ppm_ms(self) -> int:
        """Of all currencies."""
        return sum(row.sums.charged_ppm_ms for row in self.report.totals)

    @property
    def discount_ppm_ms(self) -> int:
        """Of all currencies."""
        return sum(row.sums.discount_ppm_ms for row in self.report.totals)


def overview_of(session: Session, viewer: Viewer, months: Months) -> Overview:
    """Read the month of everything that a viewer may see."""
    span = month_span(months.chosen)
    report = report_cost(session, viewer, span, ("tenant", "account"))
    by_day = report_cost(session, viewer, span, ("day",))
    found = outlooks(session, viewer, months.chosen)
    rows = sorted(_rows(report, found), key=_costliest_first)
    return Overview(
        report=report,
        rows=rows[:ROWS_AT_MOST],
        left_out=len(rows[ROWS_AT_MOST:]),
        budgets=standings(session, viewer, months.chosen),
        forecasts=outlook_totals(found),
        chart=day_bars(by_day, months.chosen, lambda day: link("day", day=day)),
    )


def _costliest_first(row: TenantRow) -> tuple[object, ...]:
    cost = row.cost
    quantity = cost.sums.charged_ppm_ms + cost.sums.idle_ppm_ms
    return cost.currency is None, cost.currency or "", -(cost.amount or Decimal(0)), -quantity, row.tenant


def _rows(report: CostReport, found: Sequence[Outlook]) -> list[TenantRow]:
    ends = {(one.tenant, one.currency): one.forecast for one in found}
    most: dict[str | None, Decimal] = {}
    for row in report.rows:
        most[row.currency] = max(most.get(row.currency, Decimal(0)), _size(row))
    return [
        TenantRow(
            cost=row,
            part=max(0, int(100 * _size(row) / most[row.currency])) if most[row.currency] else 0,
            forecast=ends.get((row.keys[0], row.currency or "")),
        )
        for row in report.rows
    ]


def _size(row: CostRow) -> Decimal:
    """By what rows of one currency are compared: money, or card time where there is none."""
    if row.currency is None:
        return Decimal(row.sums.charged_ppm_ms + row.sums.idle_ppm_ms)
    return row.amount or Decimal(0)


@router.get("/")
def overview(request: Request, service: InService, viewer: Reader, period: AskedMonth = None) -> Response:
    """The month of everything that the asker may see."""
    with service.database.reading() as session:
        months = months_of(session, viewer, period, now_ms=service.clock())
        shown = overview_of(session, viewer, months)
        return render(request, "overview.html", viewer=viewer, months=months, shown=shown)
