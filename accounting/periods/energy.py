"""Energy and unallocated use of a card on its ledger lines.

A tenant's energy is one line a local day and card: what its slices drew at work, and the part of the
board's idle draw that the policy gives them. What no tenant bears stays with the platform: free
capacity's part at `platform/idle`; unattributed energy, and that of unallocated use that is only listed,
at `platform/shared`.

Invariant: where energy is on the ledger of both accounts, the lines of a card's hour add up to the
board's counter less the residual, to the millijoule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from accounting.facts import kinds
from accounting.ledger.energy import CardTime, EnergyFacts, EnergyHour, Portion, pieces, split_energy
from accounting.ledger.intervals import Interval
from accounting.ledger.merge import take_epochs
from accounting.ledger.policies import VALUES, PolicyRule
from accounting.ledger.pricing import SKU_ENERGY, SKU_UNALLOCATED
from accounting.ledger.sweep import Segment
from accounting.ledger.tenancy import IDLE_PATH, SHARED_PATH, Claim
from accounting.periods.lines import Bearer, Entry, LineKind, Lines, Resource, card_resource_key
from accounting.periods.reading import groups_of, of_devices, read_facts
from accounting.store.models import DeviceFact, UnallocatedFact, UsageFact
from contract.apportion import apportion
from contract.facts import DeviceUsageFact, SliceUsageFact, UnallocatedUseFact
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid, SliceKey
from contract.units import MS_PER_HOUR, PPM, hour_start_ms

PRICED = "price"
"""The policy under which a tenant pays for what it uses without an allocation."""


def read_energy(
    session: Session, keys: Sequence[DeviceKey], window: Interval
) -> dict[DeviceKey, dict[int, EnergyFacts]]:
    """The reports of cards by UTC hour; none where nobody reports energy or unallocated use."""
    found: dict[DeviceKey, dict[int, EnergyFacts]] = {key: {} for key in keys}
    for group in groups_of(session, keys):
        hours: dict[DeviceKey, dict[int, _Hour]] = defaultdict(lambda: defaultdict(_Hour))
        for board in read_facts(session, kinds.DEVICE_USAGE, *_hours_of(DeviceFact, group, window)):
            hours[_device(board)][board.hour_ms].device.append(board)
        for other in read_facts(session, kinds.UNALLOCATED_USE, *_hours_of(UnallocatedFact, group, window)):
            hours[_device(other)][other.hour_ms].unallocated.append(other)
        metered = hours.keys() | _drawing(session, group, window)
        for key in sorted(metered):
            for use in read_facts(session, kinds.SLICE_USAGE, *_hours_of(UsageFact, [key], window)):
                hours[key][use.hour_ms].slices.append(use)
            found[key] = {
                hour_ms: EnergyFacts(hour.device, hour.slices, hour.unallocated)
                for hour_ms, hour in sorted(hours[key].items())
            }
    return found


@dataclass(slots=True)
class _Hour:
    """The reports of one card and hour as they are read."""

    device: list[DeviceUsageFact] = field(default_factory=list)
    slices: list[SliceUsageFact] = field(default_factory=list)
    unallocated: list[UnallocatedUseFact] = field(default_factory=list)


def _device(fact: DeviceUsageFact | UnallocatedUseFact) -> DeviceKey:
    return DeviceKey(fact.cluster, fact.node_uid, fact.device_uuid)


_Measured: TypeAlias = type[DeviceFact | UsageFact | UnallocatedFact]


def _hours_of(
    table: _Measured, keys: Sequence[DeviceKey], window: Interval
) -> tuple[ColumnElement[bool], ...]:
    return of_devices(table, keys), *_in_hours(table, window)


def _in_hours(table: _Measured, window: Interval) -> tuple[ColumnElement[bool], ...]:
    return table.hour_ms > window[0] - MS_PER_HOUR, table.hour_ms < window[1]


def _drawing(session: Session, group: Sequence[DeviceKey], window: Interval) -> set[DeviceKey]:
    """The cards on which some slice drew energy."""
    device = (UsageFact.cluster, UsageFact.node_uid, UsageFact.device_uuid)
    rows = session.execute(
        select(*device).where(*_hours_of(UsageFact, group, window), UsageFact.energy_active_mj > 0).distinct()
    )
    return {DeviceKey(ClusterCode(row[0]), NodeUid(row[1]), DeviceUuid(row[2])) for row in rows}


def devices_metered(session: Session, clusters: Collection[str], window: Interval) -> set[DeviceKey]:
    """Every device that energy or unallocated use was reported of, even if nobody ever saw or held it.

    Args:
        session: A reading transaction.
        clusters: Where.
        window: From when to when.
    """
    found: set[DeviceKey] = set()
    for table in (DeviceFact, UnallocatedFact, UsageFact):
        query = select(table.cluster, table.node_uid, table.device_uuid).where(
            table.cluster.in_(clusters), *_in_hours(table, window)
        )
        if table is UsageFact:
            query = query.where(UsageFact.energy_active_mj > 0)
        for cluster, node_uid, device_uuid in session.execute(query.distinct()):
            found.add(DeviceKey(ClusterCode(cluster), NodeUid(node_uid), DeviceUuid(device_uuid)))
    return found


def unallocated_claim(use: UnallocatedUseFact) -> Claim:
    """What decides whose use without an allocation is."""
    return Claim(use.cluster, use.tenant_key, use.namespace)


@dataclass(slots=True)
class EnergyBooks:
    """Puts a card's energy and priced unallocated use on its lines."""

    lines: Lines
    cuts: Sequence[int]
    """Sorted instants that lines are cut at."""
    _claims: dict[SliceKey, Claim] = field(default_factory=dict)

    def add(self, segments: Sequence[Segment], facts: Mapping[int, EnergyFacts]) -> dict[int, EnergyHour]:
        """Add the hours that were reported; returns them, closed."""
        by_hour: dict[int, list[Segment]] = defaultdict(list)
        for segment in segments:
            by_hour[hour_start_ms(segment.from_ms)].append(segment)
        grants = {hold.slice_key: hold.grant for hold in self.lines.card.holds}
        hours = {}
        for hour_ms, of_hour in facts.items():
            self._name(hour_ms, of_hour, by_hour[hour_ms])
            time = CardTime(by_hour[hour_ms], grants, self.cuts, self._energy_policy)
            hour = hours[hour_ms] = split_energy(of_hour, time)
            for portion in hour.portions:
                self._bear(portion)
            self._price_unallocated(of_hour.unallocated)
        return hours

    def _energy_policy(self, at_ms: int) -> str:
        return _value(self.lines.tariff.policy("energy", at_ms), VALUES["energy"][0])

    def _is_priced(self, at_ms: int) -> bool:
        rule = self.lines.tariff.policy("unallocated", at_ms)
        return _value(rule, VALUES["unallocated"][0]) == PRICED

    def _name(self, hour_ms: int, facts: EnergyFacts, segments: Sequence[Segment]) -> None:
        """Who the containers of an hour belong to; one whose allocation is not told yet to nobody."""
        told = {use.slice_key: Claim(use.cluster, "", "") for use in facts.slices}
        for other in sorted(facts.unallocated, key=lambda use: (use.from_ms, use.epoch)):
            told[other.slice_key] = unallocated_claim(other)
        self._claims.update(told)
        for slice_key in {*told, *(part.slice_key for segment in segments for part in segment.parts)}:
            one = self.lines.card.slice_near(slice_key, (hour_ms, hour_ms + MS_PER_HOUR))
            if one is not None:
                self._claims[slice_key] = one.claim

    def _owner(self, slice_key: SliceKey, at_ms: int) -> Bearer:
        return Bearer.of(self.lines.books, self._claims[slice_key], at_ms)

    def _bear(self, portion: Portion) -> None:
        platform = self.lines.books.platform
        kind: LineKind = "energy"
        rule = self.lines.tariff.policy("energy", portion.from_ms)
        claim = None
        if portion.source == "idle_free" or portion.slice_key is None:
            path = IDLE_PATH if portion.source == "idle_free" else SHARED_PATH
            bearer = Bearer(platform, path)
        elif portion.source != "unallocated":
            bearer = self._owner(portion.slice_key, portion.from_ms)
        elif self._is_priced(portion.from_ms):
            kind, bearer = "unallocated", self._owner(portion.slice_key, portion.from_ms)
            rule = self.lines.tariff.policy("unallocated", portion.from_ms)
        else:
            bearer = Bearer(platform, SHARED_PATH)
        if portion.slice_key is not None and (kind == "unallocated" or portion.source != "unallocated"):
            claim = self._claims[portion.slice_key]
        if not self.lines.tariff.sells_energy(bearer.account, portion.from_ms):
            return
        self.lines.book(
            Entry(
                kind,
                SKU_ENERGY,
                bearer,
                self.lines.card_resource,
                self.lines.card.model_at(portion.from_ms),
                portion.from_ms,
                portion.to_ms,
                rule,
                portion.source,
                portion.slice_key,
                claim,
            ),
            portion.mj,
            portion.mj,
        )

    def _price_unallocated(self, uses: Sequence[UnallocatedUseFact]) -> None:
        """Card time of use without an allocation: the larger of its SM time and its memory."""
        of_container: dict[SliceKey, list[UnallocatedUseFact]] = defaultdict(list)
        for use in uses:
            of_container[use.slice_key].append(use)
        for _, known in sorted(of_container.items()):
            for use in take_epochs(known)[0]:
                stretches = pieces((use.from_ms, use.to_ms), self.cuts)
                parts = apportion(self._card_time(use), [end - start for start, end in stretches])
                for when, part in zip(stretches, parts, strict=True):
                    self._charge_unallocated(use, when, part)

    def _charge_unallocated(self, use: UnallocatedUseFact, when: Interval, ppm_ms: int) -> None:
        if not ppm_ms or not self._is_priced(when[0]):
            return
        resource = Resource(
            "/".join((card_resource_key(self.lines.card), use.pod_uid, use.container)),
            self.lines.card.node,
            use.namespace,
            use.pod,
            use.container,
        )
        rule = self.lines.tariff.policy("unallocated", when[0])
        bearer = self._owner(use.slice_key, when[0])
        model = self.lines.card.model_at(when[0])
        claim = self._claims[use.slice_key]
        entry = Entry("unallocated", SKU_UNALLOCATED, bearer, resource, model, *when, rule, claim=claim)
        self.lines.book(entry, ppm_ms, ppm_ms)

    def _card_time(self, use: UnallocatedUseFact) -> int:
        size = self.lines.card.size_at(use.from_ms)
        memory = 0 if size is None else use.mem_used_mib_ms * PPM // size.registered_mib
        return min(max(use.sm_ppm_ms, memory), (use.to_ms - use.from_ms) * PPM)


def _value(rule: PolicyRule | None, default: str) -> str:
    return default if rule is None else rule.value
