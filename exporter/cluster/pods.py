"""The pods that are or want GPU slices, read once per change.

Everything else in the cluster is skipped as early as possible. Invariants: a pod whose DELETED event came
is in `gone` exactly once, with its end; a lock's owner that has just gone is still known for a minute,
because its lock's ending is judged later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from contract.ids import PodUid, TenantKey
from exporter.cluster.events import EventBook
from exporter.cluster.locks import Owner
from exporter.hami.annotations.pod_keys import BindPhase, PodKeys, allocation_keys, parse_pod_keys
from exporter.hami.annotations.tally import FlawTally
from exporter.hami.holding import TERMINAL_PHASES, Holding, holding
from exporter.hami.resources import Request, ResourceNames, requests_of
from exporter.kube.objects import Meta, Namespace, Pod, parse_time_ms
from exporter.kube.tenant import TenantRule, tenant_key
from exporter.kube.view import Change, View

GONE_KEPT_MS: Final = 60_000

NameKey = tuple[str, str]
"""Namespace and name of a pod."""


def slim_pod(pod: Pod, names: ResourceNames) -> Pod:
    """A pod that has nothing to do with GPUs, reduced to who it is and since when: most are such."""
    if requests_of(pod, names) or allocation_keys(pod.metadata.annotations):
        return pod
    meta = pod.metadata
    return Pod(
        Meta(
            name=meta.name,
            uid=meta.uid,
            namespace=meta.namespace,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
        )
    )


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One pod as it is now.

    Attributes:
        requests: What its containers ask of HAMi; empty for a pod that only carries an allocation.
        phase_seen_at_ms: When its present phase was first seen.
        bound_seen_at_ms: When it was first seen with a node; None while it has none.
    """

    pod: Pod
    holding: Holding
    keys: PodKeys
    requests: tuple[Request, ...]
    tenant: TenantKey
    phase_seen_at_ms: int
    bound_seen_at_ms: int | None

    @property
    def uid(self) -> PodUid:
        """The pod's UID."""
        return PodUid(self.pod.metadata.uid)

    @property
    def name_key(self) -> NameKey:
        """Namespace and name."""
        return self.pod.metadata.namespace, self.pod.metadata.name

    @property
    def is_terminal(self) -> bool:
        """It has ended."""
        return self.pod.status.phase in TERMINAL_PHASES

    @property
    def is_bound(self) -> bool:
        """It has a node."""
        return bool(self.pod.spec.node_name)

    @property
    def bound_at_ms(self) -> int | None:
        """`PodScheduled`, else `bind-time`, else when it was seen."""
        for condition in self.pod.status.conditions:
            at_ms = parse_time_ms(condition.last_transition_time)
            if condition.type == "PodScheduled" and condition.status == "True" and at_ms is not None:
                return at_ms
        return self.keys.bound_at_ms or self.bound_seen_at_ms


@dataclass(frozen=True, slots=True)
class PodSight:
    """The pods at one tick.

    Attributes:
        records: By UID, those that exist.
        gone: Those whose DELETED event came since the last tick, with the end in their holding.
        vanished: Those absent after a relist, and when.
        is_first: The first look at a list: who is in it was there before.
    """

    records: Mapping[PodUid, PodRecord] = field(default_factory=dict)
    gone: tuple[PodRecord, ...] = ()
    vanished: Mapping[PodUid, int] = field(default_factory=dict)
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class _Past:
    """What a lock's ending may be judged by of a pod that is gone, and when that was seen."""

    uid: PodUid
    bind_phase: BindPhase | None
    is_terminal: bool
    gone_at_ms: int


class PodBook:
    """Remembers what was read of each pod; also who knows the owners of locks."""

    def __init__(
        self, names: ResourceNames, rules: Sequence[TenantRule], flaws: FlawTally, events: EventBook
    ) -> None:
        self._names = names
        self._rules = rules
        self._flaws = flaws
        self._events = events
        self._known: dict[str, tuple[Pod, PodRecord | None]] = {}
        self._records: dict[PodUid, PodRecord] = {}
        self._by_name: dict[NameKey, PodRecord] = {}
        self._past: dict[NameKey, _Past] = {}
        self._objects: Mapping[str, Pod] | None = None
        self._namespaces: Mapping[str, Namespace] | None = None
        self._labels: dict[str, Mapping[str, str]] = {}

    def look(
        self, pods: View[Pod], changes: Sequence[Change[Pod]], namespaces: View[Namespace], now_ms: int
    ) -> PodSight:
        """Bring the book up to date; call it only when pods and namespaces were listed."""
        is_first = self._objects is None
        have_namespaces_changed = namespaces.objects is not self._namespaces
        if have_namespaces_changed:
            self._namespaces = namespaces.objects
            self._labels = {each.metadata.name: each.metadata.labels for each in namespaces.objects.values()}
        gone = self._gone(changes)
        vanished = {
            PodUid(change.object.metadata.uid): change.seen_at_ms
            for change in changes
            if change.kind == "vanished"
        }
        if have_namespaces_changed or pods.objects is not self._objects:
            self._read_all(pods.objects, now_ms, is_fresh=not have_namespaces_changed)
            self._objects = pods.objects
        self._past = {
            name: past for name, past in self._past.items() if now_ms - past.gone_at_ms <= GONE_KEPT_MS
        }
        return PodSight(self._records, gone, vanished, is_first)

    def owner(self, namespace: str, pod: str, at_ms: int) -> Owner:
        """What is known of a lock's owner, as of an instant."""
        record = self._by_name.get((namespace, pod))
        if record is not None:
            return self._owner(_past(record, at_ms))
        past = self._past.get((namespace, pod))
        if past is not None and past.gone_at_ms >= at_ms:
            return self._owner(past)
        return Owner(exists=False)

    def _owner(self, pod: _Past) -> Owner:
        return Owner(
            exists=True,
            bind_phase=pod.bind_phase,
            is_terminal=pod.is_terminal,
            binding_failed_ms=self._events.binding_failed_ms(pod.uid),
        )

    def by_name(self, namespace: str, pod: str) -> PodRecord | None:
        """The pod of this name that exists now."""
        return self._by_name.get((namespace, pod))

    def _gone(self, changes: Sequence[Change[Pod]]) -> tuple[PodRecord, ...]:
        gone: list[PodRecord] = []
        for change in changes:
            if change.kind not in {"deleted", "vanished"}:
                continue
            deleted_at_ms = change.seen_at_ms if change.kind == "deleted" else None
            record = self._read(change.object, change.seen_at_ms, deleted_at_ms)
            if record is None:
                continue
            self._past[record.name_key] = _past(record, change.seen_at_ms)
            if change.kind == "deleted":
                gone.append(record)
        return tuple(gone)

    def _read_all(self, objects: Mapping[str, Pod], now_ms: int, *, is_fresh: bool) -> None:
        known: dict[str, tuple[Pod, PodRecord | None]] = {}
        for uid, pod in objects.items():
            before = self._known.get(uid)
            is_same = is_fresh and before is not None and before[0] is pod
            known[uid] = before if is_same and before is not None else (pod, self._read(pod, now_ms))
        self._known = known
        self._records = {PodUid(uid): record for uid, (_, record) in known.items() if record is not None}
        self._by_name = {record.name_key: record for record in self._records.values()}

    def _read(self, pod: Pod, now_ms: int, deleted_at_ms: int | None = None) -> PodRecord | None:
        requests = requests_of(pod, self._names)
        if not requests and not allocation_keys(pod.metadata.annotations):
            return None
        known = self._records.get(PodUid(pod.metadata.uid))
        phase_seen_at_ms = now_ms
        if known is not None and known.pod.status.phase == pod.status.phase:
            phase_seen_at_ms = known.phase_seen_at_ms
        bound_seen_at_ms = (known.bound_seen_at_ms if known else None) or now_ms
        found = holding(pod, self._names, seen_at_ms=phase_seen_at_ms, deleted_at_ms=deleted_at_ms)
        self._flaws.count(found.errors, known.holding.errors if known else ())
        return PodRecord(
            pod=pod,
            holding=found,
            keys=parse_pod_keys(pod.metadata.annotations),
            requests=requests,
            tenant=tenant_key(pod, self._labels.get(pod.metadata.namespace, {}), self._rules),
            phase_seen_at_ms=phase_seen_at_ms,
            bound_seen_at_ms=bound_seen_at_ms if pod.spec.node_name else None,
        )


def _past(record: PodRecord, at_ms: int) -> _Past:
    return _Past(record.uid, record.keys.bind_phase, record.is_terminal, at_ms)
