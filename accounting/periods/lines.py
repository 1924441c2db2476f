"""From a card's divided time to ledger lines and device hours: sums only, nothing is divided again.

A line is one local day of its account, one resource and one SKU at one price. Invariant: over any set of
whole days the quantities of the lines of a card are what its segments charged and left idle.
Source: `reference/ledger.md §7` (grain of a line).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from accounting.ledger.calendar import day_bounds_ms, midnights_ms
from accounting.ledger.columns import Columns, Whole
from accounting.ledger.intervals import Interval
from accounting.ledger.policies import PolicyRule
from accounting.ledger.pricing import SKU_ENERGY, SKU_IDLE, SKU_SLICE, Discount, Price
from accounting.ledger.rounding import MJ, PPM_MS, amount_of
from accounting.ledger.tenancy import IDLE_PATH, Claim
from accounting.periods.card import Card, HeldSlice
from accounting.periods.tariff import Account, Books, Tariff
from contract.ids import SliceKey
from contract.units import MS_PER_HOUR, PPM

LineKind: TypeAlias = Literal["usage", "energy", "idle", "unallocated"]


class Bearer(NamedTuple):
    """Who bears a line: a tenant, and the account that the line is in."""

    account: Account
    path: str

    @classmethod
    def of(cls, books: Books, claim: Claim, at_ms: int) -> Bearer:
        """The owner of a claim at an instant."""
        owner = books.owned(claim).at(at_ms)
        return cls(books.account_of(owner), owner.path)


class Resource(NamedTuple):
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
            one.resource_key,
            allocation.node,
            allocation.namespace,
            allocation.pod,
            allocation.slice_key.container,
        )


class LineKey(NamedTuple):
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


class Hour(NamedTuple):
    """One device and UTC hour, over its segments."""

    present_ppm_ms: int
    charged_ppm_ms: int
    idle_ppm_ms: int
    down_ppm_ms: int
    confirmed_ms: int
    model: str


@dataclass(slots=True)
class _Days:
    """The local days of one zone, each looked up once."""

    zone: str
    starts_ms: list[int] = field(default_factory=list)
    ends_ms: list[int] = field(default_factory=list)

    def start_of(self, at_ms: int) -> int:
        """The midnight at which the day of an instant begins."""
        place = bisect_right(self.starts_ms, at_ms)
        if place and at_ms < self.ends_ms[place - 1]:
            return self.starts_ms[place - 1]
        start, end = day_bounds_ms(at_ms, self.zone)
        self.starts_ms.insert(place, start)
        self.ends_ms.insert(place, end)
        return start


class Entry(NamedTuple):
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


class Booked(NamedTuple):
    """One step by which a line grew: what `explain` shows."""

    key: LineKey
    entry: Entry
    own_quantity: int
    quantity: int


class _Terms(NamedTuple):
    """What the lines of a claim are made on between two edges of the tariff, on cards of one model."""

    bearer: Bearer
    price: Price | None
    discount: Discount | None
    policy: PolicyRule | None


class _About(NamedTuple):
    """What a line is of."""

    kind: LineKind
    sku: str
    resource: Resource
    model: str


@dataclass(slots=True)
class Lines:
    """Adds what happened on a card up to lines; each step goes to `trail`, where somebody wants to know."""

    card: Card
    books: Books
    trail: list[Booked] | None = None
    lines: dict[LineKey, Line] = field(default_factory=dict)
    card_resource: Resource = field(init=False)
    """The card itself."""
    _days: dict[str, _Days] = field(default_factory=dict)
    _terms: dict[tuple[Claim | None, int, str], _Terms] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.card_resource = Resource(card_resource_key(self.card), self.card.node)

    @property
    def tariff(self) -> Tariff:
        """What holds at an instant."""
        return self.books.tariff

    def add(self, time: Columns) -> None:
        """Add a card's time: what holders are charged, and what is idle."""
        if not len(time.from_ms):
            return
        stretches = self._stretches(time)
        grown = self._add_parts(time, stretches)
        idle_line_of = self._add_idle(time, stretches)
        if self.trail is not None:
            self._leave_trail(time, grown, idle_line_of, self.trail)

    def _stretches(self, time: Columns) -> Whole:
        """For each segment a number, which is another wherever a line may have to be."""
        window = int(time.from_ms[0]), int(time.to_ms[-1])
        edges = set(self.tariff.edges)
        for zone in {account.time_zone for account in self.books.accounts}:
            edges.update(midnights_ms(*window, zone))
        models = sorted({span.model for span in time.spans})
        model_of = time.of_spans(lambda span: models.index(span.model))
        begun = np.searchsorted(np.array(sorted(edges), np.int64), time.from_ms, "right")
        stretches: Whole = begun * len(models) + model_of
        return stretches

    def _add_parts(self, time: Columns, stretches: Whole) -> list[Line]:
        """Add what holders are charged; for each part its line, where there is a trail to leave."""
        if not len(time.hold_of):
            return []
        stretch_of = stretches[time.segment_of]
        changes = (np.diff(time.hold_of) != 0) | (np.diff(stretch_of) != 0)
        firsts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(changes) + 1])
        lasts = np.concatenate([firsts[1:], [len(time.hold_of)]]) - 1
        degraded = np.where(time.is_down[time.segment_of], time.charged_ppm_ms, 0)
        begins, ends = time.segment_of[firsts], time.segment_of[lasts]
        rows = zip(
            time.hold_of[firsts].tolist(),
            time.span_of[begins].tolist(),
            time.from_ms[begins].tolist(),
            time.to_ms[ends].tolist(),
            np.add.reduceat(time.own_ppm_ms, firsts).tolist(),
            np.add.reduceat(time.charged_ppm_ms, firsts).tolist(),
            np.add.reduceat(degraded, firsts).tolist(),
            strict=True,
        )
        grown: list[Line] = []
        known: tuple[int, int, int] | None = None
        for hold_of, span_of, from_ms, to_ms, own, charged, degraded_ppm_ms in rows:
            now = hold_of, span_of, self.tariff.between(from_ms)
            if now != known:
                known, one = now, self.card.slices[time.holds[hold_of].slice_key]
                about = _About("usage", SKU_SLICE, Resource.of_slice(one), time.spans[span_of].model)
                terms = self._terms_of(one.claim, about, from_ms)
            line = self._line(terms, about, from_ms, to_ms)
            line.own_quantity += own
            line.quantity += charged
            line.degraded_ppm_ms += degraded_ppm_ms
            grown.append(line)
        self._add_waiting(time, firsts, grown)
        if self.trail is None:
            return []
        return [grown[index] for index in np.searchsorted(firsts, np.arange(len(time.hold_of)), "right") - 1]

    def _add_waiting(self, time: Columns, firsts: Whole, grown: Sequence[Line]) -> None:
        """Of what is charged, note what is for the time before the slice's first container ran."""
        runs_from_ms = np.array([_runs_from_ms(self.card.slices[hold.slice_key]) for hold in time.holds])
        waiting = np.flatnonzero(time.from_ms[time.segment_of] < runs_from_ms[time.hold_of])
        of_segments = time.segment_of[waiting]
        rows = zip(
            (np.searchsorted(firsts, waiting, "right") - 1).tolist(),
            time.from_ms[of_segments].tolist(),
            time.to_ms[of_segments].tolist(),
            runs_from_ms[time.hold_of[waiting]].tolist(),
            time.charged_ppm_ms[waiting].tolist(),
            strict=True,
        )
        for index, from_ms, to_ms, until_ms, charged in rows:
            waited = charged * (min(until_ms, to_ms) - from_ms) // (to_ms - from_ms)
            grown[index].held_not_running_ppm_ms += waited

    def _add_idle(self, time: Columns, stretches: Whole) -> dict[int, Line]:
        """Add what nobody holds; by stretch its line."""
        idle_of = np.flatnonzero(time.idle_ppm_ms)
        if not len(idle_of):
            return {}
        stretch_of = stretches[idle_of]
        firsts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.diff(stretch_of)) + 1])
        lasts = np.concatenate([firsts[1:], [len(idle_of)]]) - 1
        begins, ends = idle_of[firsts], idle_of[lasts]
        rows = zip(
            time.span_of[begins].tolist(),
            time.from_ms[begins].tolist(),
            time.to_ms[ends].tolist(),
            np.add.reduceat(time.idle_ppm_ms[idle_of], firsts).tolist(),
            strict=True,
        )
        found: dict[int, Line] = {}
        for index, (span_of, from_ms, to_ms, idle) in enumerate(rows):
            about = _About("idle", SKU_IDLE, self.card_resource, time.spans[span_of].model)
            line = self._line(self._terms_of(None, about, from_ms), about, from_ms, to_ms)
            line.own_quantity += idle
            line.quantity += idle
            found.update(dict.fromkeys(idle_of[firsts[index] : lasts[index] + 1].tolist(), line))
        return found

    def _leave_trail(
        self, time: Columns, grown: Sequence[Line], idle_lines: Mapping[int, Line], trail: list[Booked]
    ) -> None:
        """Tell every step in the order of time: parts by key, then what is idle."""
        by_segment = np.argsort(time.segment_of, kind="stable").tolist()
        coming = iter(by_segment)
        part = next(coming, None)
        for segment, (from_ms, to_ms) in enumerate(
            zip(time.from_ms.tolist(), time.to_ms.tolist(), strict=True)
        ):
            model = time.spans[int(time.span_of[segment])].model
            policy = self.tariff.policy("share", from_ms)
            while part is not None and time.segment_of[part] == segment:
                line = grown[part]
                one = self.card.slices[time.holds[int(time.hold_of[part])].slice_key]
                when = (from_ms, to_ms)
                entry = Entry(
                    "usage", SKU_SLICE, line.bearer, line.resource, model, *when, policy, claim=one.claim
                )
                own, charged = int(time.own_ppm_ms[part]), int(time.charged_ppm_ms[part])
                trail.append(Booked(line.key, entry, own, charged))
                part = next(coming, None)
            idle = int(time.idle_ppm_ms[segment])
            if idle:
                line = idle_lines[segment]
                entry = Entry("idle", SKU_IDLE, line.bearer, line.resource, model, from_ms, to_ms, policy)
                trail.append(Booked(line.key, entry, idle, idle))

    def book(self, entry: Entry, own_quantity: int, quantity: int) -> Line:
        """Add an entry to the line that it belongs to."""
        account, at_ms = entry.bearer.account, entry.from_ms
        price = self.tariff.price(account, entry.sku, entry.model, at_ms)
        discount = None if price is None else self.tariff.discount(entry.bearer.path, at_ms)
        terms = _Terms(entry.bearer, price, discount, entry.policy)
        about = _About(entry.kind, entry.sku, entry.resource, entry.model)
        line = self._line(terms, about, at_ms, entry.to_ms)
        line.own_quantity += own_quantity
        line.quantity += quantity
        if self.trail is not None:
            self.trail.append(Booked(line.key, entry, own_quantity, quantity))
        return line

    def _terms_of(self, claim: Claim | None, about: _About, at_ms: int) -> _Terms:
        """What card time is charged on; of no claim: idle capacity."""
        key = claim, self.tariff.between(at_ms), about.model
        known = self._terms.get(key)
        if known is None:
            bearer = (
                Bearer(self.books.platform, IDLE_PATH)
                if claim is None
                else Bearer.of(self.books, claim, at_ms)
            )
            price = self.tariff.price(bearer.account, about.sku, about.model, at_ms)
            discount = None if price is None else self.tariff.discount(bearer.path, at_ms)
            known = _Terms(bearer, price, discount, self.tariff.policy("share", at_ms))
            self._terms[key] = known
        return known

    def _line(self, terms: _Terms, about: _About, from_ms: int, to_ms: int) -> Line:
        bearer, price, discount, policy = terms
        kind, sku, resource, model = about
        account = bearer.account
        days = self._days.get(account.time_zone)
        if days is None:
            days = self._days[account.time_zone] = _Days(account.time_zone)
        key = LineKey(
            account.code,
            kind,
            sku,
            resource.key,
            bearer.path,
            days.start_of(from_ms),
            model,
            0 if price is None else price.id,
            0 if policy is None else policy.id,
            0 if discount is None else discount.id,
        )
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = Line(key, bearer, resource, from_ms, to_ms, price, discount)
        elif from_ms < line.charge_from_ms or to_ms > line.charge_to_ms:
            line.charge_from_ms = min(line.charge_from_ms, from_ms)
            line.charge_to_ms = max(line.charge_to_ms, to_ms)
        return line


def _runs_from_ms(one: HeldSlice) -> int:
    """Until then a slice is held and does not run."""
    started_ms = one.allocation.started_at_ms
    return one.held.to_ms if started_ms is None else started_ms


def card_resource_key(card: Card) -> str:
    """How a line names a whole card."""
    return "/".join((card.key.cluster, card.key.node_uid, card.key.device_uuid))


def device_hours(time: Columns, window: Interval) -> dict[int, Hour]:
    """The closing identity of each UTC hour in a window that the card was present in."""
    inside = (time.from_ms >= window[0]) & (time.from_ms < window[1])
    if not inside.any():
        return {}
    from_ms, length_ms = time.from_ms[inside], (time.to_ms - time.from_ms)[inside]
    idle_ppm_ms, down_ppm_ms = time.idle_ppm_ms[inside], time.down_ppm_ms[inside]
    span_of = time.span_of[inside]
    confirmed_ms = np.where(time.of_spans(lambda span: span.is_confirmed)[inside] > 0, length_ms, 0)
    hour_of = from_ms - from_ms % MS_PER_HOUR
    firsts = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.diff(hour_of)) + 1])
    lasts = np.concatenate([firsts[1:], [len(from_ms)]]) - 1
    present_ppm_ms = length_ms * PPM
    columns = (
        present_ppm_ms,
        present_ppm_ms - idle_ppm_ms - down_ppm_ms,
        idle_ppm_ms,
        down_ppm_ms,
        confirmed_ms,
    )
    sums = [np.add.reduceat(column, firsts).tolist() for column in columns]
    rows = zip(
        hour_of[firsts].tolist(),
        *sums,
        span_of[lasts].tolist(),
        strict=True,
    )
    return {
        hour_ms: Hour(present, charged, idle, down, confirmed, time.spans[last].model)
        for hour_ms, present, charged, idle, down, confirmed, last in rows
    }
