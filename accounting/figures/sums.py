"""What the lines of a period add up to, by tenant, SKU and model, rounded as on the statements.

Invariant: over all SKUs of a tenant, the rounding among them, the amounts are the total of the tenant's own
statement; a model's time is the charged card time of that statement. Amounts are added exactly: by the
database where its NUMERIC is exact, else here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from accounting.ledger.rounding import EXACT, exact_sum, to_currency
from accounting.ledger.tenancy import IDLE_PATH
from accounting.store.models import BillingPeriod, RollupDay, Tenant

ROUNDING = "rounding"
"""The SKU of a statement's rounding line."""

_PPM_MS_PER_CARD_SECOND = 1_000_000_000


class Cost(NamedTuple):
    """Whose amounts these are, for what, and in what currency."""

    tenant: str
    sku: str
    currency: str


@dataclass(frozen=True, slots=True)
class PeriodSums:
    """One period of one account.

    Attributes:
        costs: Rounded amounts, idle capacity among them under its own path.
        totals: By currency, the exact sum of all tenants, rounded once: the account's statement.
        card_seconds: Charged card time by (tenant, model).
        unrated_models: Models of lines that want a price.
    """

    costs: Mapping[Cost, Decimal]
    totals: Mapping[str, Decimal]
    card_seconds: Mapping[tuple[str, str], float]
    unrated_models: frozenset[str]

    def of_tenants(self) -> Iterable[tuple[Cost, Decimal]]:
        """What tenants pay."""
        return ((key, amount) for key, amount in self.costs.items() if key.tenant != IDLE_PATH)

    def idle(self) -> Iterable[tuple[Cost, Decimal]]:
        """What nobody held."""
        return ((key, amount) for key, amount in self.costs.items() if key.tenant == IDLE_PATH)


class _Row(NamedTuple):
    tenant: str
    sku: str
    model: str
    currency: str | None
    amount: Decimal | None
    charged_ppm_ms: int
    is_unrated: int


def sum_period(session: Session, period: BillingPeriod) -> PeriodSums:
    """Add up the lines of a period."""
    exact: dict[Cost, list[Decimal]] = defaultdict(list)
    charged: dict[tuple[str, str], int] = defaultdict(int)
    unrated: set[str] = set()
    for row in _rows(session, period):
        if row.currency is not None and row.amount is not None:
            exact[Cost(row.tenant, row.sku, row.currency)].append(row.amount)
        if row.is_unrated:
            unrated.add(row.model)
        if row.charged_ppm_ms:
            charged[row.tenant, row.model] += row.charged_ppm_ms
    sums = {key: exact_sum(amounts) for key, amounts in exact.items()}
    return PeriodSums(
        _rounded(sums),
        _totals(sums),
        {key: ppm_ms / _PPM_MS_PER_CARD_SECOND for key, ppm_ms in charged.items()},
        frozenset(unrated),
    )


def _rows(session: Session, period: BillingPeriod) -> Iterator[_Row]:
    line = RollupDay
    charged = case((line.kind == "usage", line.quantity), else_=0)
    unrated = case((line.currency.is_not(None), line.unrated), else_=0)
    named = (Tenant.path, line.sku, line.model, line.currency)
    query = select(*named).join(Tenant, Tenant.id == line.tenant_id).where(line.period_id == period.id)
    columns = (line.line_count - line.unrated, line.amount, charged, unrated)
    if session.get_bind().dialect.name == "sqlite":
        summed = query.add_columns(*columns)
    else:
        summed = query.add_columns(*map(func.sum, columns)).group_by(*named)
    for row in session.execute(summed.execution_options(yield_per=10_000)):
        tenant, sku, model, currency, rated, amount, ppm_ms, is_unrated = row
        yield _Row(tenant, sku, model, currency, amount if rated else None, int(ppm_ms), int(is_unrated))


def _rounded(exact: Mapping[Cost, Decimal]) -> dict[Cost, Decimal]:
    """Each sum rounded for showing, and per tenant what makes them add up to its total."""
    shown = {key: to_currency(amount, key.currency) for key, amount in exact.items()}
    totals: dict[Cost, list[Decimal]] = defaultdict(list)
    parts: dict[Cost, list[Decimal]] = defaultdict(list)
    for key, amount in exact.items():
        whole = Cost(key.tenant, ROUNDING, key.currency)
        totals[whole].append(amount)
        parts[whole].append(shown[key])
    for whole, amounts in totals.items():
        total = to_currency(exact_sum(amounts), whole.currency)
        difference = EXACT.subtract(total, exact_sum(parts[whole]))
        if difference:
            shown[whole] = difference
    return shown


def _totals(exact: Mapping[Cost, Decimal]) -> dict[str, Decimal]:
    by_currency: dict[str, list[Decimal]] = defaultdict(list)
    for key, amount in exact.items():
        by_currency[key.currency].append(amount)
    return {currency: to_currency(exact_sum(all_of), currency) for currency, all_of in by_currency.items()}
