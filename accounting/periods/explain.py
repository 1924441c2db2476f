"""Why a line is what it is: its versions, and the card's day swept again, step by step.

The steps come from the same booking that made the line, so their sum is the line; where it is not, facts
came after the line was sealed, and the explanation says so. A line that moves money (a correction, an
adjustment, a distribution) has no steps: it names its reason and the lines that it stands for.

Invariant: of a neighbour that the viewer may not see nothing appears but its part in a sum over all others.
Source: `reference/ledger.md §1, §7` (explain), behaviour 50.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TypeVar
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer, is_at_or_below, only_visible
from accounting.errors import InvalidError, NotFoundError
from accounting.ledger.calendar import day_bounds_ms, midnight_ms
from accounting.ledger.intervals import Interval
from accounting.ledger.shares import POLICIES, Grant, Policy, card_units, mig_slices, share_units
from accounting.ledger.sweep import Segment, segments_of
from accounting.ledger.tenancy import IDLE_PATH, SHARED_PATH
from accounting.periods.card import HeldSlice
from accounting.periods.compute import Rulebook, Swept, read_rulebook, sweep_lines
from accounting.periods.coverage import Coverage
from accounting.periods.lines import Booked, Entry, LineKey, LineKind
from accounting.periods.months import OPEN
from accounting.periods.rating_state import rated_as_of_ms, rated_grace_ms
from accounting.periods.use import SliceUses, Use
from accounting.store.book_tables import RATED_KINDS
from accounting.store.models import (
    BillingAccount,
    BillingPeriod,
    LedgerLine,
    PolicyVersion,
    PriceVersion,
    Tenant,
    TenantDiscount,
)
from accounting.store.versions import Known
from accounting.store.walls import CARDS, seeing
from accounting.tenants.tree import find_tenant, list_tenants
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid, SliceKey
from contract.units import MS_PER_HOUR, hour_start_ms

_FIRST_DAY, _LAST_DAY = date(1970, 1, 3), date(9999, 1, 1)
_POLICIES: dict[str, Policy] = {policy: policy for policy in POLICIES}


@dataclass(frozen=True, slots=True)
class Share:
    """What went into a slice's own share on a stretch; ratios are of the card, in units of `whole`."""

    policy: str
    mem_mib: int
    core_percent: int
    mig: str | None
    registered_mib: int
    own_units: int
    whole: int


@dataclass(frozen=True, slots=True)
class Neighbour:
    """What another slice was charged on a stretch."""

    tenant: str
    namespace: str
    pod: str
    container: str
    charged_ppm_ms: int


@dataclass(frozen=True, slots=True)
class Step:
    """One stretch of a line. Quantities in the unit of the line; those of the card in ppm·ms."""

    from_ms: int
    to_ms: int
    own_quantity: int
    quantity: int
    share: Share | None
    """Of a slice's card time."""
    source: str
    """Of energy: what it was drawn for."""
    pod: str
    """Of energy: whose container, where the line is several's."""
    neighbours: Sequence[Neighbour]
    """Those that the viewer may see."""
    others: int
    """How many slices besides held the card."""
    others_charged_ppm_ms: int
    idle_ppm_ms: int
    down_ppm_ms: int
    is_confirmed: bool


@dataclass(frozen=True, slots=True)
class MeasuredHour:
    """What was measured on the slice beside what it was charged; None: not measured."""

    hour_ms: int
    use: Use | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A line and all that leads to it."""

    line: LedgerLine
    tenant: str
    time_zone: str
    state: str
    prices: Sequence[PriceVersion]
    """The line's version, then what it superseded, newest first."""
    policies: Sequence[PolicyVersion]
    discounts: Sequence[TenantDiscount]
    steps: Sequence[Step]
    measured: Sequence[MeasuredHour]
    coverage: Coverage | None
    origin: Sequence[LedgerLine] = ()
    """Of a correction: the sealed lines that it makes right."""

    @property
    def is_rated(self) -> bool:
        """Whether facts made the line, so that it has steps."""
        return self.line.kind in RATED_KINDS

    @property
    def adds_up(self) -> bool:
        """Whether the steps are the line."""
        own, charged = (
            sum(step.own_quantity for step in self.steps),
            sum(step.quantity for step in self.steps),
        )
        return not self.is_rated or (own, charged) == (self.line.own_quantity, self.line.quantity)


def explain_line(session: Session, viewer: Viewer, line_id: int) -> Explanation:
    """Explain one line.

    Raises:
        NotFoundError: There is none, or none that the viewer may see.
    """
    asked = select(LedgerLine, Tenant.path).join(Tenant, Tenant.id == LedgerLine.tenant_id)
    row = session.execute(only_visible(asked.where(LedgerLine.id == line_id), viewer)).one_or_none()
    if row is None:
        raise NotFoundError(f"no line {line_id}; take one from a statement, where each names its own")
    return _explainer(session, viewer).explain(row[0], row[1])


def explain_day(session: Session, viewer: Viewer, tenant_name: str, day: date) -> list[Explanation]:
    """Explain every line of a tenant, and of all below it, on a local day of their account.

    Raises:
        NotFoundError: No such tenant, or none that the viewer may see.
        InvalidError: A day out of all time.
    """
    return explain_lines(session, viewer, lines_of_day(session, viewer, tenant_name, day))


def explain_lines(
    session: Session, viewer: Viewer, lines: Iterable[tuple[LedgerLine, str]]
) -> list[Explanation]:
    """Explain lines that a viewer may see, given with their tenants' paths; a card's day is swept once."""
    explainer = _explainer(session, viewer)
    return [explainer.explain(line, path) for line, path in lines]


def lines_of_day(
    session: Session, viewer: Viewer, tenant_name: str, day: date
) -> list[tuple[LedgerLine, str]]:
    """The lines of a tenant, and of all below it, on a local day, with paths; by account, path and resource.

    Raises:
        NotFoundError: No such tenant, or none that the viewer may see.
        InvalidError: A day out of all time.
    """
    if not _FIRST_DAY <= day < _LAST_DAY:
        raise InvalidError(f"no ledger reaches to {day.isoformat()}")
    tenant = find_tenant(session, viewer, tenant_name)
    found: list[tuple[LedgerLine, str]] = []
    for account in session.scalars(select(BillingAccount).order_by(BillingAccount.code)):
        rows = session.execute(
            select(LedgerLine, Tenant.path)
            .join(Tenant, Tenant.id == LedgerLine.tenant_id)
            .where(
                is_at_or_below(tenant.path),
                LedgerLine.account == account.code,
                LedgerLine.day_ms == midnight_ms(day, account.time_zone),
            )
            .order_by(
                Tenant.path,
                LedgerLine.resource_key,
                LedgerLine.charge_from_ms,
                LedgerLine.kind,
                LedgerLine.sku,
                LedgerLine.revision,
            )
        )
        found += [(line, path) for line, path in rows]
    return found


@dataclass(frozen=True, slots=True)
class _Day:
    """A card's day, swept once for all of its lines."""

    swept: Swept
    trail: Sequence[Booked]
    segments: Sequence[Segment]
    starts: Sequence[int]
    """Where the segments begin."""

    def segment_at(self, at_ms: int) -> Segment | None:
        index = bisect_right(self.starts, at_ms) - 1
        if index < 0 or at_ms >= self.segments[index].to_ms:
            return None
        return self.segments[index]


def _explainer(session: Session, viewer: Viewer) -> _Explainer:
    return _Explainer(session, frozenset(tenant.path for tenant in list_tenants(session, viewer)))


@dataclass(slots=True)
class _Explainer:
    session: Session
    tenants: frozenset[str]
    """Those that the viewer may see: neighbours of all others are only `others`."""
    _days: dict[tuple[DeviceKey, Interval, int], _Day] = field(default_factory=dict)
    _rulebooks: dict[int, Rulebook] = field(default_factory=dict)

    def explain(self, line: LedgerLine, path: str) -> Explanation:
        period = self.session.get_one(BillingPeriod, line.period_id)
        zone = self.session.get_one(BillingAccount, line.account).time_zone
        steps: list[Step] = []
        measured: list[MeasuredHour] = []
        coverage = None
        if line.kind in RATED_KINDS:
            bounds = day_bounds_ms(line.day_ms, zone)
            with seeing(self.session, CARDS):
                day = self._day(line, bounds, period)
                measured = self._measured(line) if line.kind == "usage" else []
            wanted = _key_of(line, path)
            steps = [self._step(day, booked) for booked in day.trail if booked.key == wanted]
            coverage = _coverage(day.segments, bounds)
        with seeing(self.session, CARDS):
            # An ancestor's discount holds for the line too.
            discounts = _chain(self.session, TenantDiscount, line.discount_version_id)
        return Explanation(
            line=line,
            tenant=path,
            time_zone=zone,
            state=period.state,
            prices=_chain(self.session, PriceVersion, line.price_version_id),
            policies=_chain(self.session, PolicyVersion, line.policy_version_id),
            discounts=discounts,
            steps=steps,
            measured=measured,
            coverage=coverage,
            origin=self._origin(line),
        )

    def _day(self, line: LedgerLine, bounds: Interval, period: BillingPeriod) -> _Day:
        """The card's day as the line's period sees it: as it was frozen, or as it was rated last."""
        key = DeviceKey(ClusterCode(line.cluster), NodeUid(line.node_uid), DeviceUuid(line.device_uuid))
        frozen = 0 if period.state == OPEN else period.id
        known = self._days.get((key, bounds, frozen))
        if known is not None:
            return known
        if frozen not in self._rulebooks:
            versions = None if period.versions is None else Known.from_text(period.versions)
            self._rulebooks[frozen] = read_rulebook(self.session, versions)
        trail: list[Booked] = []
        (swept,) = sweep_lines(
            self.session,
            [key],
            bounds,
            self._rulebooks[frozen],
            as_of_ms=period.as_of_ms or rated_as_of_ms(self.session) or 0,
            grace_ms=rated_grace_ms(self.session) if period.grace_ms is None else period.grace_ms,
            trail=trail,
        )
        segments = segments_of(swept.time)
        day = _Day(swept, trail, segments, [segment.from_ms for segment in segments])
        self._days[key, bounds, frozen] = day
        return day

    def _step(self, day: _Day, booked: Booked) -> Step:
        entry = booked.entry
        segment = day.segment_at(entry.from_ms) if not entry.source else None
        mine = entry.resource.key if entry.kind == "usage" else ""
        named, others, others_charged, share = self._around(day, segment, entry, mine)
        return Step(
            from_ms=entry.from_ms,
            to_ms=entry.to_ms,
            own_quantity=booked.own_quantity,
            quantity=booked.quantity,
            share=share,
            source=entry.source,
            pod=self._holder(day, entry),
            neighbours=named,
            others=others,
            others_charged_ppm_ms=others_charged,
            idle_ppm_ms=0 if segment is None else segment.idle_ppm_ms,
            down_ppm_ms=0 if segment is None else segment.down_ppm_ms,
            is_confirmed=segment is not None and segment.is_confirmed,
        )

    def _around(
        self, day: _Day, segment: Segment | None, entry: Entry, mine: str
    ) -> tuple[list[Neighbour], int, int, Share | None]:
        """Who else held the card, as far as the viewer may know, and what the slice's share was made of."""
        named: list[Neighbour] = []
        others = others_charged = 0
        share = None
        for part in () if segment is None or entry.kind == "unallocated" else segment.parts:
            one = day.swept.card.slices[part.slice_key]
            tenant = self._tenant(day, one, entry.from_ms)
            if str(one.allocation_id) == mine:
                share = _share(one, segment, entry)
            elif tenant in self.tenants:
                allocation = one.allocation
                pod = (allocation.namespace, allocation.pod, allocation.slice_key.container)
                named.append(Neighbour(tenant, *pod, part.charged_ppm_ms))
            else:
                others += 1
                others_charged += part.charged_ppm_ms
        return named, others, others_charged, share

    def _tenant(self, day: _Day, one: HeldSlice, at_ms: int) -> str:
        return day.swept.lines.books.owned(one.claim).at(at_ms).path

    def _holder(self, day: _Day, entry: Entry) -> str:
        """The container that drew energy on one of its tenant's lines."""
        if entry.holder is None or entry.bearer.path in {IDLE_PATH, SHARED_PATH}:
            return ""
        one = day.swept.card.slices.get(entry.holder)
        if one is None:
            return _bare(entry.holder)
        return f"{one.allocation.namespace}/{one.allocation.pod} · {entry.holder.container}"

    def _measured(self, line: LedgerLine) -> list[MeasuredHour]:
        allocation_id = UUID(line.resource_key)
        window = (hour_start_ms(line.charge_from_ms), line.charge_to_ms)
        uses = SliceUses(self.session, [(line.cluster, allocation_id)], window)
        return [
            MeasuredHour(hour_ms, uses.of(allocation_id, (hour_ms, hour_ms + MS_PER_HOUR)))
            for hour_ms in range(window[0], window[1], MS_PER_HOUR)
        ]

    def _origin(self, line: LedgerLine) -> Sequence[LedgerLine]:
        if line.corrects_period_id is None:
            return ()
        return self.session.scalars(
            select(LedgerLine)
            .where(
                LedgerLine.period_id == line.corrects_period_id,
                LedgerLine.tenant_id == line.tenant_id,
                LedgerLine.kind == line.corrects_kind,
                LedgerLine.sku == line.sku,
                LedgerLine.resource_key == line.resource_key,
                LedgerLine.day_ms == line.corrects_day_ms,
            )
            .order_by(LedgerLine.charge_from_ms, LedgerLine.id)
        ).all()


def _key_of(line: LedgerLine, path: str) -> LineKey:
    """The key under which the booking finds a stored line."""
    kinds: dict[str, LineKind] = {"usage": "usage", "energy": "energy", "idle": "idle"}
    return LineKey(
        line.account,
        kinds.get(line.kind, "unallocated"),
        line.sku,
        line.resource_key,
        path,
        line.day_ms,
        line.model,
        line.price_version_id or 0,
        line.policy_version_id or 0,
        line.discount_version_id or 0,
    )


def _share(one: HeldSlice, segment: Segment | None, entry: Entry) -> Share | None:
    if segment is None:
        return None
    allocation = one.allocation
    policy = _POLICIES["dominant" if entry.policy is None else entry.policy.value]
    grant = Grant(allocation.mem_mib, allocation.core_percent, mig_slices(allocation.mig))
    return Share(
        policy=policy,
        mem_mib=allocation.mem_mib,
        core_percent=allocation.core_percent,
        mig=allocation.mig,
        registered_mib=segment.registered_mib,
        own_units=share_units(grant, segment.registered_mib, segment.model, policy),
        whole=card_units(segment.registered_mib, segment.model),
    )


def _bare(slice_key: SliceKey) -> str:
    return f"pod {slice_key.pod_uid} · {slice_key.container}"


def _coverage(segments: Sequence[Segment], bounds: Interval) -> Coverage:
    inside = [one for one in segments if bounds[0] <= one.from_ms < bounds[1]]
    return Coverage(
        sum(one.to_ms - one.from_ms for one in inside if one.is_confirmed),
        sum(one.to_ms - one.from_ms for one in inside),
    )


Version = TypeVar("Version", PriceVersion, PolicyVersion, TenantDiscount)


def _chain(session: Session, table: type[Version], version_id: int | None) -> list[Version]:
    """A version and what it superseded, newest first."""
    found: list[Version] = []
    while version_id is not None:
        row = session.get_one(table, version_id)
        found.append(row)
        version_id = row.supersedes_id
    return found
