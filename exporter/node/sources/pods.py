"""What the pods of this node hold, kept from tick to tick so that annotations are read once a change.

Invariant: a pod that is in the view has a record, and a slice that ended is in `gone` exactly once, in
the tick in which its end was seen. Nothing is said before namespaces were listed: the tenant may come
from their labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from contract.ids import PodUid, TenantKey
from exporter.hami.annotations.containers import PodLayout
from exporter.hami.annotations.pod_devices import PodDevices, parse_pod_devices
from exporter.hami.annotations.pod_keys import allocation_keys
from exporter.hami.annotations.tally import FlawTally
from exporter.hami.holding import TERMINAL_PHASES, Holding, holding
from exporter.hami.resources import ResourceNames, kinds_of, layout_of
from exporter.kube.objects import Namespace, Pod
from exporter.kube.tenant import TenantRule, tenant_key
from exporter.kube.view import Change, View

CONFIG_HASH = "kubernetes.io/config.hash"
"""On the mirror of a static pod: the UID under which the kubelet runs it."""

Place: TypeAlias = tuple[PodUid, str]
"""A container: its pod's UID and its name."""


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One pod as it is now.

    Attributes:
        devices: Its NVIDIA allocation as written, for the names of cache directories.
        seen_at_ms: When its present phase was first seen.
        cgroup_uid: Its UID in the paths of cgroups; a static pod's is not that of its mirror.
        containers: Names of its containers by the runtime's id, as far as the kubelet has said.
        requesters: Names of the containers that ask for a GPU.
        environment: Literal values by (container, variable).
    """

    pod: Pod
    holding: Holding
    tenant: TenantKey
    devices: PodDevices
    layout: PodLayout
    seen_at_ms: int
    cgroup_uid: str
    containers: Mapping[str, str]
    requesters: tuple[str, ...]
    environment: Mapping[tuple[str, str], str]

    @property
    def uid(self) -> PodUid:
        """The pod's UID."""
        return PodUid(self.pod.metadata.uid)

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self.pod.status.phase in TERMINAL_PHASES


@dataclass(frozen=True, slots=True)
class PodSight:
    """The pods at one tick.

    Attributes:
        records: By UID, those that exist.
        gone: Those whose DELETED event came since the last tick, with its end in the holding.
        vanished: Those absent after a relist, and when.
        is_listed: Pods and namespaces were listed; else the rest says nothing.
        confirmed_at_ms: The last successful answer about pods; None while nothing was listed.
    """

    records: Mapping[PodUid, PodRecord] = field(default_factory=dict)
    gone: tuple[PodRecord, ...] = ()
    vanished: Mapping[PodUid, int] = field(default_factory=dict)
    is_listed: bool = False
    confirmed_at_ms: int | None = None


class PodBook:
    """Remembers what was read of each pod."""

    def __init__(self, names: ResourceNames, rules: Sequence[TenantRule], flaws: FlawTally) -> None:
        self._names = names
        self._rules = rules
        self._flaws = flaws
        self._records: dict[PodUid, PodRecord] = {}
        self._namespaces: Mapping[str, Namespace] = {}
        self._labels: dict[str, Mapping[str, str]] = {}

    def look(
        self,
        pods: View[Pod],
        changes: Sequence[Change[Pod]],
        namespaces: View[Namespace],
        now_ms: int,
    ) -> PodSight:
        """Bring the book up to date with the views.

        Args:
            pods: The node's pods.
            changes: What happened since the last look.
            namespaces: All namespaces.
            now_ms: Unix milliseconds.
        """
        if not (pods.listed and namespaces.listed):
            return PodSight()
        is_fresh = namespaces.objects is self._namespaces
        if not is_fresh:
            self._namespaces = namespaces.objects
            self._labels = {each.metadata.name: each.metadata.labels for each in namespaces.objects.values()}
        gone = tuple(
            self._read(change.object, now_ms, deleted_at_ms=change.seen_at_ms)
            for change in changes
            if change.kind == "deleted"
        )
        vanished = {
            PodUid(change.object.metadata.uid): change.seen_at_ms
            for change in changes
            if change.kind == "vanished"
        }
        records: dict[PodUid, PodRecord] = {}
        for uid, pod in pods.objects.items():
            known = self._records.get(PodUid(uid))
            if known is None or known.pod is not pod or not is_fresh:
                known = self._read(pod, now_ms)
            records[PodUid(uid)] = known
        self._records = records
        return PodSight(records, gone, vanished, is_listed=True, confirmed_at_ms=pods.confirmed_at_ms)

    def _read(self, pod: Pod, now_ms: int, deleted_at_ms: int | None = None) -> PodRecord:
        known = self._records.get(PodUid(pod.metadata.uid))
        seen_at_ms = now_ms
        if known is not None and known.pod.status.phase == pod.status.phase:
            seen_at_ms = known.seen_at_ms
        annotations = pod.metadata.annotations
        key = next((key for key, family in allocation_keys(annotations) if family == "vgpu"), None)
        found = holding(pod, self._names, seen_at_ms=seen_at_ms, deleted_at_ms=deleted_at_ms)
        self._flaws.count(found.errors, () if known is None else known.holding.errors)
        layout = layout_of(pod, self._names)
        return PodRecord(
            pod=pod,
            holding=found,
            tenant=tenant_key(pod, self._labels.get(pod.metadata.namespace, {}), self._rules),
            devices=parse_pod_devices(annotations.get(key, "") if key else ""),
            layout=layout,
            seen_at_ms=seen_at_ms,
            cgroup_uid=annotations.get(CONFIG_HASH, pod.metadata.uid),
            containers=_container_names(pod),
            requesters=tuple(container.name for container in layout.requesters),
            environment={
                (spec.name, variable.name): variable.value
                for spec, _ in kinds_of(pod)
                for variable in spec.env
                if variable.value is not None
            },
        )


def _container_names(pod: Pod) -> dict[str, str]:
    """Names by id; the runtime stands before the id (`containerd://`, `cri-o://`, `docker://`)."""
    status = pod.status
    return {
        each.container_id.rpartition("//")[2]: each.name
        for each in (
            *status.init_container_statuses,
            *status.container_statuses,
            *status.ephemeral_container_statuses,
        )
        if each.container_id
    }
