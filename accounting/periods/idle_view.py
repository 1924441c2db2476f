"""What a statement says of idle capacity that is, or is not, handed on.

Invariant: while a month is open the parts of tenants stand beside the lines, provisional and in no sum;
once they are posted they are lines, and nothing stands beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.ledger.calendar import Month
from accounting.ledger.policies import VALUES
from accounting.ledger.rounding import exact_sum
from accounting.periods.distribution import DISTRIBUTION, Distribution, distribute_month
from accounting.prices.policies import live_policies
from accounting.store.models import BillingAccount, BillingPeriod, Cluster, LedgerLine
from accounting.store.versions import Known
from accounting.store.walls import EVERYTHING, seeing
from accounting.tenants.rules import clusters_of


@dataclass(frozen=True, slots=True)
class ProvisionalShare:
    """A tenant's part of a pool's idle capacity, as it would be posted if the month closed now."""

    tenant: str
    cluster: str
    model: str
    policy: str
    quantity_ppm_ms: int
    amount: Decimal | None


@dataclass(frozen=True, slots=True)
class IdleView:
    """The idle capacity that an account bears or may be handed in a month."""

    distributions: Sequence[Distribution]
    posted: frozenset[str]
    """Clusters whose shares are lines already."""

    def note(self, line: LedgerLine) -> str | None:
        """Of an idle line: why it stays where it is, although the policy would hand it on."""
        for distribution in self.distributions:
            for pool in distribution.pools:
                same = (pool.cluster, pool.model) == (line.cluster, line.model)
                if same and pool.policy != VALUES["idle"][0] and pool.kept_because is not None:
                    return f"stays at platform/idle: {pool.kept_because}"
        return None

    def provisional(self, path: str | None) -> list[ProvisionalShare]:
        """The parts of a tenant (None: of all) and of all below it, that are no lines yet."""
        of_pool: dict[tuple[str, str, str, str], list[tuple[int, Decimal | None]]] = {}
        for distribution in self.distributions:
            for share in distribution.shares:
                is_asked = path is None or f"{share.tenant}/".startswith(f"{path}/")
                if is_asked and share.cluster not in self.posted:
                    key = (share.tenant, share.cluster, share.model, share.policy.value)
                    of_pool.setdefault(key, []).append((share.idle.quantity_ppm_ms, share.idle.amount))
        found = []
        for key, parts in sorted(of_pool.items()):
            amounts = [amount for _, amount in parts if amount is not None]
            total = exact_sum(amounts) if len(amounts) == len(parts) else None
            found.append(ProvisionalShare(*key, sum(quantity for quantity, _ in parts), total))
        return found


def view_idle(
    session: Session, account: BillingAccount, month: Month, period: BillingPeriod | None
) -> IdleView:
    """What a statement of this account and month needs; nothing where every policy keeps idle capacity."""
    versions = None if period is None else period.versions
    known = None if versions is None else Known.from_text(versions)
    rules = live_policies(session, known).rules
    if period is None or all(rule.kind != "idle" or rule.value == VALUES["idle"][0] for rule in rules):
        return IdleView((), frozenset())
    # What a tenant is handed depends on what all others hold.
    with seeing(session, EVERYTHING):
        return _view(session, account, month, period, known)


def _view(
    session: Session, account: BillingAccount, month: Month, period: BillingPeriod, known: Known | None
) -> IdleView:
    clusters = [session.get_one(Cluster, code) for code in clusters_of(session, account.code)]
    posted = session.scalars(
        select(LedgerLine.cluster)
        .where(LedgerLine.period_id == period.id, LedgerLine.kind == DISTRIBUTION)
        .distinct()
    )
    return IdleView(
        [distribute_month(session, cluster, month, known=known) for cluster in clusters], frozenset(posted)
    )
