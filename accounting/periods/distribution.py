"""Idle capacity of a month, handed on by the idle policy: provisional while open, posted at the close.

A pool is what one cluster's cards of one model left idle in the month on days under one policy version;
the version in force when a local day begins holds for the whole day. It reaches only tenants whose account
has the currency and the zone of the platform account. Posting leaves the idle lines as they are and adds
lines of kind `distribution`: a part for each tenant, and the same with a minus at `platform/idle`.

Invariant: no total changes, in card time or money. What comes into a month after its idle capacity was
posted stays at `platform/idle`. Source: `reference/ledger.md §3`, behaviours 20 and 22.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from accounting.ledger.calendar import Month, day_bounds_ms, month_bounds_ms
from accounting.ledger.distribution import KEEP, IdleTime, distribute_idle, weights_of
from accounting.ledger.intervals import Interval
from accounting.ledger.policies import Policies, PolicyRule
from accounting.ledger.pricing import SKU_IDLE
from accounting.ledger.rounding import EXACT, PPM_MS, exact_sum
from accounting.ledger.tenancy import IDLE_PATH
from accounting.periods.months import OPEN, Periods
from accounting.prices.policies import live_policies
from accounting.store.models import BillingAccount, Cluster, LedgerLine, Tenant
from accounting.store.versions import Known
from accounting.tenants.rules import clusters_of, payers

DISTRIBUTION = "distribution"

_Tenant: TypeAlias = tuple[int, str, str]
"""Id, account, path."""


@dataclass(frozen=True, slots=True)
class IdleShare:
    """A tenant's part of one pool's day."""

    tenant: str
    tenant_id: int
    account: str
    cluster: str
    model: str
    day_ms: int
    policy: PolicyRule
    idle: IdleTime


@dataclass(frozen=True, slots=True)
class IdlePool:
    """What becomes of a pool: handed on, or kept at `platform/idle` and why."""

    cluster: str
    model: str
    policy: str
    quantity_ppm_ms: int
    kept_because: str | None


@dataclass(frozen=True, slots=True)
class Distribution:
    """The idle capacity of a cluster's month."""

    pools: Sequence[IdlePool]
    shares: Sequence[IdleShare]


def distribute_month(
    session: Session, cluster: Cluster, month: Month, *, known: Known | None = None
) -> Distribution:
    """Who would bear the idle capacity of a cluster's month, as its lines stand now.

    Args:
        session: A transaction.
        cluster: Whose cards.
        month: In the zone of the platform account.
        known: The policy versions that count; None: those that are live.
    """
    platform = session.get_one(BillingAccount, cluster.platform_account)
    window = month_bounds_ms(month, platform.time_zone)
    policies = live_policies(session, known)
    idle = _idle(session, cluster, window)
    reached = _reached(session, cluster, platform)
    pools: dict[tuple[str, PolicyRule | None], list[int]] = defaultdict(list)
    for model, day_ms in sorted(idle):
        pools[model, policies.at("idle", day_ms)].append(day_ms)
    # Adding up who held what of a large month takes longer than sealing it; most months keep it all.
    is_handed_on = any(rule is not None and rule.value != KEEP for _, rule in pools)
    held = _held(session, cluster, reached, window) if is_handed_on else {}
    return _distributed(
        cluster, pools, idle, _Held(held, policies, platform.currency is not None), _kept(cluster, reached)
    )


def _reached(session: Session, cluster: Cluster, platform: BillingAccount) -> list[str]:
    """The accounts of the cluster's tenants that idle capacity may be handed on to."""
    codes = {cluster.account, *payers(session).of_cluster(cluster.code)} - {platform.code}
    accounts = session.scalars(select(BillingAccount).where(BillingAccount.code.in_(codes)))
    alike = (platform.currency, platform.time_zone)
    return sorted(one.code for one in accounts if (one.currency, one.time_zone) == alike)


def _kept(cluster: Cluster, reached: Sequence[str]) -> str | None:
    """Why nothing may be handed on; None: it may."""
    return None if reached else f"account {cluster.account} has another currency or time zone"


@dataclass(frozen=True, slots=True)
class _Held:
    """Own share × time by model, day and tenant (id, account, path)."""

    by_day: Mapping[tuple[str, int], Mapping[_Tenant, int]]
    policies: Policies
    has_currency: bool

    def in_pool(self, model: str, rule: PolicyRule) -> dict[_Tenant, int]:
        found: dict[_Tenant, int] = defaultdict(int)
        for (of_model, day_ms), tenants in self.by_day.items():
            if of_model == model and self.policies.at("idle", day_ms) == rule:
                for tenant, own in tenants.items():
                    found[tenant] += own
        return found


def _distributed(
    cluster: Cluster,
    pools: Mapping[tuple[str, PolicyRule | None], Sequence[int]],
    idle: Mapping[tuple[str, int], IdleTime],
    held: _Held,
    reach: str | None,
) -> Distribution:
    stated, shares = [], []
    for (model, rule), days in pools.items():
        quantity = sum(idle[model, day_ms].quantity_ppm_ms for day_ms in days)
        policy = KEEP if rule is None else rule.value
        weights: dict[str, int] = {}
        tenants: dict[str, tuple[int, str]] = {}
        kept = reach
        if rule is None or policy == KEEP:
            kept = "the policy keeps it"
        elif held.has_currency and any(idle[model, day_ms].amount is None for day_ms in days):
            kept = "some of it has no price"
        elif reach is None:
            in_pool = held.in_pool(model, rule)
            # One that is in several accounts (`unassigned`) is one receiver in each.
            tenants = {f"{path} {account}": (tenant_id, account) for tenant_id, account, path in in_pool}
            weights = weights_of({f"{key[2]} {key[1]}": own for key, own in in_pool.items()}, policy)
            kept = None if weights else "no tenant held a part of the pool"
        stated.append(IdlePool(cluster.code, model, policy, quantity, kept))
        for day_ms in days:
            for name, part in distribute_idle(idle[model, day_ms], weights).items():
                assert rule is not None
                path = name.rpartition(" ")[0]
                shares.append(IdleShare(path, *tenants[name], cluster.code, model, day_ms, rule, part))
    return Distribution(stated, shares)


def _idle(session: Session, cluster: Cluster, window: Interval) -> dict[tuple[str, int], IdleTime]:
    """Idle time by model and day; a day without a price for all of it has no amount."""
    rows = session.execute(
        select(LedgerLine.model, LedgerLine.day_ms, LedgerLine.quantity, LedgerLine.amount).where(
            LedgerLine.account == cluster.platform_account,
            LedgerLine.cluster == cluster.code,
            LedgerLine.kind == "idle",
            LedgerLine.day_ms >= window[0],
            LedgerLine.day_ms < window[1],
        )
    )
    found: dict[tuple[str, int], IdleTime] = {}
    for model, day_ms, quantity, amount in rows:
        before = found.get((model, day_ms), IdleTime(0, exact_sum(())))
        total = None
        if before.amount is not None and amount is not None:
            total = EXACT.add(before.amount, amount)
        found[model, day_ms] = IdleTime(before.quantity_ppm_ms + quantity, total)
    return found


def _held(
    session: Session, cluster: Cluster, accounts: Sequence[str], window: Interval
) -> dict[tuple[str, int], dict[_Tenant, int]]:
    by_tenant = (
        LedgerLine.model,
        LedgerLine.day_ms,
        LedgerLine.tenant_id,
        LedgerLine.account,
        Tenant.path,
    )
    rows = session.execute(
        select(*by_tenant, func.sum(LedgerLine.own_quantity))
        .join(Tenant, Tenant.id == LedgerLine.tenant_id)
        .where(
            LedgerLine.account.in_(accounts),
            LedgerLine.cluster == cluster.code,
            LedgerLine.kind == "usage",
            LedgerLine.day_ms >= window[0],
            LedgerLine.day_ms < window[1],
        )
        .group_by(*by_tenant)
    )
    found: dict[tuple[str, int], dict[_Tenant, int]] = defaultdict(dict)
    for model, day_ms, tenant_id, account, path, own in rows:
        found[model, day_ms][tenant_id, account, path] = int(own)
    return found


def post_distribution(session: Session, account_code: str, month: Month) -> int:
    """Post the idle shares of every cluster that an account pays for or bears; once, while still open.

    To be called when a period is about to close, in the transaction that freezes it: after the last
    rating, before its state changes. A cluster of whose accounts one has closed the month already, or whose
    shares are posted, is left as it is.

    Args:
        session: A writing transaction.
        account_code: Whose period closes.
        month: The period.

    Returns:
        How many lines were added, over all accounts.
    """
    clusters = clusters_of(session, account_code)
    return sum(_post(session, session.get_one(Cluster, code), month) for code in clusters)


def _post(session: Session, cluster: Cluster, month: Month) -> int:
    platform = session.get_one(BillingAccount, cluster.platform_account)
    starts_at_ms, _ = month_bounds_ms(month, platform.time_zone)
    periods = Periods(session)
    giving = periods.at(platform.code, platform.time_zone, starts_at_ms)
    if giving.state != OPEN or _is_posted(session, cluster, giving.id):
        return 0
    shares = distribute_month(session, cluster, month).shares
    takers = {code: session.get_one(BillingAccount, code) for code in sorted({one.account for one in shares})}
    # Those that shares reach have the zone of the platform account.
    taking = {code: periods.at(code, one.time_zone, starts_at_ms) for code, one in takers.items()}
    if not shares or any(period.state != OPEN for period in taking.values()):
        return 0
    idle_id = session.scalars(select(Tenant.id).where(Tenant.path == IDLE_PATH)).one()
    given: dict[tuple[str, int], list[IdleShare]] = defaultdict(list)
    for share in shares:
        given[share.model, share.day_ms].append(share)
    rows = [
        _row(
            share,
            takers[share.account],
            taking[share.account].id,
            share.tenant_id,
            share.idle,
            f"idle capacity, {share.policy.value}",
        )
        for share in shares
    ]
    for of_day in given.values():
        amounts = [share.idle.amount for share in of_day]
        total = None if None in amounts else exact_sum(amount for amount in amounts if amount is not None)
        back = IdleTime(
            -sum(share.idle.quantity_ppm_ms for share in of_day),
            None if total is None else EXACT.minus(total),
        )
        reason = f"handed on to {len(of_day)} tenants, {of_day[0].policy.value}"
        rows.append(_row(of_day[0], platform, giving.id, idle_id, back, reason))
    session.execute(insert(LedgerLine), rows)
    return len(rows)


def _is_posted(session: Session, cluster: Cluster, period_id: int) -> bool:
    posted = select(func.count()).where(
        LedgerLine.period_id == period_id,
        LedgerLine.kind == DISTRIBUTION,
        LedgerLine.cluster == cluster.code,
    )
    return bool(session.scalar(posted))


def _row(  # noqa: PLR0917 - what makes a line
    share: IdleShare, account: BillingAccount, period_id: int, tenant_id: int, idle: IdleTime, reason: str
) -> dict[str, object]:
    return {
        "account": account.code,
        "period_id": period_id,
        "tenant_id": tenant_id,
        "kind": DISTRIBUTION,
        "sku": SKU_IDLE,
        "resource_key": f"{share.cluster}/{share.model}",
        "day_ms": share.day_ms,
        "charge_from_ms": share.day_ms,
        "charge_to_ms": day_bounds_ms(share.day_ms, account.time_zone)[1],
        "cluster": share.cluster,
        "node_uid": "",
        "node": "",
        "device_uuid": "",
        "model": share.model,
        "namespace": "",
        "pod": "",
        "container": "",
        "own_quantity": idle.quantity_ppm_ms,
        "quantity": idle.quantity_ppm_ms,
        "held_not_running_quantity": 0,
        "degraded_quantity": 0,
        "unit": PPM_MS,
        "currency": account.currency,
        "policy_version_id": share.policy.id,
        "amount": idle.amount,
        "revision": 0,
        "reason": reason,
    }
