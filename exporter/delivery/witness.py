"""From what a role sees at each tick to the facts that are due: allocations, presence, node states.

Pure: clocks and views come in with each `Sight`, and the state can be stored and taken up again, so an
allocation that vanished while the exporter was away still gets its end. Invariants: `confirmed_at` is
never later than the last successful view or living process; an observed end is said once and never
taken back; starts, ends and changes are due at once, confirmations every interval.

Source: DESIGN section 5, `reference/ledger.md §5`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from contract.facts import AllocationFact, Fact
from contract.ids import ClusterCode, DeviceUuid, NodeUid, PodUid, TenantKey
from contract.ids import Witness as WitnessName
from exporter.delivery.presence import OpenState, PresentDevice, SeenNode, States
from exporter.hami.holding import HeldSlice

VANISHED = "Vanished"
"""Reason of an inferred end: the pod was absent after a relist."""


_Key: TypeAlias = tuple[PodUid, str, str]  # a plain tuple, since every slice is looked up at every tick


class Sighting(msgspec.Struct, frozen=True, gc=False):
    """A slice that a pod holds, or held until an observed end, and whose it is.

    Attributes:
        labels: Only those that may travel.
    """

    held: HeldSlice
    pod_uid: PodUid
    namespace: str
    pod: str
    node_uid: NodeUid
    node: str
    tenant_key: TenantKey
    model: str = ""
    labels: Mapping[str, str] = MappingProxyType({})

    @property
    def key(self) -> _Key:
        """The slice's key within the cluster."""
        grant = self.held.grant
        return self.pod_uid, grant.container, grant.device_uuid


@dataclass(frozen=True, slots=True)
class Sight:
    """What a role sees at one tick.

    Attributes:
        now_ms: Unix milliseconds; decides only when confirmations are due.
        confirmed_at_ms: The pods' view's last successful answer; None = pods or namespaces were not
            listed yet, and then nothing is said of allocations.
        slices: Every slice held now; ended ones at least in the tick in which the end was seen. The very
            same sequence as a tick ago means that none of them changed.
        alive: Containers in which a process was seen alive at `now_ms`.
        devices: Every device that is there.
        nodes: Every Node (cluster role only).
        vanished: Pods absent after a relist, with the relist's time.
    """

    now_ms: int
    confirmed_at_ms: int | None
    slices: Sequence[Sighting] = ()
    alive: Collection[tuple[PodUid, str]] = frozenset()
    devices: Sequence[PresentDevice] = ()
    nodes: Sequence[SeenNode] = ()
    vanished: Mapping[PodUid, int] = field(default_factory=dict)


class OpenAllocation(msgspec.Struct):
    """An allocation without an end: the fact as last said, and what confirmed it since."""

    fact: AllocationFact
    confirmed_at_ms: int


class WitnessState(msgspec.Struct):
    """What must survive a restart."""

    allocations: list[OpenAllocation] = []
    states: list[OpenState] = []


class Witness:
    """One role's memory of what it has said.

    Args:
        cluster: The cluster's code.
        witness: Who speaks.
        confirm_interval_ms: How often what goes on is confirmed.
        state: What the last run left (`dump`).
    """

    def __init__(
        self,
        cluster: ClusterCode,
        witness: WitnessName,
        confirm_interval_ms: int,
        state: WitnessState | None = None,
    ) -> None:
        self._cluster = cluster
        self._witness: WitnessName = witness
        self._interval_ms = confirm_interval_ms
        self._slices_due_ms = 0
        self._states_due_ms = 0
        self._ended: dict[_Key, int] = {}
        self._followed: Sequence[Sighting] | None = None
        self._open: list[tuple[Sighting, OpenAllocation]] = []
        state = state or WitnessState()
        self._allocations: dict[_Key, OpenAllocation] = {
            (known.fact.pod_uid, known.fact.container, known.fact.device_uuid): known
            for known in state.allocations
        }
        self._states = States(cluster, witness, confirm_interval_ms, state.states)

    def dump(self) -> WitnessState:
        """What must survive a restart; shares its records with the witness, so encode it at once."""
        return WitnessState(list(self._allocations.values()), self._states.dump())

    def tick(self, sight: Sight) -> list[Fact]:
        """The facts that are due now."""
        facts: list[Fact] = []
        if sight.confirmed_at_ms is not None:
            is_due = sight.now_ms >= self._slices_due_ms
            if is_due:
                self._slices_due_ms = sight.now_ms + self._interval_ms
            facts += self._see_slices(sight, sight.confirmed_at_ms, is_due=is_due)
        is_due = sight.now_ms >= self._states_due_ms
        if is_due:
            self._states_due_ms = sight.now_ms + self._interval_ms
        facts += self._states.see(sight.devices, sight.nodes, is_due=is_due)
        return facts

    def _see_slices(self, sight: Sight, view_ms: int, *, is_due: bool) -> list[Fact]:
        facts: list[Fact] = []
        if sight.slices is self._followed and not is_due:
            # Nearly every tick: nothing is new but that all of it goes on.
            for sighting, known in self._open:
                known.confirmed_at_ms = max(known.confirmed_at_ms, _confirmed_ms(sighting, sight, view_ms))
            return facts
        seen: set[_Key] = set()
        self._followed, self._open = sight.slices, []
        for sighting in sight.slices:
            # All vendors are shown, only NVIDIA is billed.
            if not sighting.held.grant.is_nvidia:
                continue
            key = sighting.key
            seen.add(key)
            confirmed_ms = _confirmed_ms(sighting, sight, view_ms)
            fact = self._see_slice(key, sighting, confirmed_ms, is_due=is_due)
            if fact is not None:
                facts.append(fact)
            if sighting.held.ended_at_ms is None and key in self._allocations:
                self._open.append((sighting, self._allocations[key]))
        for key in [key for key in self._allocations if key not in seen]:
            gone = self._allocations.pop(key)
            facts.append(_inferred_end(gone, sight.vanished.get(gone.fact.pod_uid, view_ms)))
        if self._ended:
            self._ended = {key: ended_ms for key, ended_ms in self._ended.items() if key in seen}
        return facts

    def _see_slice(
        self, key: _Key, sighting: Sighting, confirmed_ms: int, *, is_due: bool
    ) -> AllocationFact | None:
        held = sighting.held
        ended_ms = held.ended_at_ms
        if key in self._ended and (ended_ms is None or ended_ms >= self._ended[key]):
            return None
        if ended_ms is not None:
            known = self._allocations.pop(key, None)
            self._ended[key] = ended_ms
            fact = self._first_fact(sighting, min(confirmed_ms, ended_ms)) if known is None else known.fact
            # A process seen before may be newer than what is seen now.
            latest_ms = confirmed_ms if known is None else max(confirmed_ms, known.confirmed_at_ms)
            return msgspec.structs.replace(
                fact,
                started_at_ms=_earliest(fact.started_at_ms, held.started_at_ms),
                first_confirmed_at_ms=min(fact.first_confirmed_at_ms, ended_ms),
                confirmed_at_ms=min(latest_ms, ended_ms),
                ended_at_ms=ended_ms,
                end_reason=held.end_reason,
                end_kind="observed",
            )
        known = self._allocations.get(key)
        if known is None:
            fact = self._first_fact(sighting, confirmed_ms)
            self._allocations[key] = OpenAllocation(fact, confirmed_ms)
            return fact
        known.confirmed_at_ms = max(known.confirmed_at_ms, confirmed_ms)
        said = known.fact
        bound_ms = min(said.bound_at_ms, held.bound_at_ms)
        started_ms = _earliest(said.started_at_ms, held.started_at_ms)
        model = said.model or sighting.model
        is_news = (bound_ms, started_ms, model) != (said.bound_at_ms, said.started_at_ms, said.model)
        if not is_news and not (is_due and known.confirmed_at_ms > said.confirmed_at_ms):
            return None
        known.fact = msgspec.structs.replace(
            said,
            bound_at_ms=bound_ms,
            started_at_ms=started_ms,
            model=model,
            confirmed_at_ms=known.confirmed_at_ms,
        )
        return known.fact

    def _first_fact(self, sighting: Sighting, confirmed_ms: int) -> AllocationFact:
        grant = sighting.held.grant
        return AllocationFact(
            cluster=self._cluster,
            pod_uid=sighting.pod_uid,
            container=grant.container,
            device_uuid=DeviceUuid(grant.device_uuid),
            witness=self._witness,
            node_uid=sighting.node_uid,
            node=sighting.node,
            namespace=sighting.namespace,
            pod=sighting.pod,
            vendor=grant.vendor,
            model=sighting.model,
            mem_mib=grant.memory_mib,
            core_percent=grant.core_percent,
            container_kind=grant.kind,
            tenant_key=sighting.tenant_key,
            bound_at_ms=sighting.held.bound_at_ms,
            started_at_ms=sighting.held.started_at_ms,
            first_confirmed_at_ms=confirmed_ms,
            confirmed_at_ms=confirmed_ms,
            mig=grant.mig,
            labels=dict(sighting.labels),
        )


def _confirmed_ms(sighting: Sighting, sight: Sight, view_ms: int) -> int:
    """Up to when a slice is known to be held: by the API server's answer, or by a living process."""
    held = sighting.held
    seen_ms = sight.now_ms if (sighting.pod_uid, held.grant.container) in sight.alive else view_ms
    return max(view_ms, seen_ms, held.bound_at_ms)


def _inferred_end(gone: OpenAllocation, relisted_ms: int) -> AllocationFact:
    """Nobody saw it end: it lasted to its latest confirmation, and no longer than to the relist."""
    ended_ms = max(min(gone.confirmed_at_ms, relisted_ms), gone.fact.bound_at_ms)
    return msgspec.structs.replace(
        gone.fact,
        first_confirmed_at_ms=min(gone.fact.first_confirmed_at_ms, ended_ms),
        confirmed_at_ms=ended_ms,
        ended_at_ms=ended_ms,
        end_reason=VANISHED,
        end_kind="inferred",
    )


def _earliest(known_ms: int | None, seen_ms: int | None) -> int | None:
    if known_ms is None or seen_ms is None:
        return seen_ms if known_ms is None else known_ms
    return min(known_ms, seen_ms)
