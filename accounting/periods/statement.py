"""A tenant's month: its lines, what they add up to, and what was measured beside them.

Invariant: shown lines plus the rounding line equal the total, which is the exact sum rounded once; own
share less sharing discount is what is charged, on every line and in every sum.
Source: `reference/ledger.md §4` (Statement).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol
from uuid import UUID

from sqlalchemy import Row, select, true
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer, is_at_or_below
from accounting.errors import InvalidError
from accounting.ledger import tenancy
from accounting.ledger.calendar import Month, local_date, month_bounds_ms, month_of
from accounting.ledger.intervals import Interval
from accounting.ledger.rounding import MJ, PPM_MS, exact_sum, round_statement
from accounting.periods.coverage import Coverage, coverage_of
from accounting.periods.distribution import DISTRIBUTION
from accounting.periods.idle_view import IdleView, ProvisionalShare, view_idle
from accounting.periods.months import find_account, find_period, no_account
from accounting.periods.rating_state import rated_as_of_ms
from accounting.periods.sealed import Sealed, read_sealed
from accounting.periods.use import (
    SliceUses,
    UnallocatedUse,
    Use,
    add_uses,
    measured_windows,
    unallocated_uses,
)
from accounting.store.models import (
    BillingAccount,
    BillingPeriod,
    LedgerLine,
    Tenant,
)
from accounting.store.walls import CARDS, seeing
from accounting.tenants.rules import read_owners
from accounting.tenants.tree import find_tenant

NEVER_RATED = "open"


@dataclass(frozen=True, slots=True)
class StatementLine:
    """One day, resource and SKU of a tenant.

    Times are Unix milliseconds, quantities ppm·ms of the card. `amount` is exact, `shown` what the
    statement prints; both are None on an unrated line and in a showback account.
    """

    tenant: str
    day: str
    kind: str
    sku: str
    cluster: str
    node: str
    device_uuid: str
    model: str
    namespace: str
    pod: str
    container: str
    resource_key: str
    charge_from_ms: int
    charge_to_ms: int
    own_ppm_ms: int
    discount_ppm_ms: int
    charged_ppm_ms: int
    held_not_running_ppm_ms: int
    degraded_ppm_ms: int
    unit_price: Decimal | None
    price_version: int | None
    amount: Decimal | None
    shown: Decimal | None
    use: Use | None
    """None: not measured."""
    reason: str | None = None
    """Why a correction, adjustment or distribution was made, or idle capacity stays where it is."""
    corrects_period: str | None = None
    """Of a correction: the closed month that it makes right, the day there, and what kind of line."""
    corrects_day: str | None = None
    corrects_kind: str | None = None
    line_id: int = 0
    """What `explain` takes."""
    energy_mj: int = 0
    """Of an energy line, whose card time is 0."""
    policy_version: int | None = None
    """None: the default of the policy."""
    discount_percent: Decimal | None = None
    """What the tenant pays less than the list price; the amount is after it."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Quantities of lines, added up."""

    own_ppm_ms: int
    discount_ppm_ms: int
    charged_ppm_ms: int
    idle_ppm_ms: int
    held_not_running_ppm_ms: int
    degraded_ppm_ms: int
    unallocated_ppm_ms: int = 0
    """Card time without an allocation, where a policy prices it; not part of what closes the cards."""
    energy_mj: int = 0
    handed_on_ppm_ms: int = 0
    """Idle capacity that the policy handed on: a tenant's part, or what left the platform, below 0."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A tenant's month in an account."""

    account: str
    tenant: str
    period: str
    time_zone: str
    starts_at_ms: int
    ends_at_ms: int
    state: str
    as_of_ms: int | None
    """The instant up to which the ledger was rated; None: never."""
    currency: str | None
    lines: Sequence[StatementLine]
    sums: Sums
    amount: Decimal | None
    """The exact sum of the rated lines."""
    rounding: Decimal | None
    total: Decimal | None
    unrated_models: Sequence[str]
    coverage: Coverage
    use: Use | None
    unallocated: Sequence[UnallocatedUse]
    idle_shares: Sequence[ProvisionalShare] = ()
    """Idle capacity that would be handed on if the month closed now; in no sum."""

    @property
    def is_provisional(self) -> bool:
        """Whether figures may still change: the period is not closed."""
        return self.state != "closed"


class Quantities(Protocol):
    """A line, or several in one, as far as card time is concerned."""

    @property
    def kind(self) -> str:
        """Of line."""

    @property
    def unit(self) -> str:
        """Of the quantities."""

    @property
    def own_quantity(self) -> int:
        """Before the sharing discount."""

    @property
    def quantity(self) -> int:
        """What is charged."""

    @property
    def held_not_running_quantity(self) -> int:
        """Of it, before the first container ran."""

    @property
    def degraded_quantity(self) -> int:
        """Of it, on a device that counted as down."""


def sums_of(lines: Sequence[Quantities]) -> Sums:
    """Add lines up; idle capacity, unallocated use and energy apart from what slices are charged."""
    usage = [line for line in lines if line.kind == "usage"]
    own, charged = sum(line.own_quantity for line in usage), sum(line.quantity for line in usage)
    return Sums(
        own_ppm_ms=own,
        discount_ppm_ms=own - charged,
        charged_ppm_ms=charged,
        idle_ppm_ms=sum(line.quantity for line in lines if line.kind == "idle"),
        held_not_running_ppm_ms=sum(line.held_not_running_quantity for line in usage),
        degraded_ppm_ms=sum(line.degraded_quantity for line in usage),
        unallocated_ppm_ms=sum(
            line.quantity for line in lines if line.kind == "unallocated" and line.unit == PPM_MS
        ),
        energy_mj=sum(line.quantity for line in lines if line.unit == MJ),
        handed_on_ppm_ms=sum(line.quantity for line in lines if line.kind == DISTRIBUTION),
    )


def state_statement(
    session: Session,
    viewer: Viewer,
    month: Month,
    tenant_name: str | None,
    *,
    account_code: str | None = None,
) -> Statement:
    """The statement of a tenant, and of all that lies below it, in one account.

    Args:
        session: A reading transaction.
        viewer: Who asks.
        month: The period.
        tenant_name: A path, or a code that only one tenant has; None: all tenants of the account.
        account_code: Only for a tenant that has lines in several accounts; else its own.

    Raises:
        NotFoundError: No such tenant or account, or none that the viewer may see.
        InvalidError: Several tenants have the code, or neither a tenant nor an account was named.
    """
    tenant, account = asked_of(session, viewer, tenant_name, account_code)
    starts_at_ms, ends_at_ms = month_bounds_ms(month, account.time_zone)
    period = find_period(session, account, month)
    sealed = None if period is None else read_sealed(session, period)
    rows = _rows(session, tenant, account, (starts_at_ms, ends_at_ms))
    lines = [line for line, _ in rows]
    uses = _uses(session, lines, account, (starts_at_ms, ends_at_ms), sealed)
    idle = view_idle(session, account, month, period)
    stated = _stated(rows, account, uses, _Beside(_months(session, lines), idle))
    amounts = [line.amount for line in lines if line.amount is not None]
    rounded = None if account.currency is None else round_statement(amounts, account.currency)
    return Statement(
        account=account.code,
        tenant=account.code if tenant is None else tenant.path,
        period=str(month),
        time_zone=account.time_zone,
        starts_at_ms=starts_at_ms,
        ends_at_ms=ends_at_ms,
        state=NEVER_RATED if period is None else period.state,
        as_of_ms=rated_as_of_ms(session) if sealed is None else sealed.document.as_of_ms,
        currency=account.currency,
        lines=stated,
        sums=sums_of(lines),
        amount=None if rounded is None else exact_sum(amounts),
        rounding=None if rounded is None else rounded.rounding,
        total=None if rounded is None else rounded.total,
        unrated_models=unrated_models(lines),
        coverage=_coverage(session, lines, (starts_at_ms, ends_at_ms), sealed),
        use=add_uses(line.use for line in stated),
        unallocated=_unallocated(session, tenant, account, (starts_at_ms, ends_at_ms), sealed),
        idle_shares=idle.provisional(None if tenant is None else tenant.path) if sealed is None else (),
    )


def asked_of(
    session: Session, viewer: Viewer, tenant_name: str | None, account_code: str | None
) -> tuple[Tenant | None, BillingAccount]:
    """The tenant (None: all) and the account of a statement."""
    if tenant_name is None:
        if viewer.sees_everything and account_code is None:
            raise InvalidError("name a tenant (--tenant), or an account (--account) for all its tenants")
        if viewer.sees_everything:
            return None, find_account(session, str(account_code))
        if account_code is not None and viewer.tenant_path != tenancy.path_step(account_code):
            raise no_account(account_code)
    # Whoever may see one branch only asks about that.
    tenant = find_tenant(session, viewer, tenant_name or viewer.tenant_path or "")
    if account_code not in {None, tenant.account} and not viewer.sees_everything:
        raise no_account(str(account_code))
    return tenant, find_account(session, account_code or tenant.account)


def unrated_models(lines: Sequence[LedgerLine]) -> list[str]:
    """The models of lines that would have an amount if there were a price."""
    return sorted({line.model for line in lines if line.currency is not None and line.amount is None})


def _rows(
    session: Session, tenant: Tenant | None, account: BillingAccount, window: Interval
) -> Sequence[Row[LedgerLine, str]]:
    return session.execute(
        select(LedgerLine, Tenant.path)
        .join(Tenant, Tenant.id == LedgerLine.tenant_id)
        .where(
            true() if tenant is None else is_at_or_below(tenant.path),
            LedgerLine.account == account.code,
            LedgerLine.day_ms >= window[0],
            LedgerLine.day_ms < window[1],
        )
        .order_by(
            LedgerLine.day_ms,
            Tenant.path,
            LedgerLine.namespace,
            LedgerLine.pod,
            LedgerLine.container,
            LedgerLine.resource_key,
            LedgerLine.charge_from_ms,
            LedgerLine.id,
        )
    ).all()


def _uses(
    session: Session,
    lines: Sequence[LedgerLine],
    account: BillingAccount,
    window: Interval,
    sealed: Sealed | None,
) -> dict[int, Use]:
    """By line: what was measured beside it; what was sealed stays as it was."""
    if sealed is not None:
        return sealed.uses(session, {line.tenant_id for line in lines})
    of_slices = [line for line in lines if line.kind == "usage"]
    with seeing(session, CARDS):
        measured = SliceUses(session, ((line.cluster, UUID(line.resource_key)) for line in of_slices), window)
    windows = measured_windows(of_slices, account.time_zone)
    found = ((line.id, measured.of(UUID(line.resource_key), windows[line.id])) for line in of_slices)
    return {line_id: use for line_id, use in found if use is not None}


def _months(session: Session, lines: Sequence[LedgerLine]) -> dict[int, str]:
    """By id: the periods that lines correct."""
    ids = {line.corrects_period_id for line in lines if line.corrects_period_id is not None}
    rows = session.execute(
        select(BillingPeriod.id, BillingPeriod.starts_at_ms, BillingAccount.time_zone)
        .join(BillingAccount, BillingAccount.code == BillingPeriod.account)
        .where(BillingPeriod.id.in_(ids))
    )
    return {period_id: str(month_of(starts_at_ms, zone)) for period_id, starts_at_ms, zone in rows}


@dataclass(frozen=True, slots=True)
class _Beside:
    """What lines refer to: the months that they correct (by period id), and idle capacity handed on."""

    months: Mapping[int, str]
    idle: IdleView


def _stated(
    rows: Sequence[Row[LedgerLine, str]],
    account: BillingAccount,
    uses: Mapping[int, Use],
    beside: _Beside,
) -> list[StatementLine]:
    rated = [line.amount for line, _ in rows if line.amount is not None]
    shown = iter(() if account.currency is None else round_statement(rated, account.currency).shown)
    stated = []
    for line, path in rows:
        corrected = line.corrects_day_ms
        is_card_time = line.unit == PPM_MS
        stated.append(
            StatementLine(
                tenant=path,
                day=local_date(line.day_ms, account.time_zone).isoformat(),
                kind=line.kind,
                sku=line.sku,
                cluster=line.cluster,
                node=line.node,
                device_uuid=line.device_uuid,
                model=line.model,
                namespace=line.namespace,
                pod=line.pod,
                container=line.container,
                resource_key=line.resource_key,
                charge_from_ms=line.charge_from_ms,
                charge_to_ms=line.charge_to_ms,
                own_ppm_ms=line.own_quantity if is_card_time else 0,
                discount_ppm_ms=line.own_quantity - line.quantity if is_card_time else 0,
                charged_ppm_ms=line.quantity if is_card_time else 0,
                held_not_running_ppm_ms=line.held_not_running_quantity,
                degraded_ppm_ms=line.degraded_quantity,
                unit_price=line.unit_price,
                price_version=line.price_version_id,
                amount=line.amount,
                shown=None if line.amount is None else next(shown),
                use=uses.get(line.id),
                reason=beside.idle.note(line) if line.kind == "idle" else line.reason,
                corrects_period=None if corrected is None else beside.months[line.corrects_period_id or 0],
                corrects_day=(
                    None if corrected is None else local_date(corrected, account.time_zone).isoformat()
                ),
                corrects_kind=line.corrects_kind,
                line_id=line.id,
                energy_mj=0 if is_card_time else line.quantity,
                policy_version=line.policy_version_id,
                discount_percent=line.discount_percent,
            )
        )
    return stated


def _coverage(
    session: Session, lines: Sequence[LedgerLine], window: Interval, sealed: Sealed | None
) -> Coverage:
    if sealed is None:
        return coverage_of(session, lines, window)
    return Coverage(*sealed.coverage({(line.cluster, line.node_uid, line.device_uuid) for line in lines}))


def _unallocated(
    session: Session,
    tenant: Tenant | None,
    account: BillingAccount,
    window: Interval,
    sealed: Sealed | None,
) -> list[UnallocatedUse]:
    if sealed is None:
        with seeing(session, CARDS):
            used: Sequence[UnallocatedUse] = unallocated_uses(session, read_owners(session), window)
        found: Sequence[UnallocatedUse] = [one for one in used if one.account == account.code]
    else:
        found = sealed.document.unallocated
    return [
        one
        for one in found
        # What was sealed before tenants could be mapped names its key alone.
        if tenant is None
        or tenancy.is_at_or_below(one.tenant or tenancy.leaf_path(account.code, one.tenant_key), tenant.path)
    ]
