"""The five watches of the cluster role as one thing.

Invariant: changes are taken out only once pods, nodes and namespaces were listed, so that no ending is
seen before its beginning could be.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from exporter.cluster.core import Seen
from exporter.cluster.pods import slim_pod
from exporter.cluster.snapshot import CollectorHealth
from exporter.hami.resources import ResourceNames
from exporter.kube.client import ApiClient
from exporter.kube.cluster_uid import cluster_uid
from exporter.kube.objects import Event, Namespace, Node, Pod, ResourceQuota
from exporter.kube.resources import Resource, events, namespaces, nodes, pods, quotas
from exporter.kube.watch import ObjectWatch

# The kubelet's own events are by far the most, and none of them is a scheduler's word.
_NOISE: Final = ("Pulling", "Pulled", "Created", "Started", "Killing", "BackOff", "Unhealthy", "Scheduled")
USUAL_NAMES: Final = ResourceNames()
EVENT_SELECTOR: Final = ",".join(["involvedObject.kind=Pod", *(f"reason!={reason}" for reason in _NOISE)])


@dataclass(frozen=True, slots=True)
class Watched:
    """What the cluster role lists and watches, and how."""

    pods: Resource[Pod]
    nodes: Resource[Node]
    namespaces: Resource[Namespace]
    events: Resource[Event]
    quotas: Resource[ResourceQuota]

    @classmethod
    def by(cls, names: ResourceNames) -> Watched:
        """All of them; the large ones in pages, and of pods without GPUs only who they are."""
        return cls(
            pods=replace(pods(), is_paged=True, slim=partial(slim_pod, names=names)),
            nodes=replace(nodes(), is_paged=True),
            namespaces=namespaces(),
            events=replace(events(EVENT_SELECTOR), is_paged=True),
            quotas=quotas(),
        )


class ClusterWatches:
    """All pods, nodes, namespaces, quotas and the schedulers' events.

    Args:
        client: Asks the API server.
        on_change: Called from the watches' threads when something changed.
        names: What GPU pods are known by.
    """

    def __init__(
        self, client: ApiClient, on_change: Callable[[], None], names: ResourceNames = USUAL_NAMES
    ) -> None:
        watched = Watched.by(names)
        self._pods = ObjectWatch(client, watched.pods, on_change=on_change)
        self._nodes = ObjectWatch(client, watched.nodes, on_change=on_change)
        self._namespaces = ObjectWatch(client, watched.namespaces, on_change=on_change)
        self._events = ObjectWatch(client, watched.events, on_change=on_change)
        self._quotas = ObjectWatch(client, watched.quotas, on_change=on_change)
        self._needed: tuple[ObjectWatch[Any], ...] = (self._pods, self._nodes, self._namespaces)
        self._all: tuple[ObjectWatch[Any], ...] = (*self._needed, self._events, self._quotas)

    def start(self) -> None:
        """Begin to watch."""
        for watch in self._all:
            watch.start()

    def stop(self) -> None:
        """End all watches; each ends by itself, so they are stopped side by side."""
        threads = [threading.Thread(target=watch.stop) for watch in self._all]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def wait_listed(self, timeout_s: float) -> None:
        """Wait for the first lists, for at most so long."""
        due_s = time.monotonic() + timeout_s
        for watch in self._all:
            watch.wait_listed(max(due_s - time.monotonic(), 0.0))

    def missing(self) -> list[str]:
        """In words, what was not listed yet and why."""
        return [
            f"{watch.name} were not listed yet: {watch.failure or 'no answer so far'}"
            for watch in self._needed
            if not watch.view().listed
        ]

    def seen(self) -> Seen | None:
        """Views, then the changes up to and beyond them; None before all were listed."""
        if any(not watch.view().listed for watch in self._needed):
            return None
        self._namespaces.drain()
        self._quotas.drain()
        return Seen(
            pods=self._pods.view(),
            nodes=self._nodes.view(),
            namespaces=self._namespaces.view(),
            quotas=self._quotas.view(),
            pod_changes=self._pods.drain(),
            node_changes=self._nodes.drain(),
            event_changes=self._events.drain(),
            are_pods_live=self._pods.failure is None,
        )

    def view_ms(self) -> int | None:
        """The oldest of the last good answers; None while one is missing."""
        times = [watch.view().confirmed_at_ms for watch in self._needed]
        known = [at_ms for at_ms in times if at_ms is not None]
        return min(known) if len(known) == len(times) else None

    def cluster_uid(self) -> str | None:
        """UID of kube-system; None before namespaces were listed."""
        return cluster_uid(self._namespaces.view())

    def health(self) -> tuple[CollectorHealth, ...]:
        """How each watch is doing."""
        found: list[CollectorHealth] = []
        for watch in self._all:
            view = watch.view()
            is_well = view.listed and watch.failure is None and not view.is_suspect
            found.append(CollectorHealth(watch.name, is_well, view.confirmed_at_ms))
        return tuple(found)
