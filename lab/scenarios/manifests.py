"""Plans as Kubernetes JSON: the objects, patches and event texts that a real cluster would show.

Exact texts come from `reference/hami-kubernetes.md §2, §3, §7, §8`. Pure: the start of the scenario
comes in as Unix seconds. Invariant: every time written is a whole second, own time plus start.
"""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from typing import Literal

from lab.kube.json_object import JsonObject
from lab.scenarios.plan import ClusterPlan, LockNote, PodPlan, stable_uid

LOCK_ANNOTATION = "hami.io/mutex.lock"
ALLOCATED = "hami.io/vgpu-devices-allocated"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes one cluster's objects for a scenario that started at `start_s` (Unix seconds)."""

    cluster: ClusterPlan
    start_s: int

    def time(self, own_s: int) -> str:
        """An own time as RFC 3339, the way Kubernetes writes it."""
        moment = dt.datetime.fromtimestamp(self.start_s + own_s, tz=dt.UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    # -- what is there from the beginning --------------------------------------------------------

    def namespaces(self) -> tuple[JsonObject, ...]:
        """kube-system, whose UID names the cluster, and the pods' namespaces."""
        cluster = self.cluster
        created = self.time(-86_400)
        return (
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": "kube-system",
                    "uid": cluster.kube_system_uid,
                    "creationTimestamp": created,
                },
            },
            *(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {
                        "name": name,
                        "uid": stable_uid(cluster.code, "namespace", name),
                        "creationTimestamp": created,
                        "labels": dict(cluster.namespace_labels) if name == cluster.namespace else {},
                    },
                }
                for name in cluster.namespaces
            ),
        )

    def node(self) -> JsonObject:
        """The GPU node, registered and Ready."""
        cluster = self.cluster
        slots = sum(card.slots for card in cluster.cards)
        capacity = {"nvidia.com/gpu": str(slots)}
        if cluster.is_mock:
            # The mock device plugin makes ordinary resources of what HAMi's own leaves to its scheduler.
            capacity |= {
                "nvidia.com/gpumem": str(sum(card.memory_mib for card in cluster.cards)),
                "nvidia.com/gpucores": str(100 * len(cluster.cards)),
                "nvidia.com/gpumem-percentage": str(100 * len(cluster.cards)),
            }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": cluster.node,
                "uid": cluster.node_uid,
                "creationTimestamp": self.time(-86_400),
                "labels": {"gpu": "on"},
                "annotations": {"hami.io/node-nvidia-register": self.register()},
            },
            "status": {"capacity": capacity, "allocatable": capacity, **self.heartbeat(0)["status"]},
        }

    def register(self) -> str:
        """The register annotation: by hand on mock nodes, else as HAMi 2.9's device plugin writes it."""
        cards = self.cluster.cards
        if self.cluster.register_form == "string":
            return "".join(
                f"{card.uuid},{card.slots},{card.memory_mib},100,{card.registered_model},0,true,{card.index},hami-core:"
                for card in cards
            )
        devices = [
            {
                "id": card.uuid,
                "count": card.slots,
                "devmem": card.memory_mib,
                "devcore": 100,
                "type": card.registered_model,
                "mode": "hami-core",
                "health": True,
            }
            for card in cards
        ]
        if self.cluster.is_mock:
            return json.dumps(devices, indent=2) + "\n"
        return json.dumps([device | {"devicepairscore": {}} for device in devices], separators=(",", ":"))

    def heartbeat(self, own_s: int) -> JsonObject:
        """A patch that renews the kubelet's word that the node is Ready."""
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastTransitionTime": self.time(-86_400),
            "lastHeartbeatTime": self.time(own_s),
        }
        return {"status": {"conditions": [condition]}}

    def lock(self, own_s: int, pod: PodPlan | None) -> JsonObject:
        """A patch that writes the node lock for a pod, or takes it away."""
        value = None if pod is None else f"{self.time(own_s)},{self.cluster.namespace_of(pod)},{pod.name}"
        return {"metadata": {"annotations": {LOCK_ANNOTATION: value}}}

    def noted_lock(self, note: LockNote) -> JsonObject:
        """A patch that writes the node lock as the plan notes it."""
        value = note.text or f"{self.time(note.held_since_s)},{self.cluster.namespace},{note.pod}"
        return {"metadata": {"annotations": {LOCK_ANNOTATION: value}}}

    # -- a pod's life ----------------------------------------------------------------------------

    def pod(self, pod: PodPlan) -> JsonObject:
        """The pod as it is created."""
        limits: dict[str, str] = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(pod.memory_mib)}
        if pod.core_percent:
            limits["nvidia.com/gpucores"] = str(pod.core_percent)
        policy = {"name": "GPU_CORE_UTILIZATION_POLICY", "value": pod.policy}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod.name,
                "namespace": self.cluster.namespace_of(pod),
                "uid": self.cluster.pod_uid(pod),
                "creationTimestamp": self.time(pod.created_s),
                "labels": {"app": pod.name},
            },
            "spec": {
                "schedulerName": pod.scheduler,
                "containers": [
                    {
                        "name": pod.container,
                        "resources": {"limits": limits, "requests": limits},
                        "env": [policy] if pod.policy else [],
                    }
                ],
            },
            "status": {"phase": "Pending"},
        }

    def filtered(self, pod: PodPlan, own_s: int) -> JsonObject:
        """HAMi's filter chose a node and a card: a reservation until it is bound."""
        entry = f"{pod.card},NVIDIA,{pod.memory_mib},{pod.core_percent}:;"
        return {
            "metadata": {
                "labels": {"hami.io/vgpu-node": self.cluster.node},
                "annotations": {
                    "hami.io/vgpu-node": self.cluster.node,
                    "hami.io/vgpu-time": str(self.start_s + own_s),
                    ALLOCATED: entry,
                    TO_ALLOCATE: entry,
                },
            }
        }

    def allocating(self, own_s: int) -> JsonObject:
        """The extender has taken the lock and is about to bind."""
        return {
            "metadata": {
                "annotations": {
                    "hami.io/bind-phase": "allocating",
                    "hami.io/bind-time": str(self.start_s + own_s),
                }
            }
        }

    def bound(self, own_s: int) -> JsonObject:
        """The binding: the node's name and the condition that starts an allocation."""
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.time(own_s)}
        return {"spec": {"nodeName": self.cluster.node}, "status": {"conditions": [condition]}}

    def allocated(self) -> JsonObject:
        """HAMi's device plugin has served the pod; a mock plugin never says so."""
        return {"metadata": {"annotations": {"hami.io/bind-phase": "success", TO_ALLOCATE: ";"}}}

    def unschedulable(self, own_s: int) -> JsonObject:
        """No node fits, or the bind failed: the scheduler's condition."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "lastTransitionTime": self.time(own_s),
        }
        return {"status": {"conditions": [condition]}}

    def running(self, pod: PodPlan, own_s: int) -> JsonObject:
        """The container runs."""
        state = {"running": {"startedAt": self.time(own_s)}}
        return {"status": {"phase": "Running", "startTime": self.time(own_s), **self._status(pod, state)}}

    def succeeded(self, pod: PodPlan, started_s: int, ended_s: int) -> JsonObject:
        """The container has finished: a terminal phase."""
        terminated = {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": self.time(started_s),
            "finishedAt": self.time(ended_s),
        }
        return {"status": {"phase": "Succeeded", **self._status(pod, {"terminated": terminated})}}

    def _status(self, pod: PodPlan, state: JsonObject) -> JsonObject:
        container_id = f"containerd://{self.cluster.container_id(pod)}"
        status = {"name": pod.container, "containerID": container_id, "restartCount": 0, "state": state}
        return {"containerStatuses": [status]}

    # -- events ----------------------------------------------------------------------------------

    def event(
        self, pod: PodPlan, own_s: int, kind: Literal["Normal", "Warning"], reason: str, message: str
    ) -> JsonObject:
        """An event about a pod, from HAMi's scheduler."""
        cluster = self.cluster
        uid = stable_uid(cluster.code, "event", pod.name, str(own_s), reason, message)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{pod.name}.{uid[:16]}",
                "namespace": cluster.namespace_of(pod),
                "uid": uid,
                "creationTimestamp": self.time(own_s),
            },
            "involvedObject": {
                "kind": "Pod",
                "namespace": cluster.namespace_of(pod),
                "name": pod.name,
                "uid": cluster.pod_uid(pod),
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "count": 1,
            "firstTimestamp": self.time(own_s),
            "lastTimestamp": self.time(own_s),
            "source": {"component": pod.scheduler},
        }

    def filter_succeeded(self, pod: PodPlan, own_s: int) -> JsonObject:
        """`FilteringSucceed`, in the words of 2.6 and newer."""
        node = self.cluster.node
        text = f"find fit node({node}), 0 nodes not fit, 1 nodes fit({node}:10.00)"
        return self.event(pod, own_s, "Normal", "FilteringSucceed", text)

    def filter_failed(self, pod: PodPlan, own_s: int) -> tuple[JsonObject, JsonObject]:
        """`FilteringFailed`: one event for the reason, one that sums up (2.7 and newer)."""
        texts = (
            f"1 nodes {pod.refused_for}({self.cluster.node})",
            "no available node, 1 nodes do not meet",
        )
        reason, summary = (self.event(pod, own_s, "Warning", "FilteringFailed", text) for text in texts)
        return reason, summary

    def binding_failed(self, pod: PodPlan, own_s: int) -> JsonObject:
        """`BindingFailed`: the node is locked by another pod."""
        text = f"node {self.cluster.node} has been locked within 5m0s"
        return self.event(pod, own_s, "Warning", "BindingFailed", text)

    def binding_succeeded(self, pod: PodPlan, own_s: int) -> JsonObject:
        """`BindingSucceed`."""
        text = (
            f"Successfully binding node [{self.cluster.node}] to {self.cluster.namespace_of(pod)}/{pod.name}"
        )
        return self.event(pod, own_s, "Normal", "BindingSucceed", text)
