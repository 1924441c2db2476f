"""Rating: bring the open ledger up to what the facts say at one instant.

Only days of cards that facts, prices or time itself touched are rated again, each run of days replaced in
one transaction. Invariant: twice, or after a crash anywhere, the lines are the same; what is stored is
what `compute` gives for the instant in `rating_state`, except where a mark says that it is due.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, select, update
from sqlalchemy.orm import Session

from accounting.ledger.intervals import Interval
from accounting.periods.compute import MS_PER_DAY, Computed, Rulebook, compute, read_rulebook, runs_of_days
from accounting.periods.lines import Line
from accounting.periods.months import OPEN, Periods
from accounting.progress import Progress, unseen
from accounting.store.database import Database
from accounting.store.models import (
    BillingAccount,
    BillingPeriod,
    DeviceEnergy,
    DeviceHour,
    IngestCounter,
    LateDay,
    LedgerLine,
    RatingMark,
    RatingState,
)
from accounting.tenants.tree import TenantTree
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid

RATED = 0
"""On a mark: rated as of `rating_state`, but time alone will change it. Any larger number: due."""

DUE = 1


@dataclass(frozen=True, slots=True)
class Rated:
    """What a rating did."""

    as_of_ms: int
    days: int
    """Days of cards that were rated."""
    lines: int
    """Lines that now stand for them."""
    unknown_devices: tuple[DeviceKey, ...]
    """Devices on which slices are held although nobody ever reported them: their size is unknown."""


def rate(database: Database, *, as_of_ms: int, grace_ms: int, progress: Progress = unseen) -> Rated:
    """Rate every day of every card that is due.

    Args:
        database: The books.
        as_of_ms: Now; open holds reach up to here.
        grace_ms: How long a slice is held after its latest confirmation when nobody saw it end.
        progress: Who wants to know how far it is.
    """
    days = lines = 0
    unknown: list[DeviceKey] = []
    with database.turn("rate"):
        due = _begin(database, as_of_ms, grace_ms)
        for done, key in enumerate(due):
            progress("rating cards", done, len(due))
            with database.writing(cluster=key.cluster) as session:
                rated = rate_card(session, key)
            days += sum((one.run[1] - one.run[0]) // MS_PER_DAY for one in rated)
            lines += sum(len(one.lines) for one in rated)
            if any(one.card.is_unknown for one in rated):
                unknown.append(key)
    return Rated(as_of_ms, days, lines, tuple(unknown))


def _begin(database: Database, as_of_ms: int, grace_ms: int) -> list[DeviceKey]:
    """Move the books' instant; whatever depends on it is due from here on, also if we crash next."""
    with database.writing() as session:
        session.execute(update(RatingMark).where(RatingMark.ingest_seq == RATED).values(ingest_seq=DUE))
        counter = session.get(IngestCounter, 1)
        state = session.get(RatingState, 1)
        if state is None:
            state = RatingState(id=1, rated_as_of_ms=as_of_ms, grace_ms=grace_ms, rated_seq=0)
            session.add(state)
        state.rated_as_of_ms = as_of_ms
        state.grace_ms = grace_ms
        state.rated_seq = 0 if counter is None else counter.last_seq
        periods = Periods(session)
        for account in session.scalars(select(BillingAccount)):
            periods.tile(account.code, account.time_zone, as_of_ms)
        marked = select(RatingMark.cluster, RatingMark.node_uid, RatingMark.device_uuid).distinct()
        return sorted(
            DeviceKey(ClusterCode(cluster), NodeUid(node_uid), DeviceUuid(device_uuid))
            for cluster, node_uid, device_uuid in session.execute(marked)
        )


def rate_card(session: Session, key: DeviceKey) -> list[Computed]:
    """Rate a card as of the books' instant: where two ratings run, whoever began last has set it."""
    marks = select(RatingMark.day_ms).where(*_marks_of(key), RatingMark.ingest_seq != RATED)
    runs = runs_of_days(session.scalars(marks).all())
    if not runs:
        return []
    state = session.get_one(RatingState, 1)
    as_of_ms, grace_ms = state.rated_as_of_ms, state.grace_ms
    rulebook = read_rulebook(session)
    tenants, periods = TenantTree(session, now_ms=as_of_ms), Periods(session)
    tenants.idle(rulebook.books[key.cluster].platform.code)
    rated = []
    for run in runs:
        computed = compute(session, key, run, rulebook, as_of_ms=as_of_ms, grace_ms=grace_ms)
        tenants.unmapped = computed.unmapped
        for owner in sorted(computed.bypassing, key=lambda one: one.path):
            # It may have no line, and is asked about all the same.
            tenants.at(owner.path, rulebook.books[key.cluster].account_of(owner).code)
        _replace_hours(session, computed)
        _replace_energy(session, computed)
        _replace_lines(session, computed, rulebook, tenants, periods)
        rated.append(computed)
    _settle_marks(session, key, rated)
    return rated


def _marks_of(key: DeviceKey) -> tuple[ColumnElement[bool], ...]:
    return (
        RatingMark.cluster == key.cluster,
        RatingMark.node_uid == key.node_uid,
        RatingMark.device_uuid == key.device_uuid,
    )


def _replace_hours(session: Session, computed: Computed) -> None:
    key, (from_ms, to_ms) = computed.card.key, computed.run
    session.execute(
        delete(DeviceHour).where(
            DeviceHour.cluster == key.cluster,
            DeviceHour.node_uid == key.node_uid,
            DeviceHour.device_uuid == key.device_uuid,
            DeviceHour.hour_ms >= from_ms,
            DeviceHour.hour_ms < to_ms,
        )
    )
    rows = [
        {
            "cluster": key.cluster,
            "hour_ms": hour_ms,
            "node_uid": key.node_uid,
            "device_uuid": key.device_uuid,
            "node": computed.card.node,
            "model": hour.model,
            "present_ppm_ms": hour.present_ppm_ms,
            "charged_ppm_ms": hour.charged_ppm_ms,
            "idle_ppm_ms": hour.idle_ppm_ms,
            "down_ppm_ms": hour.down_ppm_ms,
            "confirmed_ms": hour.confirmed_ms,
        }
        for hour_ms, hour in computed.hours.items()
    ]
    if rows:
        session.execute(insert(DeviceHour), rows)


def _replace_energy(session: Session, computed: Computed) -> None:
    key, (from_ms, to_ms) = computed.card.key, computed.run
    session.execute(
        delete(DeviceEnergy).where(
            DeviceEnergy.cluster == key.cluster,
            DeviceEnergy.node_uid == key.node_uid,
            DeviceEnergy.device_uuid == key.device_uuid,
            DeviceEnergy.hour_ms >= from_ms,
            DeviceEnergy.hour_ms < to_ms,
        )
    )
    rows = [
        {
            "cluster": key.cluster,
            "hour_ms": hour_ms,
            "node_uid": key.node_uid,
            "device_uuid": key.device_uuid,
            "energy_mj": hour.energy_mj,
            "active_mj": hour.of("active"),
            "unallocated_mj": hour.of("unallocated"),
            "unattributed_mj": hour.of("unattributed"),
            "idle_mj": hour.of("idle_held", "idle_free"),
            "idle_held_mj": hour.of("idle_held"),
            "residual_mj": hour.residual_mj,
        }
        for hour_ms, hour in computed.energy.items()
    ]
    if rows:
        session.execute(insert(DeviceEnergy), rows)


def _replace_lines(
    session: Session, computed: Computed, rulebook: Rulebook, tenants: TenantTree, periods: Periods
) -> None:
    """Put the lines of whole local days in place of those that stood there; closed periods stay."""
    books = rulebook.books[computed.card.key.cluster]
    for account in books.accounts:
        _delete_lines(session, computed.card.key, account.code, computed.days[account.code])
    rows = []
    for line in computed.lines:
        account = line.bearer.account
        period = periods.at(account.code, account.time_zone, line.key.day_ms)
        if period.state == OPEN:
            tenant_id = tenants.at(line.key.tenant, account.code)
            rows.append(row_of(line, computed, period_id=period.id, tenant_id=tenant_id))
    if rows:
        session.execute(insert(LedgerLine), rows)


def _delete_lines(session: Session, key: DeviceKey, account: str, days: Interval) -> None:
    still_open = select(BillingPeriod.id).where(BillingPeriod.account == account, BillingPeriod.state == OPEN)
    session.execute(
        delete(LedgerLine).where(
            LedgerLine.cluster == key.cluster,
            LedgerLine.node_uid == key.node_uid,
            LedgerLine.device_uuid == key.device_uuid,
            LedgerLine.account == account,
            LedgerLine.day_ms >= days[0],
            LedgerLine.day_ms < days[1],
            LedgerLine.revision == 0,
            LedgerLine.period_id.in_(still_open),
        )
    )


def row_of(line: Line, computed: Computed, *, period_id: int, tenant_id: int) -> dict[str, Any]:
    """A line as the values of its row."""
    key = computed.card.key
    return {
        "account": line.key.account,
        "period_id": period_id,
        "tenant_id": tenant_id,
        "kind": line.key.kind,
        "sku": line.key.sku,
        "resource_key": line.key.resource_key,
        "day_ms": line.key.day_ms,
        "charge_from_ms": line.charge_from_ms,
        "charge_to_ms": line.charge_to_ms,
        "cluster": key.cluster,
        "node_uid": key.node_uid,
        "node": line.resource.node,
        "device_uuid": key.device_uuid,
        "model": line.key.model,
        "namespace": line.resource.namespace,
        "pod": line.resource.pod,
        "container": line.resource.container,
        "own_quantity": line.own_quantity,
        "quantity": line.quantity,
        "held_not_running_quantity": line.held_not_running_ppm_ms,
        "degraded_quantity": line.degraded_ppm_ms,
        "unit": line.unit,
        "currency": line.currency,
        "price_version_id": line.key.price_id or None,
        "policy_version_id": line.key.policy_id or None,
        "unit_price": None if line.price is None else line.price.unit_price,
        "discount_version_id": line.key.discount_id or None,
        "discount_percent": None if line.discount is None else line.discount.percent,
        "amount": line.amount,
        "revision": 0,
    }


def _keep_late_days(session: Session, key: DeviceKey) -> None:
    """Remember which days facts touched after the seal of a period: their lines stay as they are."""
    sealed_to_ms = session.scalar(
        select(func.max(BillingPeriod.ends_at_ms)).where(BillingPeriod.state != OPEN)
    )
    if sealed_to_ms is None:
        return
    marks = select(RatingMark.day_ms, RatingMark.ingest_seq).where(
        *_marks_of(key), RatingMark.ingest_seq > DUE, RatingMark.day_ms < sealed_to_ms
    )
    for day_ms, ingest_seq in session.execute(marks).all():
        names = {"cluster": key.cluster, "node_uid": key.node_uid, "device_uuid": key.device_uuid}
        session.merge(LateDay(**names, day_ms=day_ms, ingest_seq=ingest_seq))
    session.flush()


def _settle_marks(session: Session, key: DeviceKey, rated: Sequence[Computed]) -> None:
    """Keep marks, as rated, on days that time alone will change; delete the others."""
    open_times = [
        computed.run if computed.card.is_unknown else computed.card.unsettled
        for computed in rated
        if computed.card.is_unknown or computed.card.unsettled is not None
    ]
    _keep_late_days(session, key)
    session.execute(delete(RatingMark).where(*_marks_of(key)))
    days: set[int] = set()
    for interval in open_times:
        if interval is not None:
            first = interval[0] - interval[0] % MS_PER_DAY
            days.update(range(first, interval[1] + 1, MS_PER_DAY))
    touched = [computed.run for computed in rated]
    begins = min((run[0] for run in touched), default=0)
    rows = [
        {
            "cluster": key.cluster,
            "node_uid": key.node_uid,
            "device_uuid": key.device_uuid,
            "day_ms": day_ms,
            "ingest_seq": RATED,
        }
        for day_ms in sorted(days)
        if day_ms >= begins
    ]
    if rows:
        session.execute(insert(RatingMark), rows)
