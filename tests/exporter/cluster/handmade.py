"""Hand-made clusters: objects as plain values, views and changes around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from contract.ids import ClusterCode
from exporter.cluster.core import ClusterCore, Options, Outcome, Seen
from exporter.cluster.state import decode_state, encode_state
from exporter.hami.resources import ResourceNames
from exporter.kube.objects import Event, Meta, Namespace, Node, Pod, ResourceQuota
from exporter.kube.tenant import parse_tenant_rules
from exporter.kube.view import Change, ChangeKind, View

# 2026-10-01T08:00:00Z: 56 years with 14 leap days and 273 days after 1970, eight hours.
EIGHT_MS = ((20_454 + 273) * 24 + 8) * 3_600_000


def clock(seconds: float) -> str:
    """RFC 3339 of so many whole seconds after 2026-10-01T08:00:00Z (or before)."""
    total = 8 * 3600 + int(seconds)
    return f"2026-10-01T{total // 3600:02}:{total // 60 % 60:02}:{total % 60:02}Z"


def unix(seconds: float) -> str:
    """The same as Unix seconds, as HAMi writes them."""
    return str(EIGHT_MS // 1000 + int(seconds))


def gpu_pod(
    name: str = "p",
    *,
    namespace: str = "team",
    memory_mib: int | None = 20_000,
    cores: int = 30,
    created_s: float = 0,
    scheduler: str = "hami-scheduler",
    annotations: dict[str, str] | None = None,
    node: str | None = None,
    bound_s: float | None = None,
    phase: str = "Pending",
    uid: str | None = None,
    limits: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A pod with one container that asks for one slice."""
    asked = {"nvidia.com/gpu": "1"}
    if memory_mib is not None:
        asked["nvidia.com/gpumem"] = str(memory_mib)
    if cores:
        asked["nvidia.com/gpucores"] = str(cores)
    conditions = []
    if bound_s is not None:
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": clock(bound_s)}
        conditions.append(scheduled)
    return {
        "metadata": {
            "name": name,
            "uid": uid or f"uid-{namespace}-{name}",
            "namespace": namespace,
            "creationTimestamp": clock(created_s),
            "annotations": annotations or {},
        },
        "spec": {
            "nodeName": node,
            "schedulerName": scheduler,
            "containers": [{"name": "main", "resources": {"limits": limits or asked}}],
        },
        "status": {"phase": phase, "conditions": conditions},
    }


def filtered(
    node: str = "gpu-node", *, at_s: float = 1, memory_mib: int = 20_000, cores: int = 30, **more: str
) -> dict[str, str]:
    """HAMi's annotations after the filter."""
    entry = f"GPU-a,NVIDIA,{memory_mib},{cores}:;"
    return {
        "hami.io/vgpu-node": node,
        "hami.io/vgpu-time": unix(at_s),
        "hami.io/vgpu-devices-allocated": entry,
        "hami.io/vgpu-devices-to-allocate": entry,
    } | {f"hami.io/{key.replace('_', '-')}": value for key, value in more.items()}


A100 = "GPU-a,10,81920,100,NVIDIA A100-SXM4-80GB,0,true,0,hami-core:"


def gpu_node(
    name: str = "gpu-node", *, register: str | None = A100, lock: str | None = None, uid: str | None = None
) -> dict[str, Any]:
    """A Ready node with one A100."""
    annotations = {} if register is None else {"hami.io/node-nvidia-register": register}
    if lock is not None:
        annotations["hami.io/mutex.lock"] = lock
    ready = {
        "type": "Ready",
        "status": "True",
        "lastHeartbeatTime": clock(0),
        "lastTransitionTime": clock(-3600),
    }
    return {
        "metadata": {"name": name, "uid": uid or f"uid-{name}", "annotations": annotations},
        "status": {"conditions": [ready]},
    }


def lock(at_s: float, pod: str = "p", namespace: str = "team") -> str:
    """A lock's value."""
    return f"{clock(at_s)},{namespace},{pod}"


def event(pod: str, reason: str, message: str, at_s: float, *, namespace: str = "team") -> dict[str, Any]:
    """An event about a pod."""
    return {
        "metadata": {"name": f"{pod}.{reason}.{at_s}", "uid": f"event-{pod}-{reason}-{at_s}-{message}"},
        "involvedObject": {"kind": "Pod", "name": pod, "uid": f"uid-{namespace}-{pod}"},
        "reason": reason,
        "message": message,
        "lastTimestamp": clock(at_s),
    }


def quota(
    name: str = "gpu", *, namespace: str = "team", used: dict[str, str] | None = None, **hard: str
) -> dict[str, Any]:
    """A resource quota; `limits_gpumem="8000"` stands for `limits.nvidia.com/gpumem`."""
    names = {key: f"{key.partition('_')[0]}.nvidia.com/{key.partition('_')[2]}" for key in hard}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"},
        "spec": {"hard": {names[key]: value for key, value in hard.items()}},
        "status": {"used": used or {}},
    }


@dataclass
class Cluster:
    """A core and the objects it sees; each `tick` shows what changed since the last one."""

    core: ClusterCore
    options: Options
    pods: dict[str, Pod] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    quotas: dict[str, ResourceQuota] = field(default_factory=dict)
    pod_changes: list[Change[Pod]] = field(default_factory=list)
    node_changes: list[Change[Node]] = field(default_factory=list)
    event_changes: list[Change[Event]] = field(default_factory=list)

    def put_pods(self, *raw: dict[str, Any], at_s: float = 0) -> None:
        for each in raw:
            pod = msgspec.convert(each, Pod)
            kind: ChangeKind = "modified" if pod.metadata.uid in self.pods else "added"
            self.pods = self.pods | {pod.metadata.uid: pod}
            self.pod_changes.append(Change(kind, pod, _ms(at_s)))

    def drop_node(self, uid: str, *, at_s: float) -> None:
        self.node_changes.append(Change("deleted", self.nodes[uid], _ms(at_s)))
        self.nodes = {other: found for other, found in self.nodes.items() if other != uid}

    def drop_pod(self, uid: str, *, at_s: float, kind: ChangeKind = "deleted") -> None:
        pod = self.pods[uid]
        self.pods = {other: found for other, found in self.pods.items() if other != uid}
        self.pod_changes.append(Change(kind, pod, _ms(at_s)))

    def put_nodes(self, *raw: dict[str, Any], at_s: float = 0) -> None:
        for each in raw:
            node = msgspec.convert(each, Node)
            kind: ChangeKind = "modified" if node.metadata.uid in self.nodes else "added"
            self.nodes = self.nodes | {node.metadata.uid: node}
            self.node_changes.append(Change(kind, node, _ms(at_s)))

    def put_quotas(self, *raw: dict[str, Any]) -> None:
        for each in raw:
            found = msgspec.convert(each, ResourceQuota)
            self.quotas = self.quotas | {found.metadata.uid: found}

    def say(self, *raw: dict[str, Any]) -> None:
        for each in raw:
            self.event_changes.append(Change("added", msgspec.convert(each, Event), EIGHT_MS))

    def tick(self, at_s: float, *, view_s: float | None = None) -> Outcome:
        """One look; `view_s`: the API server is away since then."""
        confirmed_ms = _ms(at_s if view_s is None else view_s)
        seen = Seen(
            pods=View(self.pods, listed=True, confirmed_at_ms=confirmed_ms),
            nodes=View(self.nodes, listed=True, confirmed_at_ms=confirmed_ms),
            namespaces=View(self.namespaces, listed=True, confirmed_at_ms=confirmed_ms),
            pod_changes=self.pod_changes,
            node_changes=self.node_changes,
            event_changes=self.event_changes,
            are_pods_live=view_s is None,
            quotas=View(self.quotas, listed=True, confirmed_at_ms=confirmed_ms),
        )
        self.pod_changes, self.node_changes, self.event_changes = [], [], []
        return self.core.tick(seen, _ms(at_s))

    def restarted(self) -> Cluster:
        """A new process with the stored state; its watches list everything again."""
        state = decode_state(encode_state(self.core.dump()))
        assert state is not None
        new = Cluster(ClusterCore(self.options, state), self.options, self.pods, self.nodes, self.namespaces)
        new.quotas = self.quotas
        new.pod_changes = [Change("added", pod, EIGHT_MS) for pod in self.pods.values()]
        new.node_changes = [Change("added", node, EIGHT_MS) for node in self.nodes.values()]
        return new


def _ms(seconds: float) -> int:
    return EIGHT_MS + round(seconds * 1000)


def make_cluster(
    *,
    labels: dict[str, str] | None = None,
    schedulers: Sequence[str] = ("hami-scheduler",),
    rules: str = "namespace-label:capsule.clastix.io/tenant,namespace",
    nodes: Iterable[dict[str, Any]] | None = None,
) -> Cluster:
    options = Options(
        cluster=ClusterCode("lab"),
        names=ResourceNames(),
        tenant_rules=parse_tenant_rules(rules),
        scheduler_names=tuple(schedulers),
        lock_timeout_ms=300_000,
        push_interval_ms=2_000,
    )
    cluster = Cluster(ClusterCore(options), options)
    team = Namespace(
        Meta(name="team", uid="uid-team", labels=labels or {"capsule.clastix.io/tenant": "tenant-a"})
    )
    cluster.namespaces = {"uid-team": team}
    cluster.put_nodes(*(nodes if nodes is not None else [gpu_node()]))
    return cluster
