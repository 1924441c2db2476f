"""What tenants have spent in a period, by local day, read from the roll-up of the ledger's lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from decimal import Decimal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer, only_visible
from accounting.budgets.forecast import Spending
from accounting.ledger.rounding import EXACT, exact_sum
from accounting.ledger.tenancy import is_at_or_below
from accounting.store.book_tables import RATED_KINDS
from accounting.store.models import BillingPeriod, RollupDay, Tenant


def read_spending(session: Session, viewer: Viewer, period: BillingPeriod) -> dict[str, Spending]:
    """By path of the tenant that the lines name: what it cost so far; only what the viewer may see."""
    line = RollupDay
    is_rated = line.kind.in_(RATED_KINDS).label("is_rated")
    named = (Tenant.path, line.day_ms, is_rated)
    query = only_visible(
        select(*named).join(Tenant, Tenant.id == line.tenant_id).where(line.period_id == period.id),
        viewer,
    )
    if session.get_bind().dialect.name == "sqlite":
        summed = query.add_columns(line.line_count - line.unrated, line.amount)
    else:
        sums = func.sum(line.line_count - line.unrated), func.sum(line.amount)
        summed = query.add_columns(*sums).group_by(*named)
    by_day: dict[str, dict[int, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    once: dict[str, Decimal] = defaultdict(Decimal)
    for path, day_ms, rated, priced, amount in session.execute(summed.execution_options(yield_per=10_000)):
        if not priced:
            continue
        if rated:
            by_day[path][day_ms] = EXACT.add(by_day[path][day_ms], amount)
        else:
            once[path] = EXACT.add(once[path], amount)
    return {path: Spending(by_day[path], once[path]) for path in {*by_day, *once}}


def at_or_below(spendings: Mapping[str, Spending], root: str) -> Spending:
    """What a node of the tree and all below it cost."""
    days: dict[int, Decimal] = defaultdict(Decimal)
    mine = [spending for path, spending in spendings.items() if is_at_or_below(path, root)]
    for spending in mine:
        for day_ms, amount in spending.by_day.items():
            days[day_ms] = EXACT.add(days[day_ms], amount)
    return Spending(days, exact_sum(spending.once for spending in mine))
