"""Cards of a month, computed again and compared with what is stored of them, some cards at a time.

Invariant: it writes nothing, and keeps no more than some cards, however many there are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple, TypeAlias

from sqlalchemy import ColumnElement, and_, false, or_, select
from sqlalchemy.orm import Session

from accounting.ledger.calendar import day_bounds_ms
from accounting.ledger.intervals import Interval, overlaps
from accounting.ledger.rounding import amount_of
from accounting.periods.card import devices_held_or_present
from accounting.periods.compute import MS_PER_DAY, Computed, Rulebook, read_rulebook
from accounting.periods.energy import devices_metered
from accounting.periods.findings import Finding, card_named
from accounting.periods.lines import Line
from accounting.periods.rating_state import rated_grace_ms
from accounting.periods.reading import groups_of, of_devices
from accounting.periods.recompute import AnyRow, ComputedAs
from accounting.periods.replacing import RATED
from accounting.store.book_tables import RATED_KINDS
from accounting.store.models import (
    DeviceHour,
    LedgerLine,
    PriceVersion,
    RatingMark,
    Tenant,
    TenantDiscount,
)
from accounting.store.versions import Known
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid


def of_month(windows: Mapping[str, Interval]) -> ColumnElement[bool]:
    """Lines of these accounts, each in its own window."""
    return or_(
        false(),
        *(
            and_(LedgerLine.account == code, LedgerLine.day_ms >= start, LedgerLine.day_ms < end)
            for code, (start, end) in windows.items()
        ),
    )


def device_of(cluster: str, node_uid: str, device_uuid: str) -> DeviceKey:
    """A device by its names in a row."""
    return DeviceKey(ClusterCode(cluster), NodeUid(node_uid), DeviceUuid(device_uuid))


def due_days(session: Session, window: Interval) -> set[tuple[DeviceKey, int]]:
    """Days of cards that are to be rated again, in the window."""
    marks = session.scalars(
        select(RatingMark).where(
            RatingMark.ingest_seq != RATED, RatingMark.day_ms >= window[0], RatingMark.day_ms < window[1]
        )
    )
    return {(device_of(mark.cluster, mark.node_uid, mark.device_uuid), mark.day_ms) for mark in marks}


class _Amounts:
    """Each amount is its quantity at the price and less the discount of the versions that it names."""

    def __init__(self, session: Session) -> None:
        self._prices = {row.id: row.unit_price for row in session.scalars(select(PriceVersion))}
        self._discounts = {row.id: row.percent for row in session.scalars(select(TenantDiscount))}

    def findings(self, lines: Iterable[AnyRow]) -> Iterator[Finding]:
        """Of lines that rating made: what moves money has no price."""
        for line in lines:
            wanted: Decimal | None = None
            if line.price_version_id is not None and line.currency is not None:
                of_discount = line.discount_version_id
                wanted = amount_of(
                    line.quantity,
                    self._prices[line.price_version_id],
                    unit=line.unit,
                    percent=None if of_discount is None else self._discounts[of_discount],
                )
            if line.amount != wanted:
                yield Finding(
                    "line_amount",
                    f"line {line.id} of {line.account}",
                    f"the amount is {line.amount}, its quantity at its price is {wanted}",
                )


@dataclass(slots=True)
class CardsAgain:
    """The ledger of every card and day of the period, computed again, some cards at a time."""

    session: Session
    windows: Mapping[str, Interval]
    whole: Interval
    as_of_ms: int
    days: int = 0
    _rulebook: Rulebook = field(init=False)
    _amounts: _Amounts = field(init=False)
    _paths: dict[int, str] = field(init=False)
    _due: dict[DeviceKey, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self._rulebook = read_rulebook(self.session)
        self._amounts = _Amounts(self.session)
        self._paths = {tenant.id: tenant.path for tenant in self.session.scalars(select(Tenant))}
        self._due = defaultdict(list)
        for key, day_ms in due_days(self.session, (self.whole[0] - MS_PER_DAY, self.whole[1] + MS_PER_DAY)):
            self._due[key].append(day_ms)

    @property
    def computed_as(self) -> ComputedAs | None:
        """What it is computed with; None: the month has not begun."""
        today_ms = self.as_of_ms - self.as_of_ms % MS_PER_DAY
        run = (self.whole[0], min(self.whole[1], today_ms + MS_PER_DAY))
        if run[0] >= run[1]:
            return None
        return ComputedAs(run, Known.now(self.session).text, self.as_of_ms, rated_grace_ms(self.session))

    @property
    def rulebook(self) -> Rulebook:
        """The versions that hold now."""
        return self._rulebook

    def stored(self, cards: Sequence[DeviceKey]) -> Stored:
        """What is stored of some cards."""
        return Stored(self.session, cards, self.whole, self.windows)

    def wrong_amounts(self, stored: Stored) -> Iterator[Finding]:
        """Lines whose amount is not their quantity at their price."""
        for of_card in stored.lines.values():
            yield from self._amounts.findings(of_card)

    def of_nobody(self, key: DeviceKey) -> Finding:
        """What there is to say of a card whose cluster is none of ours."""
        detail = "no cluster of this code is registered, so no fact gives what is stored of it"
        return Finding("line_recomputed", card_named(key, self.whole[0]), detail)

    def compare(self, computed: Computed, stored: Stored) -> Iterator[Finding]:
        """What differs on a card, but for days that are due."""
        key = computed.card.key
        due_days = self._due.get(key, ())
        self.days += (computed.run[1] - computed.run[0]) // MS_PER_DAY - len(due_days)
        yield from _hours_again(computed, stored.hours[key], due_days)
        yield from self._lines_again(computed, stored.lines[key], due_days)

    def cards(self) -> set[DeviceKey]:
        """All that held, drew or used something or were there, and all that something is stored of."""
        known = set(devices_held_or_present(self.session, self.whole, grace_ms=rated_grace_ms(self.session)))
        known |= devices_metered(self.session, self._rulebook.books, self.whole)
        hour, line = DeviceHour, LedgerLine
        of_hours = select(hour.cluster, hour.node_uid, hour.device_uuid).where(
            hour.hour_ms >= self.whole[0], hour.hour_ms < self.whole[1]
        )
        of_lines = select(line.cluster, line.node_uid, line.device_uuid).where(
            of_month(self.windows), line.kind.in_(RATED_KINDS)
        )
        for query in (of_hours, of_lines):
            known.update(device_of(*row) for row in self.session.execute(query.distinct()))
        return known

    def _lines_again(
        self, computed: Computed, lines: Sequence[AnyRow], due_days: Sequence[int]
    ) -> Iterator[Finding]:
        key = computed.card.key
        stored = {_stored_key(line, self._paths): _stored_values(line) for line in lines}
        again = {
            _computed_key(line): _computed_values(line) for line in computed.lines if self._is_of_period(line)
        }
        if stored == again:
            return
        books = self._rulebook.books[key.cluster]
        zones = {one.code: one.time_zone for one in books.accounts}
        for line_key in sorted(stored.keys() | again.keys()):
            if stored.get(line_key) == again.get(line_key):
                continue
            day = day_bounds_ms(line_key.day_ms, zones[line_key.account])
            if any(overlaps(day, (due_ms, due_ms + MS_PER_DAY)) for due_ms in due_days):
                continue
            yield Finding(
                "line_recomputed",
                f"{line_key.kind} of {line_key.tenant} on {card_named(key, line_key.day_ms)}",
                f"stored {stored.get(line_key)}, the facts give {again.get(line_key)}",
            )

    def _is_of_period(self, line: Line) -> bool:
        window = self.windows.get(line.key.account, (0, 0))
        return window[0] <= line.key.day_ms < window[1]


_HourSums: TypeAlias = tuple[int, int, int, int]
"""Present, charged, idle and down time."""


_COLUMNS = (
    LedgerLine.id,
    LedgerLine.account,
    LedgerLine.tenant_id,
    LedgerLine.kind,
    LedgerLine.sku,
    LedgerLine.resource_key,
    LedgerLine.day_ms,
    LedgerLine.charge_from_ms,
    LedgerLine.charge_to_ms,
    LedgerLine.cluster,
    LedgerLine.node_uid,
    LedgerLine.device_uuid,
    LedgerLine.own_quantity,
    LedgerLine.quantity,
    LedgerLine.held_not_running_quantity,
    LedgerLine.degraded_quantity,
    LedgerLine.unit,
    LedgerLine.currency,
    LedgerLine.price_version_id,
    LedgerLine.policy_version_id,
    LedgerLine.discount_version_id,
    LedgerLine.amount,
)


class Stored:
    """What is stored of some cards: hours and rated lines of open periods, by card."""

    def __init__(
        self,
        session: Session,
        keys: Sequence[DeviceKey],
        whole: Interval,
        windows: Mapping[str, Interval],
    ) -> None:
        self.hours: dict[DeviceKey, dict[int, _HourSums]] = {key: {} for key in keys}
        self.lines: dict[DeviceKey, list[AnyRow]] = {key: [] for key in keys}
        hour = DeviceHour
        columns = (hour.cluster, hour.node_uid, hour.device_uuid, hour.hour_ms)
        sums = (hour.present_ppm_ms, hour.charged_ppm_ms, hour.idle_ppm_ms, hour.down_ppm_ms)
        for group in groups_of(session, keys):
            rows = session.execute(
                select(*columns, *sums).where(
                    of_devices(hour, group), hour.hour_ms >= whole[0], hour.hour_ms < whole[1]
                )
            )
            for cluster, node_uid, device_uuid, hour_ms, present, charged, idle, down in rows:
                of_card = self.hours[device_of(cluster, node_uid, device_uuid)]
                of_card[hour_ms] = (present, charged, idle, down)
            lines = session.execute(
                select(*_COLUMNS)
                .where(of_devices(LedgerLine, group), of_month(windows), LedgerLine.kind.in_(RATED_KINDS))
                .order_by(LedgerLine.id)
            )
            for line in lines:
                self.lines[device_of(line.cluster, line.node_uid, line.device_uuid)].append(line)


def _hours_again(
    computed: Computed, stored: Mapping[int, _HourSums], due_days: Sequence[int]
) -> Iterator[Finding]:
    again = {
        hour_ms: (hour.present_ppm_ms, hour.charged_ppm_ms, hour.idle_ppm_ms, hour.down_ppm_ms)
        for hour_ms, hour in computed.hours.items()
    }
    for hour_ms in sorted(stored.keys() | again.keys()):
        is_due = hour_ms - hour_ms % MS_PER_DAY in due_days
        if not is_due and stored.get(hour_ms) != again.get(hour_ms):
            yield Finding(
                "hour_recomputed",
                card_named(computed.card.key, hour_ms),
                f"stored {stored.get(hour_ms)}, the facts give {again.get(hour_ms)} "
                "(present, charged, idle, down in ppm·ms)",
            )


class _LineKey(NamedTuple):
    """What makes a stored line and a computed one the same."""

    account: str
    tenant: str
    kind: str
    sku: str
    resource_key: str
    day_ms: int
    charge_from_ms: int


class _LineValues(NamedTuple):
    charge_to_ms: int
    own_quantity: int
    quantity: int
    held_not_running_ppm_ms: int
    degraded_ppm_ms: int
    price_version: int | None
    policy_version: int | None
    discount_version: int | None
    amount: Decimal | None


def _stored_key(line: AnyRow, paths: dict[int, str]) -> _LineKey:
    tenant = paths[line.tenant_id]
    return _LineKey(
        line.account, tenant, line.kind, line.sku, line.resource_key, line.day_ms, line.charge_from_ms
    )


def _computed_key(line: Line) -> _LineKey:
    key = line.key
    return _LineKey(
        key.account, key.tenant, key.kind, key.sku, key.resource_key, key.day_ms, line.charge_from_ms
    )


def _stored_values(line: AnyRow) -> _LineValues:
    return _LineValues(
        line.charge_to_ms,
        line.own_quantity,
        line.quantity,
        line.held_not_running_quantity,
        line.degraded_quantity,
        line.price_version_id,
        line.policy_version_id,
        line.discount_version_id,
        line.amount,
    )


def _computed_values(line: Line) -> _LineValues:
    return _LineValues(
        line.charge_to_ms,
        line.own_quantity,
        line.quantity,
        line.held_not_running_ppm_ms,
        line.degraded_ppm_ms,
        line.key.price_id or None,
        line.key.policy_id or None,
        line.key.discount_id or None,
        line.amount,
    )
