"""A tenant's month: its lines, what they add up to, and what was measured beside them.

Invariant: shown lines plus the rounding line equal the total, which is the exact sum rounded once; own
share less sharing discount is what is charged, on every line and in every sum.
Source: `reference/ledger.md §4` (Statement).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from sqlalchemy import Row, func, select, tuple_
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer, is_at_or_below
from accounting.ledger.calendar import Month, day_bounds_ms, local_date, month_bounds_ms
from accounting.ledger.intervals import Interval
from accounting.ledger.rounding import exact_sum, round_statement
from accounting.periods.months import find_account, find_period, no_account
from accounting.periods.use import SliceUses, UnallocatedUse, Use, add_uses, unallocated_uses
from accounting.store.models import BillingAccount, Cluster, DeviceHour, LedgerLine, RatingState, Tenant
from accounting.tenants.tree import find_tenant, leaf_path
from contract.units import PPM

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


@dataclass(frozen=True, slots=True)
class Sums:
    """Quantities of lines, added up."""

    own_ppm_ms: int
    discount_ppm_ms: int
    charged_ppm_ms: int
    idle_ppm_ms: int
    held_not_running_ppm_ms: int
    degraded_ppm_ms: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the presence of the devices concerned a witness confirmed."""

    confirmed_ms: int
    present_ms: int

    @property
    def ratio(self) -> Decimal | None:
        """Confirmed of present; None where nothing was present."""
        if not self.present_ms:
            return None
        return (Decimal(self.confirmed_ms) / Decimal(self.present_ms)).quantize(Decimal("0.000001"))


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

    @property
    def is_provisional(self) -> bool:
        """Whether figures may still change: the period is not closed."""
        return self.state != "closed"


def sums_of(lines: Sequence[LedgerLine]) -> Sums:
    """Add lines up; idle capacity apart from what slices are charged."""
    usage = [line for line in lines if line.kind == "usage"]
    own, charged = sum(line.own_quantity for line in usage), sum(line.quantity for line in usage)
    return Sums(
        own_ppm_ms=own,
        discount_ppm_ms=own - charged,
        charged_ppm_ms=charged,
        idle_ppm_ms=sum(line.quantity for line in lines if line.kind == "idle"),
        held_not_running_ppm_ms=sum(line.held_not_running_quantity for line in usage),
        degraded_ppm_ms=sum(line.degraded_quantity for line in usage),
    )


def rated_as_of_ms(session: Session) -> int | None:
    """The instant up to which the open ledger was rated; None: it never was."""
    return session.scalar(select(RatingState.rated_as_of_ms))


def rated_grace_ms(session: Session) -> int:
    """The grace that the open ledger was rated with; 0 when it never was."""
    return session.scalar(select(RatingState.grace_ms)) or 0


def state_statement(
    session: Session, viewer: Viewer, month: Month, tenant_name: str, *, account_code: str | None = None
) -> Statement:
    """The statement of a tenant, and of all that lies below it, in one account.

    Args:
        session: A reading transaction.
        viewer: Who asks.
        month: The period.
        tenant_name: A path, or a code that only one tenant has.
        account_code: Only for a tenant that has lines in several accounts; else its own.

    Raises:
        NotFoundError: No such tenant or account, or none that the viewer may see.
        InvalidError: Several tenants have the code.
    """
    tenant = find_tenant(session, viewer, tenant_name)
    if account_code not in {None, tenant.account} and not viewer.sees_everything:
        raise no_account(str(account_code))
    account = find_account(session, account_code or tenant.account)
    starts_at_ms, ends_at_ms = month_bounds_ms(month, account.time_zone)
    period = find_period(session, account, month)
    rows = _rows(session, tenant, account, (starts_at_ms, ends_at_ms))
    lines = [line for line, _ in rows]
    uses = SliceUses(
        session,
        ((line.cluster, UUID(line.resource_key)) for line in lines if line.kind == "usage"),
        (starts_at_ms, ends_at_ms),
    )
    stated = _stated(rows, account, uses)
    amounts = [line.amount for line in lines if line.amount is not None]
    rounded = None if account.currency is None else round_statement(amounts, account.currency)
    return Statement(
        account=account.code,
        tenant=tenant.path,
        period=str(month),
        time_zone=account.time_zone,
        starts_at_ms=starts_at_ms,
        ends_at_ms=ends_at_ms,
        state=NEVER_RATED if period is None else period.state,
        as_of_ms=rated_as_of_ms(session),
        currency=account.currency,
        lines=stated,
        sums=sums_of(lines),
        amount=None if rounded is None else exact_sum(amounts),
        rounding=None if rounded is None else rounded.rounding,
        total=None if rounded is None else rounded.total,
        unrated_models=unrated_models(lines),
        coverage=coverage_of(session, lines, (starts_at_ms, ends_at_ms)),
        use=add_uses(line.use for line in stated),
        unallocated=_unallocated(session, tenant, account, (starts_at_ms, ends_at_ms)),
    )


def unrated_models(lines: Sequence[LedgerLine]) -> list[str]:
    """The models of lines that would have an amount if there were a price."""
    return sorted({line.model for line in lines if line.currency is not None and line.amount is None})


def _rows(
    session: Session, tenant: Tenant, account: BillingAccount, window: Interval
) -> Sequence[Row[LedgerLine, str]]:
    return session.execute(
        select(LedgerLine, Tenant.path)
        .join(Tenant, Tenant.id == LedgerLine.tenant_id)
        .where(
            is_at_or_below(tenant.path),
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
        )
    ).all()


def _stated(
    rows: Sequence[Row[LedgerLine, str]], account: BillingAccount, uses: SliceUses
) -> list[StatementLine]:
    rated = [line.amount for line, _ in rows if line.amount is not None]
    shown = iter(() if account.currency is None else round_statement(rated, account.currency).shown)
    windows = _measured_windows([line for line, _ in rows], account.time_zone)
    stated = []
    for line, path in rows:
        use = uses.of(UUID(line.resource_key), windows[line.id]) if line.kind == "usage" else None
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
                own_ppm_ms=line.own_quantity,
                discount_ppm_ms=line.own_quantity - line.quantity,
                charged_ppm_ms=line.quantity,
                held_not_running_ppm_ms=line.held_not_running_quantity,
                degraded_ppm_ms=line.degraded_quantity,
                unit_price=line.unit_price,
                price_version=line.price_version_id,
                amount=line.amount,
                shown=None if line.amount is None else next(shown),
                use=use,
            )
        )
    return stated


def _measured_windows(lines: Sequence[LedgerLine], time_zone: str) -> dict[int, Interval]:
    """By line: the part of its day whose measured use stands beside it; together they are the day."""
    of_day: dict[tuple[str, int], list[LedgerLine]] = {}
    for line in lines:
        of_day.setdefault((line.resource_key, line.day_ms), []).append(line)
    windows = {}
    for (_, day_ms), siblings in of_day.items():
        ordered = sorted(siblings, key=lambda line: line.charge_from_ms)
        starts = [day_ms, *(line.charge_from_ms for line in ordered[1:])]
        ends = [*starts[1:], day_bounds_ms(day_ms, time_zone)[1]]
        windows.update({line.id: (a, b) for line, a, b in zip(ordered, starts, ends, strict=True)})
    return windows


def coverage_of(session: Session, lines: Sequence[LedgerLine], window: Interval) -> Coverage:
    """Over the devices that lines speak of, in a window: confirmed and present time."""
    devices = sorted({(line.cluster, line.node_uid, line.device_uuid) for line in lines})
    confirmed_ms = present_ms = 0
    for start in range(0, len(devices), 300):
        chunk = devices[start : start + 300]
        row = session.execute(
            select(
                func.coalesce(func.sum(DeviceHour.confirmed_ms), 0),
                func.coalesce(func.sum(DeviceHour.present_ppm_ms // PPM), 0),
            ).where(
                tuple_(DeviceHour.cluster, DeviceHour.node_uid, DeviceHour.device_uuid).in_(chunk),
                DeviceHour.hour_ms >= window[0],
                DeviceHour.hour_ms < window[1],
            )
        ).one()
        confirmed_ms += int(row[0])
        present_ms += int(row[1])
    return Coverage(confirmed_ms, present_ms)


def _unallocated(
    session: Session, tenant: Tenant, account: BillingAccount, window: Interval
) -> list[UnallocatedUse]:
    clusters = session.scalars(select(Cluster.code).where(Cluster.account == account.code)).all()
    return [
        one
        for one in unallocated_uses(session, clusters, window)
        if f"{leaf_path(account.code, one.tenant_key)}/".startswith(f"{tenant.path}/")
    ]
