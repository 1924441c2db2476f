"""What was computed of some cards, put in place of what stood there: hours, energy, lines and marks.

Invariant: only days that were computed are replaced, only lines that rating made, and only in open periods;
all of it in the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from accounting.ledger.intervals import Interval
from accounting.periods.compute import MS_PER_DAY, Computed, Rulebook
from accounting.periods.lines import Line
from accounting.periods.months import OPEN, Periods
from accounting.periods.reading import groups_of, of_devices
from accounting.store.append import append_rows
from accounting.store.models import (
    BillingPeriod,
    DeviceEnergy,
    DeviceHour,
    LateDay,
    LedgerLine,
    RatingMark,
)
from accounting.tenants.tree import TenantTree
from contract.ids import DeviceKey

RATED = 0
"""On a mark: rated as of `rating_state`, but time alone will change it. Any larger number: due."""

DUE = 1

_HOUR_COLUMNS = (
    "cluster",
    "hour_ms",
    "node_uid",
    "device_uuid",
    "node",
    "model",
    "present_ppm_ms",
    "charged_ppm_ms",
    "idle_ppm_ms",
    "down_ppm_ms",
    "confirmed_ms",
)
_ENERGY_COLUMNS = (
    "cluster",
    "hour_ms",
    "node_uid",
    "device_uuid",
    "energy_mj",
    "active_mj",
    "unallocated_mj",
    "unattributed_mj",
    "idle_mj",
    "idle_held_mj",
    "residual_mj",
)
_LINE_COLUMNS = (
    "account",
    "period_id",
    "tenant_id",
    "kind",
    "sku",
    "resource_key",
    "day_ms",
    "charge_from_ms",
    "charge_to_ms",
    "cluster",
    "node_uid",
    "node",
    "device_uuid",
    "model",
    "namespace",
    "pod",
    "container",
    "own_quantity",
    "quantity",
    "held_not_running_quantity",
    "degraded_quantity",
    "unit",
    "currency",
    "price_version_id",
    "policy_version_id",
    "unit_price",
    "discount_version_id",
    "discount_percent",
    "amount",
    "revision",
)


@dataclass(slots=True)
class Replacement:
    """The rows of some cards of one cluster over one run of days, gathered card by card, then stored."""

    session: Session
    rulebook: Rulebook
    tenants: TenantTree
    periods: Periods
    _periods_of: dict[tuple[str, int], int | None] = field(default_factory=dict)
    """By account and day; each looked up once."""
    _keys: list[DeviceKey] = field(default_factory=list)
    _run: Interval = (0, 0)
    _days: Mapping[str, Interval] = field(default_factory=dict)
    _hours: list[tuple[Any, ...]] = field(default_factory=list)
    _energy: list[tuple[Any, ...]] = field(default_factory=list)
    _lines: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, computed: Computed) -> None:
        """Take in what was computed of one more card over the same run of days."""
        self._keys.append(computed.card.key)
        self._run, self._days = computed.run, computed.days
        self.tenants.unmapped = computed.unmapped
        books = self.rulebook.books[computed.card.key.cluster]
        for owner in sorted(computed.bypassing, key=lambda one: one.path):
            # It may have no line, and is asked about all the same.
            self.tenants.at(owner.path, books.account_of(owner).code)
        self._hours += _hour_rows(computed)
        self._energy += _energy_rows(computed)
        tenants: dict[tuple[str, str], int] = {}
        for line in computed.lines:
            period_id = self._open_period(line)
            if period_id is not None:
                whose = line.key.tenant, line.key.account
                tenant_id = tenants.get(whose)
                if tenant_id is None:
                    tenant_id = tenants[whose] = self.tenants.at(*whose)
                self._lines.append(line_row(line, computed, period_id=period_id, tenant_id=tenant_id))

    def _open_period(self, line: Line) -> int | None:
        """The id of the period that a line is in; None: it is sealed."""
        day = line.key.account, line.key.day_ms
        if day not in self._periods_of:
            account = line.bearer.account
            period = self.periods.at(account.code, account.time_zone, line.key.day_ms)
            self._periods_of[day] = period.id if period.state == OPEN else None
        return self._periods_of[day]

    def store(self) -> None:
        """Put all rows in place of those that stand there."""
        session = self.session
        for group in groups_of(session, self._keys):
            for table in (DeviceHour, DeviceEnergy):
                session.execute(
                    delete(table).where(
                        of_devices(table, group),
                        table.hour_ms >= self._run[0],
                        table.hour_ms < self._run[1],
                    )
                )
            for account, days in self._days.items():
                self._delete_lines(group, account, days)
        append_rows(session, DeviceHour, _HOUR_COLUMNS, self._hours)
        append_rows(session, DeviceEnergy, _ENERGY_COLUMNS, self._energy)
        append_rows(session, LedgerLine, _LINE_COLUMNS, self._lines)

    def _delete_lines(self, group: Sequence[DeviceKey], account: str, days: Interval) -> None:
        still_open = select(BillingPeriod.id).where(
            BillingPeriod.account == account, BillingPeriod.state == OPEN
        )
        self.session.execute(
            delete(LedgerLine).where(
                of_devices(LedgerLine, group),
                LedgerLine.account == account,
                LedgerLine.day_ms >= days[0],
                LedgerLine.day_ms < days[1],
                LedgerLine.revision == 0,
                LedgerLine.period_id.in_(still_open),
            )
        )


def _hour_rows(computed: Computed) -> Iterator[tuple[Any, ...]]:
    key, node = computed.card.key, computed.card.node
    for hour_ms, hour in computed.hours.items():
        yield (
            key.cluster,
            hour_ms,
            key.node_uid,
            key.device_uuid,
            node,
            hour.model,
            hour.present_ppm_ms,
            hour.charged_ppm_ms,
            hour.idle_ppm_ms,
            hour.down_ppm_ms,
            hour.confirmed_ms,
        )


def _energy_rows(computed: Computed) -> Iterator[tuple[Any, ...]]:
    key = computed.card.key
    for hour_ms, hour in computed.energy.items():
        yield (
            key.cluster,
            hour_ms,
            key.node_uid,
            key.device_uuid,
            hour.energy_mj,
            hour.of("active"),
            hour.of("unallocated"),
            hour.of("unattributed"),
            hour.of("idle_held", "idle_free"),
            hour.of("idle_held"),
            hour.residual_mj,
        )


def line_row(line: Line, computed: Computed, *, period_id: int, tenant_id: int) -> tuple[Any, ...]:
    """A line as the values of `_LINE_COLUMNS`."""
    device, key, resource, discount = computed.card.key, line.key, line.resource, line.discount
    return (
        key.account,
        period_id,
        tenant_id,
        key.kind,
        key.sku,
        key.resource_key,
        key.day_ms,
        line.charge_from_ms,
        line.charge_to_ms,
        device.cluster,
        device.node_uid,
        resource.node,
        device.device_uuid,
        key.model,
        resource.namespace,
        resource.pod,
        resource.container,
        line.own_quantity,
        line.quantity,
        line.held_not_running_ppm_ms,
        line.degraded_ppm_ms,
        line.unit,
        line.currency,
        key.price_id or None,
        key.policy_id or None,
        None if line.price is None else line.price.unit_price,
        key.discount_id or None,
        None if discount is None else discount.percent,
        line.amount,
        0,
    )


def open_days(computed: Computed, since_ms: int) -> set[int]:
    """The days, from an instant on, that time alone will change."""
    interval = computed.run if computed.card.is_unknown else computed.card.unsettled
    if interval is None:
        return set()
    first = interval[0] - interval[0] % MS_PER_DAY
    return {day_ms for day_ms in range(first, interval[1] + 1, MS_PER_DAY) if day_ms >= since_ms}


def settle_marks(session: Session, unsettled: Mapping[DeviceKey, Collection[int]]) -> None:
    """Keep marks, as rated, on the days of cards that time alone will change; delete their others."""
    sealed_to_ms = session.scalar(
        select(func.max(BillingPeriod.ends_at_ms)).where(BillingPeriod.state != OPEN)
    )
    for group in groups_of(session, unsettled):
        if sealed_to_ms is not None:
            _keep_late_days(session, group, sealed_to_ms)
        session.execute(delete(RatingMark).where(of_devices(RatingMark, group)))
    rows = [
        {
            "cluster": key.cluster,
            "node_uid": key.node_uid,
            "device_uuid": key.device_uuid,
            "day_ms": day_ms,
            "ingest_seq": RATED,
        }
        for key, days in unsettled.items()
        for day_ms in sorted(days)
    ]
    if rows:
        session.execute(insert(RatingMark), rows)


def _keep_late_days(session: Session, group: Sequence[DeviceKey], sealed_to_ms: int) -> None:
    """Remember which days facts touched after the seal of a period: their lines stay as they are."""
    columns = (RatingMark.cluster, RatingMark.node_uid, RatingMark.device_uuid, RatingMark.day_ms)
    marks = select(*columns, RatingMark.ingest_seq).where(
        of_devices(RatingMark, group), RatingMark.ingest_seq > DUE, RatingMark.day_ms < sealed_to_ms
    )
    for cluster, node_uid, device_uuid, day_ms, ingest_seq in session.execute(marks).all():
        names = {"cluster": cluster, "node_uid": node_uid, "device_uuid": device_uuid}
        session.merge(LateDay(**names, day_ms=day_ms, ingest_seq=ingest_seq))
    session.flush()
