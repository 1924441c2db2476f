"""From segments to ledger lines and device hours: sums only, nothing is divided again.

A line is one local day of its account, one resource and one SKU at one price. Invariant: over any set of
whole days the quantities of the lines of a card are what its segments charged and left idle.
Source: `reference/ledger.md §7` (grain of a line).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, TypeAlias

from accounting.ledger.calendar import day_bounds_ms
from accounting.ledger.policies import PolicyRule
from accounting.ledger.pricing import SKU_ENERGY, SKU_IDLE, SKU_SLICE, Discount, Price
from accounting.ledger.rounding import MJ, PPM_MS, amount_of
from accounting.ledger.sweep import Part, Segment
from accounting.ledger.tenancy import IDLE_PATH, Claim
from accounting.periods.card import Card, HeldSlice
from accounting.periods.tariff import Account, Books, Tariff
from contract.ids import SliceKey
from contract.units import MS_PER_HOUR, hour_start_ms

LineKind: TypeAlias = Literal["usage", "energy", "idle", "unallocated"]


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who bears a line: a tenant, and the account that the line is in."""

    account: Account
    path: str

    @classmethod
    def of(cls, books: Books, claim: Claim, at_ms: int) -> Bearer:
        """The owner of a claim at an instant."""
        owner = books.owned(claim).at(at_ms)
        return cls(books.account_of(owner), owner.path)


@dataclass(frozen=True, slots=True)
class Resource:
    """What a line is about: a slice, a container without one, or (the last three empty) a whole card."""

    key: str
    node: str
    namespace: str = ""
    pod: str = ""
    container: str = ""

    @classmethod
    def of_slice(cls, one: HeldSlice) -> Resource:
        """A slice."""
        allocation = one.allocation
        return cls(
            str(one.allocation_id),
            allocation.node,
            allocation.namespace,
            allocation.pod,
            allocation.slice_key.container,
        )


@dataclass(frozen=True, slots=True, order=True)
class LineKey:
    """What makes two segments one line."""

    account: str
    kind: LineKind
    sku: str
    resource_key: str
    tenant: str
    """The path."""
    day_ms: int
    model: str
    price_id: int
    """0: no price."""
    policy_id: int
    """0: the default of the policy."""
    discount_id: int
    """0: no discount."""


@dataclass(slots=True)
class Line:
    """A line as it grows over its segments."""

    key: LineKey
    bearer: Bearer
    resource: Resource
    charge_from_ms: int
    charge_to_ms: int
    price: Price | None
    discount: Discount | None
    own_quantity: int = 0
    quantity: int = 0
    held_not_running_ppm_ms: int = 0
    degraded_ppm_ms: int = 0

    @property
    def unit(self) -> str:
        """Of the quantities."""
        return MJ if self.key.sku == SKU_ENERGY else PPM_MS

    @property
    def currency(self) -> str | None:
        """Of the account."""
        return self.bearer.account.currency

    @property
    def amount(self) -> Decimal | None:
        """The exact amount; None where nothing is priced."""
        if self.price is None or self.currency is None:
            return None
        percent = None if self.discount is None else self.discount.percent
        return amount_of(self.quantity, self.price.unit_price, unit=self.unit, percent=percent)


@dataclass(slots=True)
class Hour:
    """One device and UTC hour, as it grows over its segments."""

    present_ppm_ms: int = 0
    charged_ppm_ms: int = 0
    idle_ppm_ms: int = 0
    down_ppm_ms: int = 0
    confirmed_ms: int = 0
    model: str = ""


@dataclass(slots=True)
class _Days:
    """The local days of one zone, each looked up once for the run of segments within it."""

    zone: str
    bounds: tuple[int, int] = (0, 0)

    def of(self, at_ms: int) -> tuple[int, int]:
        if not self.bounds[0] <= at_ms < self.bounds[1]:
            self.bounds = day_bounds_ms(at_ms, self.zone)
        return self.bounds


@dataclass(frozen=True, slots=True)
class Entry:
    """What one stretch adds to a line; it crosses no local midnight and no change of price or policy."""

    kind: LineKind
    sku: str
    bearer: Bearer
    resource: Resource
    model: str
    from_ms: int
    to_ms: int
    policy: PolicyRule | None
    source: str = ""
    """Of energy: what it was drawn for (`ledger.energy.EnergySource`)."""
    holder: SliceKey | None = None
    """Of energy: the container, since the line is that of all of a tenant's on the card."""
    claim: Claim | None = None
    """What decided who bears it; None: it is nobody's but the platform's."""


@dataclass(frozen=True, slots=True)
class Booked:
    """One step by which a line grew: what `explain` shows."""

    key: LineKey
    entry: Entry
    own_quantity: int
    quantity: int


@dataclass(frozen=True, slots=True)
class _Growing:
    """The line that a slice's card time goes to until some instant, on a card of one model."""

    line: Line
    until_ms: int


@dataclass(slots=True)
class Lines:
    """Adds what happened on a card up to lines; each step goes to `trail`, where somebody wants to know."""

    card: Card
    books: Books
    trail: list[Booked] | None = None
    lines: dict[LineKey, Line] = field(default_factory=dict)
    tariff: Tariff = field(init=False)
    _days: dict[str, _Days] = field(default_factory=dict)
    _growing: dict[SliceKey, _Growing] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tariff = Tariff(self.books)

    @property
    def card_resource(self) -> Resource:
        """The card itself."""
        return Resource(card_resource_key(self.card), self.card.node)

    def add(self, segments: Sequence[Segment]) -> None:
        """Add the card time of segments, in time order."""
        idle = Bearer(self.books.platform, IDLE_PATH)
        for segment in segments:
            for part in segment.parts:
                self._charge(segment, part)
            if segment.idle_ppm_ms:
                policy = self.tariff.policy("share", segment.from_ms)
                when = (segment.from_ms, segment.to_ms)
                entry = Entry("idle", SKU_IDLE, idle, self.card_resource, segment.model, *when, policy)
                self.book(entry, segment.idle_ppm_ms, segment.idle_ppm_ms)

    def _charge(self, segment: Segment, part: Part) -> None:
        one = self.card.slices[part.slice_key]
        growing = self._growing.get(part.slice_key)
        # A month has hundreds of millions of parts, and nearly all go where the one before went.
        if (
            growing is not None
            and segment.from_ms < growing.until_ms
            and segment.model == growing.line.key.model
            and self.trail is None
        ):
            line = growing.line
            line.own_quantity += part.own_ppm_ms
            line.quantity += part.charged_ppm_ms
            line.charge_to_ms = segment.to_ms
        else:
            line = self._begin(segment, part, one)
        if one.allocation.started_at_ms is None or segment.from_ms < one.allocation.started_at_ms:
            line.held_not_running_ppm_ms += _not_running(one, segment, part.charged_ppm_ms)
        if part.is_degraded:
            line.degraded_ppm_ms += part.charged_ppm_ms

    def _begin(self, segment: Segment, part: Part, one: HeldSlice) -> Line:
        bearer = Bearer.of(self.books, one.claim, segment.from_ms)
        policy = self.tariff.policy("share", segment.from_ms)
        when = (segment.from_ms, segment.to_ms)
        entry = Entry(
            "usage", SKU_SLICE, bearer, Resource.of_slice(one), segment.model, *when, policy, claim=one.claim
        )
        line = self.book(entry, part.own_ppm_ms, part.charged_ppm_ms)
        day_ends_ms = self._days[bearer.account.time_zone].of(segment.from_ms)[1]
        until_ms = min(day_ends_ms, self.tariff.next_edge_ms(segment.from_ms))
        self._growing[part.slice_key] = _Growing(line, until_ms)
        return line

    def book(self, entry: Entry, own_quantity: int, quantity: int) -> Line:
        """Add an entry to the line that it belongs to."""
        line = self._line(entry)
        line.own_quantity += own_quantity
        line.quantity += quantity
        if self.trail is not None:
            self.trail.append(Booked(line.key, entry, own_quantity, quantity))
        return line

    def _line(self, entry: Entry) -> Line:
        account = entry.bearer.account
        at_ms = entry.from_ms
        price = self.tariff.price(account, entry.sku, entry.model, at_ms)
        discount = None if price is None else self.tariff.discount(entry.bearer.path, at_ms)
        days = self._days.get(account.time_zone)
        if days is None:
            days = self._days[account.time_zone] = _Days(account.time_zone)
        key = LineKey(
            account.code,
            entry.kind,
            entry.sku,
            entry.resource.key,
            entry.bearer.path,
            days.of(at_ms)[0],
            entry.model,
            0 if price is None else price.id,
            0 if entry.policy is None else entry.policy.id,
            0 if discount is None else discount.id,
        )
        line = self.lines.get(key)
        if line is None:
            line = Line(key, entry.bearer, entry.resource, at_ms, entry.to_ms, price, discount)
            self.lines[key] = line
        line.charge_from_ms = min(line.charge_from_ms, at_ms)
        line.charge_to_ms = max(line.charge_to_ms, entry.to_ms)
        return line


def _not_running(one: HeldSlice, segment: Segment, charged_ppm_ms: int) -> int:
    """The part of a charge for the time before the slice's first container ran."""
    started_ms = one.allocation.started_at_ms
    until_ms = one.held.to_ms if started_ms is None else started_ms
    waiting_ms = min(until_ms, segment.to_ms) - segment.from_ms
    return 0 if waiting_ms <= 0 else charged_ppm_ms * waiting_ms // (segment.to_ms - segment.from_ms)


def card_resource_key(card: Card) -> str:
    """How a line names a whole card."""
    return "/".join((card.key.cluster, card.key.node_uid, card.key.device_uuid))


def device_hours(segments: Sequence[Segment]) -> dict[int, Hour]:
    """The closing identity of each UTC hour that the segments touch."""
    hours: dict[int, Hour] = {}
    for segment in segments:
        hour = hours.setdefault(hour_start_ms(segment.from_ms), Hour())
        assert segment.to_ms <= hour_start_ms(segment.from_ms) + MS_PER_HOUR
        hour.present_ppm_ms += segment.present_ppm_ms
        hour.charged_ppm_ms += segment.charged_ppm_ms
        hour.idle_ppm_ms += segment.idle_ppm_ms
        hour.down_ppm_ms += segment.down_ppm_ms
        hour.confirmed_ms += segment.to_ms - segment.from_ms if segment.is_confirmed else 0
        hour.model = segment.model
    return hours
