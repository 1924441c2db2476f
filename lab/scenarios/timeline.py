"""A cluster's plan as a list of dated deeds: what the API server is told, in which order, and when.

Pure: the player (`lab/scenarios/player.py`) does the deeds on the real clock. Invariant: deeds are
sorted by the real time at which they are done, and a pod's own deeds keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from lab.kube.json_object import JsonObject
from lab.scenarios.manifests import Writer
from lab.scenarios.plan import ClusterPlan, PodPlan

Kind: TypeAlias = Literal["Pod", "Node", "Event"]

ALLOCATE_TAKES_S = 0.4
"""From the binding until HAMi's device plugin has served the pod and freed the lock."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One write to the API.

    Attributes:
        at_s: When, in real seconds from the start.
        name: The object to patch; None: create what `manifest` says.
        namespace: Where that object is; "" for a node.
        text: What a person watching the demo should read, "" for nothing.
    """

    at_s: float
    kind: Kind
    manifest: JsonObject
    name: str | None = None
    text: str = ""
    namespace: str = ""


def timeline(cluster: ClusterPlan, start_s: int) -> tuple[Deed, ...]:
    """Every deed of a cluster whose scenario starts at `start_s` (Unix seconds)."""
    writer = Writer(cluster, start_s)
    deeds = [
        replace(deed, namespace="" if deed.kind == "Node" else cluster.namespace_of(pod))
        for pod in cluster.pods
        for deed in _life(writer, pod)
    ]
    for note in cluster.lock_notes:
        text = f"{cluster.code}: the node lock is written: {note.text or note.pod}"
        deeds.append(Deed(note.at_s, "Node", writer.noted_lock(note), cluster.node, text))
    if cluster.lock_removed_s is not None:
        at_s = cluster.replay.real_s(cluster.lock_removed_s)
        text = f"{cluster.code}: somebody removes the node lock by hand"
        deeds.append(Deed(at_s, "Node", writer.lock(0, None), cluster.node, text))
    return tuple(sorted(deeds, key=lambda deed: deed.at_s))


def _life(writer: Writer, pod: PodPlan) -> Iterator[Deed]:
    """One pod from creation to end."""
    at = writer.cluster.replay.real_s
    code = writer.cluster.code
    yield Deed(at(pod.created_s), "Pod", writer.pod(pod))
    if pod.filtered_s is not None:
        yield Deed(at(pod.filtered_s), "Pod", writer.filtered(pod, pod.filtered_s), pod.name)
        yield Deed(at(pod.filtered_s), "Event", writer.filter_succeeded(pod, pod.filtered_s))
    if pod.lock_refused_s is not None:
        text = f"{code}: {pod.name} waits, the node is locked"
        yield Deed(at(pod.lock_refused_s), "Event", writer.binding_failed(pod, pod.lock_refused_s), text=text)
    if pod.refused_for is not None:
        failed_s = pod.created_s + 1
        reason, summary = writer.filter_failed(pod, failed_s)
        yield Deed(at(failed_s), "Pod", writer.unschedulable(failed_s), pod.name)
        yield Deed(at(failed_s), "Event", reason, text=f"{code}: {pod.name} is refused, {pod.refused_for}")
        yield Deed(at(failed_s), "Event", summary)
    if pod.bound_s is not None:
        yield from _binding(writer, pod, pod.bound_s)
    if pod.started_s is not None:
        yield Deed(at(pod.started_s), "Pod", writer.running(pod, pod.started_s), pod.name)
    if pod.started_s is not None and pod.ended_s is not None:
        manifest = writer.succeeded(pod, pod.started_s, pod.ended_s)
        yield Deed(at(pod.ended_s), "Pod", manifest, pod.name, f"{code}: {pod.name} completes")


def _binding(writer: Writer, pod: PodPlan, bound_s: int) -> Iterator[Deed]:
    """Lock, binding, and where HAMi's own device plugin runs, the release of the lock."""
    cluster = writer.cluster
    at_s = cluster.replay.real_s(bound_s)
    if pod.bypasses_hami:
        text = f"{cluster.code}: {pod.name} is bound by {pod.scheduler}, past HAMi"
        yield Deed(at_s, "Pod", writer.bound(bound_s), pod.name, text)
        return
    yield Deed(at_s, "Node", writer.lock(bound_s, pod), cluster.node)
    yield Deed(at_s, "Pod", writer.allocating(bound_s), pod.name)
    yield Deed(at_s, "Pod", writer.bound(bound_s), pod.name, f"{cluster.code}: {pod.name} is bound")
    yield Deed(at_s, "Event", writer.binding_succeeded(pod, bound_s))
    if not cluster.is_mock and not pod.keeps_lock:
        yield Deed(at_s + ALLOCATE_TAKES_S, "Pod", writer.allocated(), pod.name)
        yield Deed(at_s + ALLOCATE_TAKES_S, "Node", writer.lock(bound_s, None), cluster.node)
