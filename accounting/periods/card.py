"""One card's facts, read from the store and swept: what rating, verify and the reports all start from.

Invariant: for one state of the facts, one instant and one grace there is one sweep; whoever asks for a
window gets the segments that whoever asks for a larger one gets there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.facts import kinds
from accounting.ledger.columns import Columns, Hold, PolicySpan, divide_time
from accounting.ledger.intervals import Interval
from accounting.ledger.merge import (
    Held,
    MergedAllocation,
    held,
    merge_allocation,
    merge_container_hour,
)
from accounting.ledger.presence import (
    BRIDGE_MS,
    HeldTime,
    PresenceSpan,
    Size,
    not_ready_times,
    size_at,
    timeline,
)
from accounting.ledger.shares import Grant, mig_slices
from accounting.ledger.sweep import Segment, segments_of
from accounting.ledger.tenancy import Claim
from accounting.periods.reading import CardFacts, held_in, read_cards_facts, read_facts
from accounting.store.models import AllocationReport, PresenceReport, UsageFact
from contract.facts import NodeStateFact, PresenceFact
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid, SliceKey


class HeldSlice(NamedTuple):
    """A slice and when it is held."""

    allocation: MergedAllocation
    held: Held
    claim: Claim
    """What decides whose it is."""
    resource_key: str
    """The id of its reports, as its lines have it."""

    @property
    def allocation_id(self) -> UUID:
        """The id of its reports and lines."""
        return UUID(self.resource_key)


@dataclass(frozen=True, slots=True)
class Card:
    """What the facts say of one device around a window.

    Attributes:
        key: The device.
        node: The name under which its node reported last.
        window: What was asked for.
        slices: The slices that hold a part of it in or near the window, by key.
        spans: Its presence. Empty when nobody reported it: its size is unknown.
        holds: The same slices, as the sweep takes them.
        reports: All that was ever said of its presence.
        unsettled: Where the answer still depends on the asking instant; None: nowhere in the window.
    """

    key: DeviceKey
    node: str
    window: Interval
    slices: Mapping[SliceKey, HeldSlice]
    spans: Sequence[PresenceSpan]
    holds: Sequence[Hold]
    unsettled: Interval | None
    reports: Sequence[PresenceFact]

    @property
    def is_unknown(self) -> bool:
        """Whether slices are held on a device that no witness ever reported."""
        return bool(self.slices) and not self.spans

    def slice_near(self, slice_key: SliceKey, when: Interval) -> HeldSlice | None:
        """A slice that was held in a time or within six hours of it: one answer, whatever window was read."""
        one = self.slices.get(slice_key)
        return one if one is not None and _is_near(one.allocation, when) else None

    def size_at(self, at_ms: int) -> Size | None:
        """Its size when it was there, else as it was known next to then."""
        return size_at(self.spans, self.reports, at_ms)

    def model_at(self, at_ms: int) -> str:
        """Its model; that of slices held near when nobody ever reported the card."""
        size = self.size_at(at_ms)
        if size is not None:
            return size.model
        near = (one.allocation for one in self.slices.values() if _is_near(one.allocation, (at_ms, at_ms)))
        return max((allocation.model for allocation in near), default="")

    def divide(self, window: Interval, *, cuts: Iterable[int], policies: Sequence[PolicySpan]) -> Columns:
        """The card's time, divided, in a window that lies within the one that was read."""
        assert self.window[0] <= window[0] <= window[1] <= self.window[1]
        return divide_time(self.spans, self.holds, window, cuts=cuts, policies=policies)

    def sweep(
        self, window: Interval, *, cuts: Iterable[int], policies: Sequence[PolicySpan]
    ) -> list[Segment]:
        """The same, segment by segment."""
        return segments_of(self.divide(window, cuts=cuts, policies=policies))


def _is_near(allocation: MergedAllocation, when: Interval) -> bool:
    """Within the reach of the marks that a report of the slice makes, so that none can change it unmarked."""
    ends_ms = max(allocation.confirmed_at_ms, allocation.ended_at_ms or 0)
    return allocation.bound_at_ms - BRIDGE_MS < when[1] and when[0] < ends_ms + BRIDGE_MS


def read_card(session: Session, key: DeviceKey, window: Interval, *, as_of_ms: int, grace_ms: int) -> Card:
    """Read and merge the facts of one device for a window (Unix milliseconds)."""
    (card,) = read_cards(session, [key], window, as_of_ms=as_of_ms, grace_ms=grace_ms)
    return card


def read_cards(
    session: Session, keys: Sequence[DeviceKey], window: Interval, *, as_of_ms: int, grace_ms: int
) -> Iterator[Card]:
    """Read and merge the facts of some devices for a window; in their order."""
    reach = (window[0] - BRIDGE_MS, window[1] + BRIDGE_MS)
    found = read_cards_facts(session, keys, reach, grace_ms=grace_ms)
    for key in keys:
        # Taken out, so that a caller that goes from card to card keeps one.
        yield _card(session, key, window, found.pop(key), as_of_ms=as_of_ms, grace_ms=grace_ms)


def _card(
    session: Session, key: DeviceKey, window: Interval, facts: CardFacts, *, as_of_ms: int, grace_ms: int
) -> Card:
    slices = {}
    for allocation_id, reports in facts.slices.items():
        allocation = merge_allocation(reports)
        # A slice whose witnesses name different nodes is held where the earliest confirmation saw it.
        if allocation.node_uid == key.node_uid:
            slices[allocation.slice_key] = HeldSlice(
                allocation,
                held(allocation, as_of_ms=as_of_ms, grace_ms=grace_ms),
                Claim(key.cluster, allocation.tenant_key, allocation.namespace, allocation.labels),
                allocation_id,
            )
    not_ready = not_ready_times(facts.states, as_of_ms=as_of_ms, grace_ms=grace_ms)
    # Only what may be down asks whether somebody worked meanwhile.
    may_be_down = not_ready or any(fact.state == "down" for fact in facts.presence)
    alive, down_use = _use(session, key, window) if may_be_down else ([], {})
    times = [HeldTime(s.held.from_ms, s.held.confirmed_to_ms, s.held.to_ms) for s in slices.values()]
    return Card(
        key=key,
        node=_node(facts, slices.values()),
        window=window,
        slices=slices,
        spans=timeline(facts.presence, times, not_ready, alive, as_of_ms=as_of_ms),
        holds=[_hold(one, down_use.get(slice_key, ())) for slice_key, one in sorted(slices.items())],
        unsettled=_unsettled(
            slices.values(), facts.presence, facts.states, as_of_ms=as_of_ms, grace_ms=grace_ms
        ),
        reports=facts.presence,
    )


def _node(facts: CardFacts, slices: Collection[HeldSlice]) -> str:
    if facts.presence:
        return max(facts.presence, key=lambda fact: (fact.to_ms, fact.node)).node
    return max((one.allocation.node for one in slices), default="")


def devices_held_or_present(
    session: Session, window: Interval, *, grace_ms: int, only: tuple[str, str] | None = None
) -> list[DeviceKey]:
    """Every device that some fact speaks of in a window.

    Args:
        session: A reading transaction.
        window: From when to when.
        grace_ms: How long a slice is held after its last confirmation.
        only: The cluster and UUID of the one that is looked for, on whatever nodes it was.
    """
    found: set[DeviceKey] = set()
    reports = select(PresenceReport.cluster, PresenceReport.node_uid, PresenceReport.device_uuid).where(
        PresenceReport.from_ms < window[1], PresenceReport.to_ms > window[0] - BRIDGE_MS
    )
    holds = select(AllocationReport.cluster, AllocationReport.node_uid, AllocationReport.device_uuid).where(
        *held_in(window, grace_ms)
    )
    if only is not None:
        reports = reports.where(PresenceReport.cluster == only[0], PresenceReport.device_uuid == only[1])
        holds = holds.where(AllocationReport.cluster == only[0], AllocationReport.device_uuid == only[1])
    for statement in (reports, holds):
        for cluster, node_uid, device_uuid in session.execute(statement.distinct()):
            found.add(DeviceKey(ClusterCode(cluster), NodeUid(node_uid), DeviceUuid(device_uuid)))
    return sorted(found)


def devices_of_slice(session: Session, cluster: str, allocation_id: UUID) -> list[DeviceKey]:
    """The device that a slice is of, on each node that a witness named."""
    query = select(AllocationReport.node_uid, AllocationReport.device_uuid).where(
        AllocationReport.cluster == cluster, AllocationReport.allocation_id == allocation_id
    )
    return [
        DeviceKey(ClusterCode(cluster), NodeUid(node_uid), DeviceUuid(device_uuid))
        for node_uid, device_uuid in sorted({(row[0], row[1]) for row in session.execute(query)})
    ]


def _use(
    session: Session, key: DeviceKey, window: Interval
) -> tuple[list[Interval], dict[SliceKey, tuple[Interval, ...]]]:
    """When slices on the device were seen alive, and which worked while it counted as down."""
    where = (
        UsageFact.cluster == key.cluster,
        UsageFact.device_uuid == key.device_uuid,
        UsageFact.node_uid == key.node_uid,
        UsageFact.hour_ms >= window[0] - BRIDGE_MS,
        UsageFact.hour_ms < window[1] + BRIDGE_MS,
    )
    alive = session.execute(
        select(UsageFact.from_ms, UsageFact.to_ms).where(*where, UsageFact.covered_ms > 0)
    )
    worked: dict[tuple[SliceKey, int], None] = {}
    for fact in read_facts(session, kinds.SLICE_USAGE, *where, UsageFact.sm_down_ppm_ms > 0):
        worked[fact.slice_key, fact.hour_ms] = None
    down_use: dict[SliceKey, tuple[Interval, ...]] = {}
    for slice_key, hour_ms in sorted(worked):
        of_hour = read_facts(
            session,
            kinds.SLICE_USAGE,
            UsageFact.cluster == key.cluster,
            UsageFact.hour_ms == hour_ms,
            UsageFact.allocation_id == slice_key.allocation_id,
        )
        down_use[slice_key] = (*down_use.get(slice_key, ()), *merge_container_hour(of_hour).down_use)
    return [(from_ms, to_ms) for from_ms, to_ms in alive], down_use


def _hold(one: HeldSlice, down_use: tuple[Interval, ...]) -> Hold:
    allocation = one.allocation
    return Hold(
        allocation.slice_key,
        one.held.from_ms,
        one.held.to_ms,
        _grant(allocation.mem_mib, allocation.core_percent, allocation.mig),
        down_use,
    )


@lru_cache(maxsize=4096)
def _grant(mem_mib: int, core_percent: int, mig: str | None) -> Grant:
    return Grant(mem_mib, core_percent, mig_slices(mig))


def _unsettled(
    slices: Collection[HeldSlice],
    presence: Sequence[PresenceFact],
    states: Sequence[NodeStateFact],
    *,
    as_of_ms: int,
    grace_ms: int,
) -> Interval | None:
    """From where to where the answer will change with time alone."""
    open_times: list[Interval] = []
    for one in slices:
        if one.held.settles_at_ms is not None:
            begins = min(one.allocation.confirmed_at_ms, as_of_ms)
            open_times.append((begins, max(one.held.settles_at_ms, as_of_ms)))
    open_times += [(as_of_ms, fact.to_ms) for fact in presence if fact.to_ms > as_of_ms]
    ahead = [fact.from_ms for fact in presence if fact.from_ms >= as_of_ms]
    if ahead:
        # A report from a clock ahead of ours may be the first that knows how large the card is.
        begun = [fact.from_ms for fact in presence] + [one.held.from_ms for one in slices]
        open_times.append((min(begun), max(ahead) + 1))
    for state in states:
        if not state.ready and state.to_ms + grace_ms > as_of_ms:
            open_times.append((min(state.to_ms, as_of_ms), state.to_ms + grace_ms))
    if not open_times:
        return None
    return min(begins for begins, _ in open_times), max(ends for _, ends in open_times)
