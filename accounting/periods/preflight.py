"""What keeps a period from being closed, all of it at once, with the way out of each.

Invariant: it changes nothing, and whatever it finds `close` finds too. A person may pass over what time or
an exporter owes (`can_override`), never over figures that are missing or do not add up.
Source: `reference/ledger.md §9`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Literal, TypeAlias

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from accounting.errors import InvalidError
from accounting.ledger.calendar import Month, at_text, midnight_ms
from accounting.numbers import plain_decimal
from accounting.periods.coverage import Coverage, coverage_of
from accounting.periods.months import CLOSED, OPEN, named, require_period
from accounting.periods.rating_state import rated_grace_ms
from accounting.periods.reading import of_devices
from accounting.periods.replacing import RATED
from accounting.periods.totals import wrong_amounts
from accounting.periods.unreported import unreported_devices
from accounting.store.models import (
    AllocationReport,
    BillingAccount,
    BillingPeriod,
    Cluster,
    DeviceHour,
    LedgerLine,
    RatingMark,
)
from accounting.tenants.rules import clusters_of
from contract.units import MS_PER_HOUR

MS_PER_DAY = 24 * MS_PER_HOUR

MIN_COVERAGE = Decimal("0.95")
"""Below it a period does not close by itself."""

_NAMED_AT_MOST = 20
"""How many of one kind are named; the rest is counted."""

Check: TypeAlias = Literal[
    "period_is_over",
    "close_grace",
    "earlier_period_open",
    "pending",
    "priced",
    "device_known",
    "hours_close",
    "amounts",
    "coverage",
]


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason why a period cannot be closed now."""

    check: Check
    detail: str
    way_out: str
    can_override: bool = False


@dataclass(frozen=True, slots=True)
class Preflight:
    """Whether a period could be closed now."""

    account: str
    period: str
    state: str
    lines: int
    coverage: Coverage
    min_coverage: Decimal
    blockers: Sequence[Blocker]

    @property
    def is_clear(self) -> bool:
        """Whether nothing blocks."""
        return not self.blockers

    def blocks(self, *, overridden: bool) -> list[Blocker]:
        """What blocks when a person passes over all that may be passed over, or does not."""
        return [one for one in self.blockers if not (overridden and one.can_override)]


def parse_ratio(text: str) -> Decimal:
    """Read the coverage that a close asks for.

    Raises:
        InvalidError: It is no number from 0 to 1.
    """
    try:
        ratio = plain_decimal(text)
    except InvalidOperation:
        ratio = Decimal("NaN")
    if not ratio.is_finite() or not 0 <= ratio <= 1:
        raise InvalidError(f'coverage "{text}" is no ratio; write it like 0.95')
    return ratio


def preflight(
    session: Session,
    account: BillingAccount,
    month: Month,
    *,
    now_ms: int,
    min_coverage: Decimal = MIN_COVERAGE,
) -> Preflight:
    """Everything that keeps a period from being closed.

    Raises:
        NotFoundError: The account has no such period.
    """
    period = require_period(session, account, month)
    coverage = _coverage(session, period)
    blockers: list[Blocker] = []
    if period.state == OPEN:
        blockers += _time(account, period, month, now_ms)
        blockers += _order(session, account, period)
        blockers += _due(session, account, period)
        blockers += _unrated(session, period)
        blockers += _unknown_devices(session, account, period)
        blockers += _broken_hours(session, account, period)
        blockers += _broken_amounts(session, period)
        blockers += _thin_coverage(coverage, min_coverage)
    return Preflight(
        account=account.code,
        period=str(month),
        state=period.state,
        lines=session.scalar(select(func.count()).where(LedgerLine.period_id == period.id)) or 0,
        coverage=coverage,
        min_coverage=min_coverage,
        blockers=blockers,
    )


def _coverage(session: Session, period: BillingPeriod) -> Coverage:
    devices = session.execute(
        select(LedgerLine.cluster, LedgerLine.node_uid, LedgerLine.device_uuid)
        .where(LedgerLine.period_id == period.id, LedgerLine.kind != "correction")
        .distinct()
    ).all()
    return coverage_of(session, devices, (period.starts_at_ms, period.ends_at_ms))


def _time(account: BillingAccount, period: BillingPeriod, month: Month, now_ms: int) -> Iterator[Blocker]:
    if now_ms < period.ends_at_ms:
        yield Blocker("period_is_over", f"{month} ends at {at_text(period.ends_at_ms)}", "wait until then")
        return
    grace_ends = month.next().first_day + timedelta(days=account.grace_days)
    grace_ends_ms = midnight_ms(grace_ends, account.time_zone)
    if now_ms < grace_ends_ms:
        yield Blocker(
            "close_grace",
            f"the account waits {account.grace_days} days for late facts, until {at_text(grace_ends_ms)}",
            "wait until then",
            can_override=True,
        )


def _order(session: Session, account: BillingAccount, period: BillingPeriod) -> Iterator[Blocker]:
    earlier = session.scalars(
        select(BillingPeriod)
        .where(
            BillingPeriod.account == account.code,
            BillingPeriod.starts_at_ms < period.starts_at_ms,
            BillingPeriod.state != CLOSED,
        )
        .order_by(BillingPeriod.starts_at_ms)
    ).all()
    for one in earlier:
        yield Blocker(
            "earlier_period_open",
            f"{named(one, account)} is {one.state}",
            f"slicemeter accounting close {named(one, account)} --account {account.code}",
        )


def _due(session: Session, account: BillingAccount, period: BillingPeriod) -> Iterator[Blocker]:
    days = session.execute(
        select(RatingMark.cluster, RatingMark.node_uid, RatingMark.device_uuid, RatingMark.day_ms)
        .where(
            RatingMark.cluster.in_(clusters_of(session, account.code)),
            RatingMark.ingest_seq != RATED,
            RatingMark.day_ms > period.starts_at_ms - MS_PER_DAY,
            RatingMark.day_ms < period.ends_at_ms,
        )
        .order_by(RatingMark.cluster, RatingMark.node_uid, RatingMark.device_uuid, RatingMark.day_ms)
    ).all()
    names = [f"{'/'.join(day[:3])} {at_text(day[3])}" for day in days]
    if names:
        yield Blocker(
            "pending",
            f"{len(names)} days of cards changed since they were rated: {_listed(names)}",
            "slicemeter accounting rate; close does it by itself",
        )


def _unrated(session: Session, period: BillingPeriod) -> Iterator[Blocker]:
    models = session.scalars(
        select(LedgerLine.model)
        .where(
            LedgerLine.period_id == period.id, LedgerLine.currency.is_not(None), LedgerLine.amount.is_(None)
        )
        .distinct()
        .order_by(LedgerLine.model)
    ).all()
    for model in models:
        yield Blocker(
            "priced",
            f'model "{model}" has no price in all of the period',
            f'slicemeter accounting price set --model "{model}" --price … (0 is a price)',
        )


def _unknown_devices(session: Session, account: BillingAccount, period: BillingPeriod) -> Iterator[Blocker]:
    held, grace_ms = AllocationReport, rated_grace_ms(session)
    clusters = session.scalars(select(Cluster.code).where(Cluster.account == account.code)).all()
    ends_at_ms = func.coalesce(held.ended_at_ms, held.confirmed_at_ms + grace_ms)
    rows = sorted(
        device
        for cluster in clusters
        for device in unreported_devices(session, cluster)
        if session.scalar(
            select(held.cluster)
            .where(
                of_devices(held, [device]),
                held.bound_at_ms < period.ends_at_ms,
                ends_at_ms > period.starts_at_ms,
            )
            .limit(1)
        )
    )
    if rows:
        names = ["/".join(row) for row in rows]
        yield Blocker(
            "device_known",
            f"slices are held on devices that nobody ever reported: {_listed(names)}",
            "run an exporter there, or pass over it: their time is then billed to nobody",
            can_override=True,
        )


def _broken_hours(session: Session, account: BillingAccount, period: BillingPeriod) -> Iterator[Blocker]:
    rows = session.execute(
        select(DeviceHour.cluster, DeviceHour.node_uid, DeviceHour.device_uuid, DeviceHour.hour_ms).where(
            DeviceHour.cluster.in_(clusters_of(session, account.code)),
            DeviceHour.hour_ms > period.starts_at_ms - MS_PER_HOUR,
            DeviceHour.hour_ms < period.ends_at_ms,
            DeviceHour.charged_ppm_ms + DeviceHour.idle_ppm_ms + DeviceHour.down_ppm_ms
            != DeviceHour.present_ppm_ms,
        )
    ).all()
    if rows:
        names = [f"{'/'.join(row[:3])} {at_text(row[3])}" for row in rows]
        yield Blocker(
            "hours_close",
            f"charged + idle + down is not present: {_listed(names)}",
            "slicemeter accounting verify names the figures; restore the books from a backup",
        )


def _broken_amounts(session: Session, period: BillingPeriod) -> Iterator[Blocker]:
    """Lines whose amount is not their quantity at their price less their discount."""
    of_period = LedgerLine.period_id == period.id, LedgerLine.revision == 0
    broken = [str(line_id) for line_id in wrong_amounts(session, *of_period)]
    if broken:
        yield Blocker(
            "amounts",
            f"the amount is not quantity × price on lines {_listed(broken)}",
            "slicemeter accounting verify names the figures; restore the books from a backup",
        )


def _thin_coverage(coverage: Coverage, min_coverage: Decimal) -> Iterator[Blocker]:
    if coverage.ratio is not None and coverage.ratio < min_coverage:
        yield Blocker(
            "coverage",
            f"{coverage.ratio * 100:.2f} % of the devices' presence is confirmed, less than "
            f"{min_coverage * 100:.2f} %",
            "let the exporters deliver what is in their outboxes, or pass over it",
            can_override=True,
        )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
