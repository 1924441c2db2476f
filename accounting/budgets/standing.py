"""How budgets stand: spent, left, forecast, and the thresholds that were crossed, each told once.

Invariant: what is spent is the total that the tenant's statement would show now; a threshold of a budget's
version is crossed at most once in a period, whoever looks and however often.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.budgets.book import budgets_at, thresholds_of
from accounting.budgets.forecast import Spending, forecast
from accounting.budgets.spending import at_or_below, read_spending
from accounting.ledger.calendar import Month, midnights_ms, month_bounds_ms, month_of
from accounting.ledger.rounding import EXACT, to_currency
from accounting.periods.months import CLOSED, find_period
from accounting.periods.rating_state import rated_as_of_ms
from accounting.store.models import BillingAccount, BillingPeriod, Budget, BudgetCrossing, Tenant


@dataclass(frozen=True, slots=True)
class OpenAt:
    """The month that holds an instant (Unix milliseconds): in each account by its own midnights."""

    at_ms: int

    def month(self, time_zone: str) -> Month:
        """The month of an account in this zone."""
        return month_of(self.at_ms, time_zone)


Which: TypeAlias = Month | OpenAt
"""Which month is asked about; of one account it is always one."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """A threshold in whole per cents, and when it was noticed; None: not crossed."""

    percent: int
    crossed_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Standing:
    """One budget in one period; amounts rounded as on the statement."""

    budget_id: int
    tenant_id: int
    period_id: int
    tenant: str
    account: str
    period: str
    currency: str
    amount: Decimal
    spent: Decimal
    forecast: Decimal
    is_final: bool
    """The period is closed: nothing will change."""
    crossings: Sequence[Crossing]

    @property
    def left(self) -> Decimal:
        """Below 0 when it is overspent."""
        return EXACT.subtract(self.amount, self.spent)

    @property
    def used_ratio(self) -> Decimal:
        """Spent of the budget."""
        return EXACT.divide(self.spent, self.amount).quantize(Decimal("0.000001"))

    def fresh(self) -> list[int]:
        """Thresholds that the spending has reached and that nobody has noticed yet."""
        reached = (each for each in self.crossings if self.spent * 100 >= self.amount * each.percent)
        return [each.percent for each in reached if each.crossed_at_ms is None]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a tenant's month costs so far and will have cost, rounded."""

    tenant: str
    account: str
    period: str
    currency: str
    spent: Decimal
    forecast: Decimal


def standings(session: Session, viewer: Viewer, which: Which) -> list[Standing]:
    """Every budget of a month that the viewer may see, by account and path."""
    found: list[Standing] = []
    for account in _billed_accounts(session):
        month = _month_of(account, which)
        starts_at_ms, _ = month_bounds_ms(month, account.time_zone)
        budgets = [
            (budget, tenant)
            for budget, tenant in budgets_at(session, viewer, starts_at_ms)
            if tenant.account == account.code
        ]
        period = find_period(session, account, month)
        if not budgets or period is None:
            continue
        spendings = read_spending(session, viewer, period)
        crossed = _crossings(session, period)
        for budget, tenant in budgets:
            spending = at_or_below(spendings, tenant.path)
            found.append(_standing(session, account, period, budget, tenant, spending, crossed))
    return found


def outlooks(session: Session, viewer: Viewer, which: Which) -> list[Outlook]:
    """What every tenant with lines in a month costs and will cost, by account and path."""
    found = []
    for account in _billed_accounts(session):
        month = _month_of(account, which)
        period = find_period(session, account, month)
        if period is None:
            continue
        spendings = read_spending(session, viewer, period)
        for path in sorted(spendings):
            spent, ends = _amounts(session, account, period, spendings[path])
            outlook = Outlook(path, account.code, str(month), str(account.currency), spent, ends)
            found.append(outlook)
    return found


def note_crossings(session: Session, found: Iterable[Standing], now_ms: int) -> list[tuple[Standing, int]]:
    """Write down thresholds that were crossed; returns those that nobody had written down before.

    Args:
        session: A writing transaction that has the books for itself.
        found: As they stood at the last look.
        now_ms: The clock.
    """
    told = []
    for standing in found:
        for percent in standing.fresh():
            if session.get(BudgetCrossing, (standing.budget_id, standing.period_id, percent)) is None:
                told.append((standing, percent))
                session.add(
                    BudgetCrossing(
                        budget_id=standing.budget_id,
                        period_id=standing.period_id,
                        percent=percent,
                        tenant_id=standing.tenant_id,
                        spent=standing.spent,
                        crossed_at_ms=now_ms,
                    )
                )
    session.flush()
    return told


def _month_of(account: BillingAccount, which: Which) -> Month:
    return which.month(account.time_zone) if isinstance(which, OpenAt) else which


def _billed_accounts(session: Session) -> Sequence[BillingAccount]:
    return session.scalars(
        select(BillingAccount).where(BillingAccount.currency.is_not(None)).order_by(BillingAccount.code)
    ).all()


def _crossings(session: Session, period: BillingPeriod) -> dict[tuple[int, int], int]:
    rows = session.execute(
        select(BudgetCrossing.budget_id, BudgetCrossing.percent, BudgetCrossing.crossed_at_ms).where(
            BudgetCrossing.period_id == period.id
        )
    )
    return {(budget_id, percent): at_ms for budget_id, percent, at_ms in rows}


def _amounts(
    session: Session, account: BillingAccount, period: BillingPeriod, spending: Spending
) -> tuple[Decimal, Decimal]:
    """Spent and forecast, rounded."""
    currency = str(account.currency)
    as_of_ms = period.ends_at_ms if period.state == CLOSED else rated_as_of_ms(session) or 0
    days = midnights_ms(period.starts_at_ms, period.ends_at_ms, account.time_zone)
    ends = forecast(spending, [*days, period.ends_at_ms], as_of_ms)
    return to_currency(spending.total, currency), to_currency(ends, currency)


def _standing(  # noqa: PLR0917 - what makes a standing
    session: Session,
    account: BillingAccount,
    period: BillingPeriod,
    budget: Budget,
    tenant: Tenant,
    spending: Spending,
    crossed: dict[tuple[int, int], int],
) -> Standing:
    spent, ends = _amounts(session, account, period, spending)
    return Standing(
        budget_id=budget.id,
        tenant_id=tenant.id,
        period_id=period.id,
        tenant=tenant.path,
        account=account.code,
        period=str(month_of(period.starts_at_ms, account.time_zone)),
        currency=budget.currency,
        amount=budget.amount,
        spent=spent,
        forecast=ends,
        is_final=period.state == CLOSED,
        crossings=[Crossing(percent, crossed.get((budget.id, percent))) for percent in thresholds_of(budget)],
    )
