"""What another set of rules, moves, prices or policies would make of the open months; written nowhere.

Both sides are computed from the facts as rating computes them, at the instant that the ledger was rated
for. Invariant: rating after the change, at that instant, gives exactly the figures that are foretold here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NoReturn

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from accounting.ledger.calendar import month_bounds_ms, month_of, parse_month
from accounting.ledger.intervals import Interval
from accounting.ledger.pricing import SKU_ENERGY
from accounting.ledger.rounding import EXACT, MJ, PPM_MS, amount_of
from accounting.periods.compute import MS_PER_DAY, Computed, Rulebook, compute, read_rulebook
from accounting.periods.lines import Booked, Line
from accounting.periods.months import OPEN
from accounting.periods.rating_state import rated_as_of_ms, rated_grace_ms
from accounting.periods.replacing import RATED
from accounting.periods.tariff import Account, Books, Tariff
from accounting.progress import Progress, unseen
from accounting.store.database import Database
from accounting.store.models import BillingPeriod, LedgerLine, RatingMark, Tenant
from accounting.tenants.touched import ChangedHands
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid


@dataclass(slots=True)
class Bill:
    """What some lines come to."""

    charged_ppm_ms: int = 0
    """Card time that a tenant is charged, idle and unallocated time that has a line included."""
    energy_mj: int = 0
    amount: Decimal = Decimal(0)
    unrated_models: set[str] = field(default_factory=set)

    def add(self, quantity: int, unit: str, amount: Decimal | None) -> None:
        """Add a line, or a step of one."""
        if unit == MJ:
            self.energy_mj += quantity
        else:
            self.charged_ppm_ms += quantity
        if amount is not None:
            self.amount = EXACT.add(self.amount, amount)

    @property
    def figures(self) -> tuple[int, int, Decimal]:
        """Card time, energy and amount."""
        return self.charged_ppm_ms, self.energy_mj, self.amount


@dataclass(frozen=True, slots=True, order=True)
class BillKey:
    """Whose month."""

    account: str
    period: str
    tenant: str


@dataclass(frozen=True, slots=True)
class Change:
    """A tenant's month that would come to something else."""

    key: BillKey
    currency: str | None
    stands: Bill
    """All lines of the month as they are stored now."""
    would: Bill
    """The same after the next rating."""


@dataclass(frozen=True, slots=True, order=True)
class PassedOn:
    """What would go from one tenant to another in a month; the periods are of the receiver's account."""

    period: str
    from_tenant: str
    from_account: str
    to_tenant: str
    to_account: str


@dataclass(slots=True)
class Passing:
    """How much of it, and what it costs him who gives and him who gets it."""

    containers: set[str] = field(default_factory=set)
    """Slices, and containers that used the card without one."""
    before: Bill = field(default_factory=Bill)
    after: Bill = field(default_factory=Bill)


@dataclass(frozen=True, slots=True)
class Foretold:
    """What would change if the open months were rated by other versions."""

    as_of_ms: int | None
    """The instant that both sides are seen from; None: nothing was ever rated."""
    cards: int
    changes: Sequence[Change]
    passings: Mapping[PassedOn, Passing]
    closed: Sequence[tuple[str, str]]
    """Account and month: closed, concerned, and left as they are."""


class _UndoError(Exception):
    """Ends a transaction that is not to be kept."""


def _undo() -> NoReturn:
    raise _UndoError


def foretell_tenancy(
    database: Database, change: Callable[[Session], ChangedHands], *, progress: Progress = unseen
) -> Foretold:
    """What a rule or move would change, told by making it and taking it back.

    Args:
        database: The books; they are left as they are.
        change: Records the rule or move and raises what saving it would raise.
        progress: Who wants to know how far it is.
    """
    told: list[tuple[ChangedHands, Rulebook]] = []
    with suppress(_UndoError), database.writing() as session:
        told.append((change(session), read_rulebook(session)))
        _undo()
    changed, after = told[0]
    with database.reading() as session:
        return foretell(session, changed.cards, after, progress=progress)


def foretell_versions(
    database: Database, change: Callable[[Session], object], *, progress: Progress = unseen
) -> Foretold:
    """What a price, policy or discount would change, told by recording it and taking it back.

    Args:
        database: The books; they are left as they are.
        change: Records the version, which makes the cards concerned due, and raises what saving it would.
        progress: Who wants to know how far it is.
    """
    told: list[tuple[Mapping[DeviceKey, Interval], Rulebook]] = []
    with suppress(_UndoError), database.writing() as session:
        change(session)
        told.append((_due_cards(session), read_rulebook(session)))
        _undo()
    cards, after = told[0]
    with database.reading() as session:
        return foretell(session, cards, after, progress=progress)


def _due_cards(session: Session) -> dict[DeviceKey, Interval]:
    """The cards that are due, each from its first such day to its last; facts that wait are on both sides."""
    mark = RatingMark
    card = (mark.cluster, mark.node_uid, mark.device_uuid)
    rows = session.execute(
        select(*card, func.min(mark.day_ms), func.max(mark.day_ms))
        .where(mark.ingest_seq != RATED)
        .group_by(*card)
    )
    return {
        DeviceKey(ClusterCode(cluster), NodeUid(node), DeviceUuid(device)): (first, last + MS_PER_DAY)
        for cluster, node, device, first, last in rows
    }


def foretell(
    session: Session,
    cards: Mapping[DeviceKey, Interval],
    after: Rulebook,
    *,
    progress: Progress = unseen,
) -> Foretold:
    """Compare what holds now with other versions, on cards that may differ and the time in which they may.

    Args:
        session: A reading transaction.
        cards: Which cards, and from when to when.
        after: The rulebook in question.
        progress: Who wants to know how far it is.
    """
    as_of_ms = rated_as_of_ms(session)
    if as_of_ms is None:
        return Foretold(None, 0, (), {}, ())
    before = read_rulebook(session)
    ledger = _Comparison(_periods(session))
    grace_ms = rated_grace_ms(session)
    for done, (key, window) in enumerate(sorted(cards.items())):
        progress("foretelling cards", done, len(cards))
        run = ledger.run_of(window, after.books[key.cluster], as_of_ms)
        if run is None:
            continue
        for side, rulebook in ((0, before), (1, after)):
            trail: list[Booked] | None = [] if side else None
            computed = compute(session, key, run, rulebook, as_of_ms=as_of_ms, grace_ms=grace_ms, trail=trail)
            ledger.add(side, computed)
            if trail is not None:
                ledger.pass_on(trail, computed, before.books[key.cluster], rulebook.books[key.cluster])
    changes = [
        ledger.change(key, _stored(session, key, ledger.zones[key.account])) for key in ledger.differing()
    ]
    return Foretold(as_of_ms, len(cards), changes, ledger.passings, sorted(ledger.closed_in(cards.values())))


def _stored(session: Session, key: BillKey, zone: str) -> Bill:
    """What a tenant's month comes to now."""
    window = month_bounds_ms(parse_month(key.period), zone)
    rows = session.execute(
        select(LedgerLine.quantity, LedgerLine.unit, LedgerLine.amount)
        .join(Tenant, Tenant.id == LedgerLine.tenant_id)
        .where(
            Tenant.path == key.tenant,
            LedgerLine.account == key.account,
            LedgerLine.day_ms >= window[0],
            LedgerLine.day_ms < window[1],
        )
    )
    bill = Bill()
    for quantity, unit, amount in rows:
        bill.add(quantity, unit, amount)
    return bill


def _periods(session: Session) -> dict[str, list[BillingPeriod]]:
    found: dict[str, list[BillingPeriod]] = defaultdict(list)
    for period in session.scalars(select(BillingPeriod).order_by(BillingPeriod.starts_at_ms)):
        found[period.account].append(period)
    return found


@dataclass(slots=True)
class _Comparison:
    """Adds both sides up by tenant and open month."""

    periods: Mapping[str, Sequence[BillingPeriod]]
    bills: dict[BillKey, tuple[Bill, Bill]] = field(default_factory=dict)
    currencies: dict[str, str | None] = field(default_factory=dict)
    zones: dict[str, str] = field(default_factory=dict)
    passings: dict[PassedOn, Passing] = field(default_factory=dict)

    def run_of(self, window: Interval, books: Books, as_of_ms: int) -> Interval | None:
        """The UTC days of a window that may reach into an open month."""
        open_from = [self._open_from(account.code) for account in books.accounts]
        for account in books.accounts:
            self.zones[account.code] = account.time_zone
        start = max(window[0], min(open_from))
        end = min(window[1], as_of_ms + MS_PER_DAY)
        if start >= end:
            return None
        return start - start % MS_PER_DAY, -(-end // MS_PER_DAY) * MS_PER_DAY

    def _open_from(self, account: str) -> int:
        """Where an account's first month begins that is not sealed; a month that it lacks is open."""
        sealed = [one for one in self.periods.get(account, ()) if one.state != OPEN]
        open_ = [one.starts_at_ms for one in self.periods.get(account, ()) if one.state == OPEN]
        if not sealed:
            return 0
        return min([*open_, max(one.ends_at_ms for one in sealed)])

    def _is_open(self, account: str, day_ms: int) -> bool:
        return not any(
            one.starts_at_ms <= day_ms < one.ends_at_ms and one.state != OPEN
            for one in self.periods.get(account, ())
        )

    def add(self, side: int, computed: Computed) -> None:
        for line in computed.lines:
            if not self._is_open(line.key.account, line.key.day_ms):
                continue
            key = self._key(line.bearer.account, line.key.tenant, line.key.day_ms)
            bill = self.bills.setdefault(key, (Bill(), Bill()))[side]
            bill.add(line.quantity, line.unit, line.amount)
            if _is_unrated(line):
                bill.unrated_models.add(line.key.model)

    def _key(self, account: Account, tenant: str, day_ms: int) -> BillKey:
        self.currencies[account.code] = account.currency
        return BillKey(account.code, str(month_of(day_ms, account.time_zone)), tenant)

    def pass_on(self, trail: Sequence[Booked], computed: Computed, before: Books, after: Books) -> None:
        """Add the steps whose owner would be another."""
        old, new = Tariff(before), Tariff(after)
        for step in trail:
            entry = step.entry
            days = computed.days[step.key.account]
            if entry.claim is None or not days[0] <= step.key.day_ms < days[1]:
                continue
            owner = before.owned(entry.claim).at(entry.from_ms)
            giver, getter = before.account_of(owner), entry.bearer.account
            if (owner.path, giver.code) == (entry.bearer.path, getter.code):
                continue
            if not self._is_open(getter.code, step.key.day_ms):
                continue
            period = str(month_of(step.key.day_ms, getter.time_zone))
            key = PassedOn(period, owner.path, giver.code, entry.bearer.path, getter.code)
            passing = self.passings.setdefault(key, Passing())
            if entry.sku != SKU_ENERGY:
                passing.containers.add(entry.resource.key)
            self.currencies |= {giver.code: giver.currency, getter.code: getter.currency}
            passing.before.add(step.quantity, _unit(step), _amount(old, giver, owner.path, step))
            passing.after.add(step.quantity, _unit(step), _amount(new, getter, entry.bearer.path, step))

    def differing(self) -> list[BillKey]:
        """Whose months would change."""
        return sorted(key for key, (before, after) in self.bills.items() if before.figures != after.figures)

    def change(self, key: BillKey, stands: Bill) -> Change:
        """A month, given what it comes to now."""
        before, after = self.bills[key]
        would = Bill(
            stands.charged_ppm_ms + after.charged_ppm_ms - before.charged_ppm_ms,
            stands.energy_mj + after.energy_mj - before.energy_mj,
            EXACT.add(stands.amount, EXACT.subtract(after.amount, before.amount)),
            after.unrated_models,
        )
        return Change(key, self.currencies[key.account], stands, would)

    def closed_in(self, windows: Iterable[Interval]) -> set[tuple[str, str]]:
        """Sealed months of the accounts concerned that windows reach into."""
        reach = list(windows)
        return {
            (account, str(month_of(one.starts_at_ms, zone)))
            for account, zone in self.zones.items()
            for one in self.periods.get(account, ())
            if one.state != OPEN
            and any(start < one.ends_at_ms and one.starts_at_ms < end for start, end in reach)
        }


def _is_unrated(line: Line) -> bool:
    return line.currency is not None and line.amount is None


def _amount(tariff: Tariff, account: Account, tenant: str, step: Booked) -> Decimal | None:
    entry = step.entry
    price = tariff.price(account, entry.sku, entry.model, entry.from_ms)
    if price is None:
        return None
    discount = tariff.discount(tenant, entry.from_ms)
    percent = None if discount is None else discount.percent
    return amount_of(step.quantity, price.unit_price, unit=_unit(step), percent=percent)


def _unit(step: Booked) -> str:
    return MJ if step.entry.sku == SKU_ENERGY else PPM_MS
