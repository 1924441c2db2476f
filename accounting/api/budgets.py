"""`GET /api/v1/budgets`, `…/budgets/versions`, `forecast`; `POST budgets`: what months may cost, and will."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field
from sqlalchemy.orm import Session

from accounting.api.bodies import Body, Reason, TenantName
from accounting.api.dependencies import InService, Reader
from accounting.api.idempotency import ObeyedOnce
from accounting.api.reports import answer
from accounting.api.windows import month_of_text
from accounting.budgets.book import DEFAULT_THRESHOLDS, Wish, list_budgets, parse_budget, set_budget
from accounting.budgets.standing import OpenAt, Which, outlooks, standings
from accounting.prices.versioning import Recording
from accounting.reports.budgets import (
    budget_document,
    outlook_document,
    outlook_totals,
    standing_document,
)
from accounting.reports.documents import Document
from accounting.tenants.tree import find_tenant

router = APIRouter(prefix="/api/v1", tags=["budgets"])

MonthText = Annotated[str, Field(max_length=7, examples=["2026-10"])]


class NewBudget(Body):
    """What a tenant, and all below it, may cost in each month."""

    tenant: TenantName
    amount: Annotated[str, Field(max_length=60, examples=["5000"])]
    """For each month, in the currency of the tenant's account; 0 takes the budget away."""
    first: MonthText
    """The first month that it holds for."""
    last: MonthText | None = None
    """The last one; without it: until further notice."""
    thresholds: Annotated[list[int], Field(min_length=1, max_length=20)] = Field(
        default_factory=lambda: list(DEFAULT_THRESHOLDS)
    )
    """Whole per cents of the amount; each is told once a month."""
    reason: Reason | None = None
    """Needed to supersede a budget over the same months."""


def _which(period: str | None, now_ms: int) -> Which:
    return OpenAt(now_ms) if period is None else month_of_text(period)


_Period = Annotated[str | None, Query(max_length=7, description="a month, as 2026-10; default: the open one")]


@router.get("/budgets")
def budgets(service: InService, viewer: Reader, period: _Period = None) -> Response:
    """How the budgets of a month stand: spent, left, forecast, thresholds."""
    with service.database.reading() as session:
        rows = [
            standing_document(standing)
            for standing in standings(session, viewer, _which(period, service.clock()))
        ]
    return answer({"rows": rows, "totals": {"budgets": len(rows)}})


@router.get("/budgets/versions")
def budget_versions(service: InService, viewer: Reader) -> Response:
    """Every version of every budget, superseded ones too."""
    with service.database.reading() as session:
        rows = [budget_document(budget, path) for budget, path in list_budgets(session, viewer)]
    return answer({"rows": rows, "totals": {"versions": len(rows)}})


@router.get("/forecast")
def forecast(service: InService, viewer: Reader, period: _Period = None) -> Response:
    """What each tenant's month costs so far, and will have cost at the rate of its last full days."""
    with service.database.reading() as session:
        found = outlooks(session, viewer, _which(period, service.clock()))
    return answer({"rows": [outlook_document(each) for each in found], "totals": outlook_totals(found)})


@router.post("/budgets", status_code=201)
def post_budget(service: InService, once: ObeyedOnce, budget: NewBudget) -> Response:
    """Record a budget; over the same months it supersedes the one there, with a reason."""

    def record(session: Session) -> Document:
        wish = Wish(
            amount=parse_budget(budget.amount),
            first=month_of_text(budget.first),
            last=None if budget.last is None else month_of_text(budget.last),
            percents=budget.thresholds,
        )
        tenant = find_tenant(session, once.by, budget.tenant)
        recording = Recording(once.by, once.now_ms, budget.reason)
        return budget_document(set_budget(session, tenant, wish, recording), tenant.path)

    return once.obey(service.database, record, status=201)
