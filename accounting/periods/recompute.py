"""A sealed period computed again, and compared with what was sealed and posted since.

Invariant: it is computed with the versions and the grace of the seal (or of the last correction), so that
only later facts can make a difference. What is compared is what a tenant owes for one resource and SKU on
one local day; where within the day a line begins is no difference.
Source: `reference/ledger.md §9`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from accounting.ledger.intervals import Interval
from accounting.ledger.rounding import EXACT
from accounting.periods.card import devices_held_or_present
from accounting.periods.compute import MS_PER_DAY, Rulebook, compute, read_rulebook
from accounting.periods.lines import Line
from accounting.periods.statement import rated_as_of_ms
from accounting.progress import Progress, unseen
from accounting.store.book_tables import RATED_KINDS
from accounting.store.models import BillingAccount, BillingPeriod, Correction, LedgerLine, Tenant
from accounting.store.versions import Known
from accounting.tenants.rules import clusters_of
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid


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
        self, line: Line | LedgerLine, *, currency: str | None, model: str, price_version: int | None
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
    def stored(cls, line: LedgerLine) -> Described:
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


@dataclass(slots=True)
class Recomputation:
    """A closed period, computed again card by card."""

    session: Session
    account: BillingAccount
    period: BillingPeriod
    known: Known
    progress: Progress = unseen
    cards: int = 0
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

    def differences(self) -> Iterator[Difference]:
        """Every key that differs, by card."""
        cards = self._cards()
        for done, card in enumerate(cards):
            self.progress("computing again", done, len(cards))
            yield from self._of_card(card)
            self.cards += 1

    def _cards(self) -> list[DeviceKey]:
        clusters = set(clusters_of(self.session, self.account.code))
        reach = (self.window[0] - MS_PER_DAY, self.window[1] + MS_PER_DAY)
        assert self.period.grace_ms is not None
        known = {
            key
            for key in devices_held_or_present(self.session, reach, grace_ms=self.period.grace_ms)
            if key.cluster in clusters
        }
        of_lines = select(LedgerLine.cluster, LedgerLine.node_uid, LedgerLine.device_uuid)
        rows = self.session.execute(of_lines.where(self._standing()).distinct())
        known.update(DeviceKey(ClusterCode(row[0]), NodeUid(row[1]), DeviceUuid(row[2])) for row in rows)
        return sorted(known)

    def _standing(self) -> ColumnElement[bool]:
        sealed = and_(LedgerLine.period_id == self.period.id, LedgerLine.kind.in_(RATED_KINDS))
        return or_(sealed, LedgerLine.corrects_period_id == self.period.id)

    def _of_card(self, card: DeviceKey) -> Iterator[Difference]:
        stands, sealed = self._stands(card)
        again, computed = self._again(card)
        for key in sorted(stands.keys() | again.keys()):
            before, now = stands.get(key, Worth()), again.get(key, Worth())
            if before.figures != now.figures or now.unrated_models:
                yield Difference(card, key, before, now, computed.get(key) or sealed[key])

    def _stands(self, card: DeviceKey) -> tuple[dict[WorthKey, Worth], dict[WorthKey, Described]]:
        rows = self.session.scalars(
            select(LedgerLine)
            .where(
                LedgerLine.account == self.account.code,
                LedgerLine.cluster == card.cluster,
                LedgerLine.node_uid == card.node_uid,
                LedgerLine.device_uuid == card.device_uuid,
                self._standing(),
            )
            .order_by(LedgerLine.id)
        )
        worth: dict[WorthKey, Worth] = defaultdict(Worth)
        first: dict[WorthKey, Described] = {}
        for line in rows:
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
            first.setdefault(key, Described.stored(line))
        return worth, first

    def _again(self, card: DeviceKey) -> tuple[dict[WorthKey, Worth], dict[WorthKey, Described]]:
        worth: dict[WorthKey, Worth] = defaultdict(Worth)
        first: dict[WorthKey, Described] = {}
        if card.cluster not in self._rulebook.books:
            return worth, first  # a line that names no cluster of ours was tampered with: no fact gives it
        start, end = self.window
        run = (start - start % MS_PER_DAY, -(-end // MS_PER_DAY) * MS_PER_DAY)
        assert self.period.grace_ms is not None
        computed = compute(
            self.session,
            card,
            run,
            self._rulebook,
            as_of_ms=self.as_of_ms,
            grace_ms=self.period.grace_ms,
        )
        for line in computed.lines:
            if line.key.account != self.account.code or not start <= line.key.day_ms < end:
                continue
            key = WorthKey(
                line.key.tenant, line.key.kind, line.key.sku, line.key.resource_key, line.key.day_ms
            )
            worth[key].add(
                line, currency=line.currency, model=line.key.model, price_version=line.key.price_id or None
            )
            first.setdefault(key, Described.computed(line))
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
