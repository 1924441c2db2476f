"""A sealed period computed again, and compared with what was sealed and posted since.

Invariant: it is computed with the versions and the grace of the seal (or of the last correction), so that
only later facts can make a difference. What is compared is what a tenant owes for one resource and SKU on
one local day; where within the day a line begins is no difference.
Source: `reference/ledger.md §9`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Row, and_, or_, select
from sqlalchemy.orm import Session

from accounting.ledger.intervals import Interval
from accounting.ledger.rounding import EXACT
from accounting.periods.card import devices_held_or_present
from accounting.periods.compute import MS_PER_DAY, Computed, Rulebook, compute_cards, read_rulebook
from accounting.periods.energy import devices_metered
from accounting.periods.lines import Line
from accounting.periods.rating_state import rated_as_of_ms
from accounting.periods.reading import groups_of, of_devices
from accounting.progress import Progress, unseen
from accounting.store.book_tables import RATED_KINDS
from accounting.store.models import BillingAccount, BillingPeriod, Correction, LedgerLine, Tenant
from accounting.store.versions import Known
from accounting.tenants.rules import clusters_of
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid

AnyRow: TypeAlias = Row[*tuple[Any, ...]]
"""Columns of a line, by their names."""

_CARDS_AT_A_TIME = 16


@dataclass(frozen=True, slots=True)
class ComputedAs:
    """What a computation depends on besides facts: where these are equal, one serves for all who ask."""

    run: Interval
    known: str
    """`Known` as text."""
    as_of_ms: int
    grace_ms: int


def groups_of_cards(cards: Sequence[DeviceKey]) -> Iterator[Sequence[DeviceKey]]:
    """Neighbouring cards of one cluster, some at a time."""
    for _, of_cluster in groupby(cards, key=attrgetter("cluster")):
        rest = list(of_cluster)
        yield from (rest[at : at + _CARDS_AT_A_TIME] for at in range(0, len(rest), _CARDS_AT_A_TIME))


@dataclass(frozen=True, slots=True, order=True)
class WorthKey:
    """What is compared: who owes for what on which day."""

    tenant: str
    kind: str
    sku: str
    resource_key: str
    day_ms: int


@dataclass(slots=True)
class Worth:
    """What some lines of one key come to."""

    own_quantity: int = 0
    quantity: int = 0
    amount: Decimal = Decimal(0)
    unrated_models: set[str] = field(default_factory=set)
    price_versions: set[int] = field(default_factory=set)

    def add(
        self, line: Line | AnyRow, *, currency: str | None, model: str, price_version: int | None
    ) -> None:
        """Add a line."""
        self.own_quantity += line.own_quantity
        self.quantity += line.quantity
        if price_version is not None:
            self.price_versions.add(price_version)
        if line.amount is not None:
            self.amount = EXACT.add(self.amount, line.amount)
        elif currency is not None:
            self.unrated_models.add(model)

    @property
    def figures(self) -> tuple[int, int, Decimal]:
        """Own and charged quantity, and amount."""
        return self.own_quantity, self.quantity, self.amount


@dataclass(frozen=True, slots=True)
class Described:
    """What a line is about."""

    charge_from_ms: int
    charge_to_ms: int
    node: str
    model: str
    namespace: str
    pod: str
    container: str
    unit: str

    @classmethod
    def computed(cls, line: Line) -> Described:
        """A line that the facts give."""
        where = line.resource
        return cls(
            line.charge_from_ms,
            line.charge_to_ms,
            where.node,
            line.key.model,
            where.namespace,
            where.pod,
            where.container,
            line.unit,
        )

    @classmethod
    def stored(cls, line: AnyRow) -> Described:
        """A line that was sealed or posted."""
        return cls(
            line.charge_from_ms,
            line.charge_to_ms,
            line.node,
            line.model,
            line.namespace,
            line.pod,
            line.container,
            line.unit,
        )


@dataclass(frozen=True, slots=True)
class Difference:
    """A key whose sealed and posted lines are not what the facts give."""

    card: DeviceKey
    key: WorthKey
    stands: Worth
    """What was sealed, and posted since."""
    again: Worth
    described: Described
    """By the facts, or by the line that they no longer give."""

    @property
    def amount(self) -> Decimal:
        """What is missing."""
        return EXACT.subtract(self.again.amount, self.stands.amount)


Standing: TypeAlias = Sequence[AnyRow]
"""Lines of one card, as `_COLUMNS`."""

_COLUMNS = (
    LedgerLine.cluster,
    LedgerLine.node_uid,
    LedgerLine.device_uuid,
    LedgerLine.tenant_id,
    LedgerLine.kind,
    LedgerLine.sku,
    LedgerLine.resource_key,
    LedgerLine.day_ms,
    LedgerLine.charge_from_ms,
    LedgerLine.charge_to_ms,
    LedgerLine.node,
    LedgerLine.model,
    LedgerLine.namespace,
    LedgerLine.pod,
    LedgerLine.container,
    LedgerLine.own_quantity,
    LedgerLine.quantity,
    LedgerLine.unit,
    LedgerLine.currency,
    LedgerLine.price_version_id,
    LedgerLine.amount,
    LedgerLine.corrects_kind,
    LedgerLine.corrects_day_ms,
)


@dataclass(slots=True)
class Recomputation:
    """A closed period, computed again card by card."""

    session: Session
    account: BillingAccount
    period: BillingPeriod
    known: Known
    progress: Progress = unseen
    as_of_ms: int = field(init=False)
    _rulebook: Rulebook = field(init=False)
    _tenants: dict[int, Tenant] = field(init=False)

    def __post_init__(self) -> None:
        assert self.period.as_of_ms is not None
        assert self.period.grace_ms is not None
        self.as_of_ms = max(self.period.as_of_ms, rated_as_of_ms(self.session) or 0)
        self._rulebook = read_rulebook(self.session, self.known)
        self._tenants = {tenant.id: tenant for tenant in self.session.scalars(select(Tenant))}

    @property
    def window(self) -> Interval:
        """The period."""
        return self.period.starts_at_ms, self.period.ends_at_ms

    @property
    def computed_as(self) -> ComputedAs:
        """What it is computed with."""
        start, end = self.window
        assert self.period.grace_ms is not None
        run = (start - start % MS_PER_DAY, -(-end // MS_PER_DAY) * MS_PER_DAY)
        return ComputedAs(run, self.known.text, self.as_of_ms, self.period.grace_ms)

    @property
    def rulebook(self) -> Rulebook:
        """The versions that it is computed with."""
        return self._rulebook

    def differences(self) -> Iterator[Difference]:
        """Every key that differs, by card."""
        cards, done = self.cards(), 0
        how = self.computed_as
        for group in groups_of_cards(cards):
            self.progress("computing again", done, len(cards))
            stands = self.stands(group)
            computed: dict[DeviceKey, Computed] = {}
            if group[0].cluster in self._rulebook.books:
                again = compute_cards(
                    self.session, group, how.run, self._rulebook, as_of_ms=how.as_of_ms, grace_ms=how.grace_ms
                )
                computed = {one.card.key: one for one in again}
            for card in group:
                yield from self.compare(card, stands[card], computed.get(card))
            done += len(group)

    def cards(self) -> list[DeviceKey]:
        """All that may have held, drawn or used something in the period, and all that lines speak of."""
        clusters = set(clusters_of(self.session, self.account.code))
        reach = (self.window[0] - MS_PER_DAY, self.window[1] + MS_PER_DAY)
        assert self.period.grace_ms is not None
        known = {
            key
            for key in devices_held_or_present(self.session, reach, grace_ms=self.period.grace_ms)
            if key.cluster in clusters
        }
        known |= devices_metered(self.session, clusters, self.window)
        of_lines = select(LedgerLine.cluster, LedgerLine.node_uid, LedgerLine.device_uuid)
        rows = self.session.execute(of_lines.where(self._standing()).distinct())
        known.update(DeviceKey(ClusterCode(row[0]), NodeUid(row[1]), DeviceUuid(row[2])) for row in rows)
        return sorted(known)

    def _standing(self) -> ColumnElement[bool]:
        sealed = and_(LedgerLine.period_id == self.period.id, LedgerLine.kind.in_(RATED_KINDS))
        return or_(sealed, LedgerLine.corrects_period_id == self.period.id)

    def stands(self, cards: Sequence[DeviceKey]) -> Mapping[DeviceKey, Standing]:
        """The lines of some cards that were sealed, and those posted since, in the order of their ids."""
        found: dict[DeviceKey, list[AnyRow]] = {card: [] for card in cards}
        for group in groups_of(self.session, cards):
            rows = self.session.execute(
                select(*_COLUMNS)
                .where(
                    LedgerLine.account == self.account.code, of_devices(LedgerLine, group), self._standing()
                )
                .order_by(LedgerLine.id)
            )
            for row in rows:
                key = DeviceKey(ClusterCode(row.cluster), NodeUid(row.node_uid), DeviceUuid(row.device_uuid))
                found[key].append(row)
        return found

    def compare(self, card: DeviceKey, lines: Standing, computed: Computed | None) -> Iterator[Difference]:
        """What differs on a card.

        Args:
            card: Which.
            lines: What stands.
            computed: What the facts give; None: the card's cluster is none of ours, so nothing.
        """
        stands, sealed = self._worth_of(lines)
        again, first = self._worth_again(() if computed is None else computed.lines)
        for key in sorted(stands.keys() | again.keys()):
            before, now = stands.get(key, Worth()), again.get(key, Worth())
            if before.figures != now.figures or now.unrated_models:
                line = first.get(key)
                described = Described.stored(sealed[key]) if line is None else Described.computed(line)
                yield Difference(card, key, before, now, described)

    def _worth_of(self, lines: Standing) -> tuple[dict[WorthKey, Worth], dict[WorthKey, AnyRow]]:
        worth: dict[WorthKey, Worth] = defaultdict(Worth)
        first: dict[WorthKey, AnyRow] = {}
        for line in lines:
            tenant = self._tenants[line.tenant_id]
            key = WorthKey(
                tenant.path,
                line.corrects_kind or line.kind,
                line.sku,
                line.resource_key,
                line.day_ms if line.corrects_day_ms is None else line.corrects_day_ms,
            )
            worth[key].add(
                line, currency=line.currency, model=line.model, price_version=line.price_version_id
            )
            first.setdefault(key, line)
        return worth, first

    def _worth_again(self, lines: Iterable[Line]) -> tuple[dict[WorthKey, Worth], dict[WorthKey, Line]]:
        start, end = self.window
        worth: dict[WorthKey, Worth] = defaultdict(Worth)
        first: dict[WorthKey, Line] = {}
        for line in lines:
            if line.key.account != self.account.code or not start <= line.key.day_ms < end:
                continue
            key = WorthKey(
                line.key.tenant, line.key.kind, line.key.sku, line.key.resource_key, line.key.day_ms
            )
            worth[key].add(
                line, currency=line.currency, model=line.key.model, price_version=line.key.price_id or None
            )
            first.setdefault(key, line)
        return worth, first


def last_correction(session: Session, period: BillingPeriod) -> Correction | None:
    """The newest correction of a period."""
    return session.scalar(
        select(Correction)
        .where(Correction.period_id == period.id)
        .order_by(Correction.revision.desc())
        .limit(1)
    )


def known_to(period: BillingPeriod, correction: Correction | None) -> Known:
    """The versions that a period was sealed with, or last corrected with."""
    assert period.versions is not None
    return Known.from_text(period.versions if correction is None else correction.versions)


def watermark_of(period: BillingPeriod, correction: Correction | None) -> int:
    """The ingest number up to which facts are in the seal and its corrections."""
    assert period.ingest_watermark is not None
    return period.ingest_watermark if correction is None else correction.ingest_watermark


def unrated_models(differences: Iterable[Difference]) -> Sequence[str]:
    """Models without a price that differences would need."""
    return sorted({model for one in differences for model in one.again.unrated_models})
