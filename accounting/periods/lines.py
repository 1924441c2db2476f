"""From segments to ledger lines and device hours: sums only, nothing is divided again.

A line is one local day of its account, one resource and one SKU at one price. Invariant: over any set of
whole days the quantities of the lines of a card are what its segments charged and left idle.
Source: `reference/ledger.md §7` (grain of a line).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from accounting.ledger.calendar import day_bounds_ms
from accounting.ledger.pricing import SKU_IDLE, SKU_SLICE, Price, resolve, resolve_idle
from accounting.ledger.rounding import amount_of
from accounting.ledger.sweep import Part, Segment
from accounting.periods.card import Card, HeldSlice
from contract.units import MS_PER_HOUR, hour_start_ms

LineKind = Literal["usage", "idle"]


@dataclass(frozen=True, slots=True)
class Account:
    """What rating needs of a billing account."""

    code: str
    currency: str | None
    """None: a showback account, stated in card-hours."""
    time_zone: str


@dataclass(frozen=True, slots=True)
class Books:
    """Who pays for a cluster, at which prices."""

    account: Account
    platform: Account
    prices: Sequence[Price]
    book: str


@dataclass(frozen=True, slots=True, order=True)
class LineKey:
    """What makes two segments one line."""

    account: str
    kind: LineKind
    resource_key: str
    tenant_key: str
    day_ms: int
    model: str
    price_id: int
    """0: no price."""


@dataclass(slots=True)
class Line:
    """A line as it grows over its segments."""

    key: LineKey
    charge_from_ms: int
    charge_to_ms: int
    day_to_ms: int
    price: Price | None
    currency: str | None
    slice: HeldSlice | None
    """None on a line of idle capacity."""
    own_ppm_ms: int = 0
    quantity_ppm_ms: int = 0
    held_not_running_ppm_ms: int = 0
    degraded_ppm_ms: int = 0

    @property
    def sku(self) -> str:
        """What is sold."""
        return SKU_SLICE if self.slice is not None else SKU_IDLE

    @property
    def amount(self) -> Decimal | None:
        """The exact amount; None where nothing is priced."""
        if self.price is None or self.currency is None:
            return None
        return amount_of(self.quantity_ppm_ms, self.price.unit_price)


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


@dataclass(slots=True)
class Lines:
    """Adds a card's segments up to lines."""

    card: Card
    books: Books
    lines: dict[LineKey, Line] = field(default_factory=dict)

    def add(self, segments: Sequence[Segment]) -> None:
        """Add segments; they never cross a local midnight or a change of price."""
        account_days = _Days(self.books.account.time_zone)
        platform_days = _Days(self.books.platform.time_zone)
        find_slice, find_idle = _resolvers(self.books)
        for segment in segments:
            if segment.parts:
                day = account_days.of(segment.from_ms)
                price = find_slice(segment.model, segment.from_ms)
                for part in segment.parts:
                    self._charge(segment, part, day, price)
            if segment.idle_ppm_ms:
                price = find_idle(segment.model, segment.from_ms)
                self._leave_idle(segment, platform_days.of(segment.from_ms), price)

    def _charge(self, segment: Segment, part: Part, day: tuple[int, int], price: Price | None) -> None:
        one = self.card.slices[part.slice_key]
        key = LineKey(
            self.books.account.code,
            "usage",
            str(one.allocation_id),
            one.allocation.tenant_key,
            day[0],
            segment.model,
            0 if price is None else price.id,
        )
        line = self._line(key, segment, day, price, one)
        line.own_ppm_ms += part.own_ppm_ms
        line.quantity_ppm_ms += part.charged_ppm_ms
        line.held_not_running_ppm_ms += _not_running(one, segment, part.charged_ppm_ms)
        line.degraded_ppm_ms += part.charged_ppm_ms if part.is_degraded else 0

    def _leave_idle(self, segment: Segment, day: tuple[int, int], price: Price | None) -> None:
        key = LineKey(
            self.books.platform.code,
            "idle",
            card_resource_key(self.card),
            "",
            day[0],
            segment.model,
            0 if price is None else price.id,
        )
        line = self._line(key, segment, day, price, None)
        line.own_ppm_ms += segment.idle_ppm_ms
        line.quantity_ppm_ms += segment.idle_ppm_ms

    def _line(
        self,
        key: LineKey,
        segment: Segment,
        day: tuple[int, int],
        price: Price | None,
        one: HeldSlice | None,
    ) -> Line:
        line = self.lines.get(key)
        if line is None:
            currency = (self.books.platform if one is None else self.books.account).currency
            line = Line(key, segment.from_ms, segment.to_ms, day[1], price, currency, one)
            self.lines[key] = line
        line.charge_from_ms = min(line.charge_from_ms, segment.from_ms)
        line.charge_to_ms = max(line.charge_to_ms, segment.to_ms)
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


Resolver = Callable[[str, int], Price | None]


def _resolvers(books: Books) -> tuple[Resolver, Resolver]:
    def of_slice(model: str, at_ms: int) -> Price | None:
        currency = books.account.currency
        if currency is None:
            return None
        return resolve(
            books.prices, book=books.book, sku=SKU_SLICE, model=model, currency=currency, at_ms=at_ms
        )

    def of_idle(model: str, at_ms: int) -> Price | None:
        currency = books.platform.currency
        if currency is None:
            return None
        return resolve_idle(books.prices, book=books.book, model=model, currency=currency, at_ms=at_ms)

    return of_slice, of_idle


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
