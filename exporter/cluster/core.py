"""One tick of the cluster role, pure: views, changes and the time in; findings, facts and waits out.

Invariant: the same views, changes and times give the same answer, and a core that is built from `dump`
goes on where the other stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from contract.facts import Fact
from contract.ids import ClusterCode, PodUid
from exporter.cluster.bypass import bypasses
from exporter.cluster.capacity import NodeCapacity, capacities
from exporter.cluster.events import EventBook
from exporter.cluster.facts import NodeUids, present_devices, seen_nodes, sightings
from exporter.cluster.locks import STUCK_AFTER_MS, STUCK_SEEN_MS, LockState, NodeLocks
from exporter.cluster.nodes import NodeBook, NodeSight
from exporter.cluster.pending import (
    PendingKey,
    PendingPod,
    WaitingTime,
    is_pending,
    never_fits,
    reason_of,
    waits_for_lock,
    wanted_mib,
)
from exporter.cluster.pods import PodBook, PodRecord, PodSight
from exporter.cluster.quotas import QuotaSight, quota_sights
from exporter.cluster.snapshot import Findings, LockSight, PendingSum
from exporter.cluster.state import ClusterState
from exporter.cluster.stranded import Why, stranded
from exporter.delivery.witness import Sight, Sighting, Witness
from exporter.hami.annotations.node_lock import parse_node_lock
from exporter.hami.annotations.tally import FlawTally
from exporter.hami.resources import ResourceNames
from exporter.kube.objects import Event, Namespace, Node, Pod, ResourceQuota, parse_time_ms
from exporter.kube.tenant import TenantRule
from exporter.kube.view import Change, View

FACTS_EVERY_MS: Final = 5_000
"""The longest pause between two looks for facts while nothing changes; a change is looked at at once."""

FORGET_EVERY_MS: Final = 60_000
VANISHED_KEPT_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator decides."""

    cluster: ClusterCode
    names: ResourceNames
    tenant_rules: tuple[TenantRule, ...]
    scheduler_names: tuple[str, ...]
    lock_timeout_ms: int
    push_interval_ms: int


@dataclass(frozen=True, slots=True)
class Seen:
    """The views of one tick, taken before the changes, and all changes since the last tick.

    Attributes:
        are_pods_live: The watch of pods is connected: what it does not report did not happen.
    """

    pods: View[Pod]
    nodes: View[Node]
    namespaces: View[Namespace]
    pod_changes: Sequence[Change[Pod]] = ()
    node_changes: Sequence[Change[Node]] = ()
    event_changes: Sequence[Change[Event]] = ()
    are_pods_live: bool = True
    quotas: View[ResourceQuota] = field(default_factory=View)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tick found; `granted_s`: for pods just bound, seconds from creation to binding."""

    findings: Findings
    facts: tuple[Fact, ...]
    granted_s: tuple[float, ...]


class ClusterCore:
    """Everything the role remembers.

    Args:
        options: What the operator decides.
        state: What the last run left; None for a fresh start.
    """

    def __init__(self, options: Options, state: ClusterState | None = None) -> None:
        stored = state or ClusterState()
        self._options = options
        self.since_ms = stored.since_ms
        self.flaws = FlawTally(stored.annotation_errors, is_silent=state is not None)
        self._events = EventBook(stored.said)
        self._locks = NodeLocks(options.lock_timeout_ms, stored.locks)
        self._nodes = NodeBook(self.flaws)
        self._pods = PodBook(options.names, options.tenant_rules, self.flaws, self._events)
        self._waiting = WaitingTime(stored.waiting, stored.waiting_counts)
        self._witness = Witness(options.cluster, "cluster", options.push_interval_ms, stored.witness)
        self._uids = NodeUids()
        self._bound: frozenset[PodUid] = frozenset()
        self._vanished: dict[PodUid, int] = {}
        self._sightings: tuple[Sighting, ...] = ()
        self._capacities: Mapping[str, NodeCapacity] = {}
        self._bypassing: Mapping[tuple[str, str, str], int] = {}
        self._stranded: Mapping[tuple[str, Why], int] = {}
        self._quotas: Mapping[tuple[str, str], QuotaSight] = {}
        self._quota_objects: Mapping[str, ResourceQuota] | None = None
        self._last: tuple[Mapping[PodUid, PodRecord], NodeSight] | None = None
        self._facts_due_ms = 0
        self._forget_due_ms = 0

    def tick(self, seen: Seen, now_ms: int) -> Outcome:
        """Take in what happened; call it only when pods, nodes and namespaces were listed."""
        if self.since_ms is None:
            self.since_ms = now_ms
        self._events.read(change.object for change in seen.event_changes if change.kind != "vanished")
        self._follow_locks(seen)
        nodes = self._nodes.look(seen.nodes)
        pods = self._pods.look(seen.pods, seen.pod_changes, seen.namespaces, now_ms)
        self.flaws.speak()
        self._locks.judge(self._pods, now_ms)
        if now_ms >= self._forget_due_ms:
            self._forget_due_ms = now_ms + FORGET_EVERY_MS
            self._events.forget(pods.records, now_ms)
        has_changed = self._compare(pods, nodes)
        self._compare_quotas(seen.quotas, pods, has_changed=has_changed)
        granted_s = self._granted(pods) if has_changed else ()
        pending = self._pending(pods.records)
        self._count_waiting(pending, pods, seen, now_ms)
        facts = self._facts(seen, pods, nodes, now_ms, is_due=has_changed)
        return Outcome(self._findings(nodes, pending, now_ms), facts, granted_s)

    def _follow_locks(self, seen: Seen) -> None:
        """Every change in order: a healthy lock comes and goes between two ticks."""
        for change in seen.node_changes:
            if change.kind in {"added", "modified"}:
                self._locks.see(change.object, change.seen_at_ms)
            else:
                self._locks.forget(change.object.metadata.uid)
        if self._last is None:
            for uid in [uid for uid in self._locks.states() if uid not in seen.nodes.objects]:
                self._locks.forget(uid)

    def dump(self) -> ClusterState:
        """What must survive a restart; shares records with the core, so encode it at once."""
        waiting, counts = self._waiting.dump()
        return ClusterState(
            locks=dict(self._locks.states()),
            said=self._events.dump(),
            waiting=waiting,
            waiting_counts=counts,
            annotation_errors=self.flaws.dump(),
            witness=self._witness.dump(),
            since_ms=self.since_ms,
        )

    def _compare(self, pods: PodSight, nodes: NodeSight) -> bool:
        """Whether pods or nodes changed; what hangs on both alone is computed anew then."""
        if self._last is not None and self._last[0] is pods.records and self._last[1] is nodes:
            return False
        self._last = (pods.records, nodes)
        self._uids.learn(nodes)
        self._sightings = tuple(sightings(pods.records.values(), nodes, self._uids))
        self._capacities = capacities(nodes, pods.records.values())
        self._stranded = stranded(nodes, pods.records.values())
        self._bypassing = _bypassing(pods, nodes, self._options.scheduler_names)
        return True

    def _compare_quotas(self, quotas: View[ResourceQuota], pods: PodSight, *, has_changed: bool) -> None:
        """Quotas anew when one of them, or what is held, changed."""
        if has_changed or quotas.objects is not self._quota_objects:
            self._quota_objects = quotas.objects
            names = self._options.names
            self._quotas = quota_sights(quotas.objects.values(), pods.records.values(), names)

    def _granted(self, pods: PodSight) -> tuple[float, ...]:
        """Pods that were bound since the last look; at the first look only those that waited before."""
        bound = frozenset(uid for uid, record in pods.records.items() if record.is_bound)
        seconds: list[float] = []
        for uid in bound - self._bound:
            record = pods.records[uid]
            created_ms = parse_time_ms(record.pod.metadata.creation_timestamp)
            bound_ms = record.bound_at_ms
            is_news = not pods.is_first or self._waiting.has(uid)
            if is_news and record.holding.slices and created_ms is not None and bound_ms is not None:
                seconds.append(max(bound_ms - created_ms, 0) / 1000)
        self._bound = bound
        return tuple(seconds)

    def _pending(self, records: Mapping[PodUid, PodRecord]) -> list[PendingPod]:
        found: list[PendingPod] = []
        for record in records.values():
            if is_pending(record, self._options.scheduler_names):
                reason = reason_of(record, self._events.of(record.uid))
                key = PendingKey(record.pod.metadata.namespace, record.tenant, reason)
                found.append(PendingPod(record, key))
        return found

    def _count_waiting(self, pending: Sequence[PendingPod], pods: PodSight, seen: Seen, now_ms: int) -> None:
        gone = {
            change.object.metadata.uid: change.seen_at_ms
            for change in seen.pod_changes
            if change.kind in {"deleted", "vanished"}
        }

        def end_ms(uid: PodUid) -> int | None:
            record = pods.records.get(uid)
            return gone.get(uid) if record is None else record.bound_at_ms

        view_ms = seen.pods.confirmed_at_ms or now_ms
        self._waiting.tick(pending, end_ms, now_ms if seen.are_pods_live else view_ms)

    def _facts(
        self, seen: Seen, pods: PodSight, nodes: NodeSight, now_ms: int, *, is_due: bool
    ) -> tuple[Fact, ...]:
        self._vanished |= pods.vanished
        due_ms = min(FACTS_EVERY_MS, self._options.push_interval_ms)
        if not (is_due or pods.gone or now_ms >= self._facts_due_ms):
            return ()
        self._facts_due_ms = now_ms + due_ms
        nodes_ms = seen.nodes.confirmed_at_ms or now_ms
        # What is gone comes last: a view is older than the changes, so the pod may still be in it.
        gone = tuple(sightings(pods.gone, nodes, self._uids))
        sight = Sight(
            now_ms=now_ms,
            confirmed_at_ms=seen.pods.confirmed_at_ms,
            slices=self._sightings + gone,
            devices=tuple(present_devices(nodes, nodes_ms)),
            nodes=tuple(seen_nodes(nodes, nodes_ms)),
            vanished=self._vanished,
        )
        facts = tuple(self._witness.tick(sight))
        self._vanished = {
            uid: at_ms for uid, at_ms in self._vanished.items() if now_ms - at_ms < VANISHED_KEPT_MS
        }
        return facts

    def _findings(self, nodes: NodeSight, pending: Sequence[PendingPod], now_ms: int) -> Findings:
        shapes = nodes.shapes
        cards_mib = [mib for cards in shapes for mib, _, _ in cards]
        unschedulable: Counter[tuple[str, str, str]] = Counter()
        for pod in pending:
            why = never_fits(pod.record, shapes)
            if why is not None:
                unschedulable[pod.key.namespace, pod.key.tenant, why] += 1
        return Findings(
            capacities=self._capacities,
            locks=self._lock_sights(nodes, pending, now_ms),
            pending=_sums(pending, cards_mib),
            waiting_ms=dict(self._waiting.counts()),
            unschedulable=unschedulable,
            bypassing=self._bypassing,
            stranded_mib=self._stranded,
            quotas=self._quotas,
        )

    def _lock_sights(
        self, nodes: NodeSight, pending: Sequence[PendingPod], now_ms: int
    ) -> tuple[LockSight, ...]:
        waiting = Counter(waits_for_lock(pod.record, self._events.of(pod.record.uid)) for pod in pending)
        sights: list[LockSight] = []
        for uid, state in self._locks.states().items():
            record = nodes.by_uid.get(uid)
            is_locking = state.text is not None or any(state.outcomes.values())
            if is_locking or (record is not None and record.is_gpu_node):
                sights.append(self._lock_sight(state, waiting[state.node], now_ms))
        return tuple(sights)

    def _lock_sight(self, state: LockState, waiting_pods: int, now_ms: int) -> LockSight:
        lock = None if state.text is None else parse_node_lock(state.text)
        owner = (lock.namespace or "", lock.pod or "") if lock else ("", "")
        return LockSight(
            node=state.node,
            is_held=lock is not None,
            acquired_at_ms=lock.acquired_at_ms if lock else None,
            owner=owner,
            waiting_pods=waiting_pods,
            is_owner_stuck=lock is not None and _is_stuck(self._pods.by_name(*owner), state.node, now_ms),
            is_unreadable=lock is not None and not lock.is_readable,
            outcomes=dict(state.outcomes),
            since_ms=state.since_ms,
        )


def _bypassing(
    pods: PodSight, nodes: NodeSight, schedulers: Collection[str]
) -> Mapping[tuple[str, str, str], int]:
    found: Counter[tuple[str, str, str]] = Counter()
    for record in pods.records.values():
        why = bypasses(record, nodes, schedulers)
        if why is not None:
            found[record.pod.metadata.namespace, record.tenant, why] += 1
    return found


def _is_stuck(owner: PodRecord | None, node: str, now_ms: int) -> bool:
    """The owner is bound to the node and has not been running for 30 s."""
    if owner is None or owner.pod.spec.node_name != node or owner.pod.status.phase != "Pending":
        return False
    bound_ms, seen_ms = owner.bound_at_ms, owner.bound_seen_at_ms
    if bound_ms is None or seen_ms is None:
        return False
    return now_ms - bound_ms >= STUCK_AFTER_MS and now_ms - seen_ms >= STUCK_SEEN_MS


def _sums(pending: Sequence[PendingPod], cards_mib: Collection[int]) -> dict[PendingKey, PendingSum]:
    sums: dict[PendingKey, PendingSum] = {}
    for pod in pending:
        wanted = wanted_mib(pod.record.requests, cards_mib)
        known = sums.get(pod.key, PendingSum(0, None))
        memory = known.memory_mib if wanted is None else (known.memory_mib or 0) + wanted
        sums[pod.key] = PendingSum(known.pods + 1, memory)
    return sums
