"""The node role's three watches: pods of its node, the Node itself, all namespaces (metadata only)."""

from __future__ import annotations

from collections.abc import Callable

from contract.units import MS_PER_SECOND
from exporter.hami.annotations.node_register import NodeRegister, registered
from exporter.hami.annotations.tally import FlawTally
from exporter.kube.client import ApiClient
from exporter.kube.cluster_uid import cluster_uid
from exporter.kube.objects import Namespace, Node, Pod
from exporter.kube.resources import namespaces, nodes, pods
from exporter.kube.view import Change, View
from exporter.kube.watch import ObjectWatch
from exporter.node.clock import Clock, system_clock
from exporter.node.snapshot import CollectorHealth


class _Clocks:
    """One clock as a watch wants it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def wall_ms(self) -> int:
        return self._clock().wall_ms

    def boot_s(self) -> float:
        """Goes on through a suspend: a watch of before it is not worth resuming."""
        return self._clock().boot_ms / MS_PER_SECOND


class NodeWatches:
    """What the API server says of one node.

    Args:
        client: Asks the API server.
        node_name: The node.
        may_all_be_gone: Whether an empty list of pods can be true.
        flaws: Where unreadable register annotations are counted.
        clock: The sampler's.
    """

    def __init__(
        self,
        client: ApiClient,
        node_name: str,
        *,
        may_all_be_gone: Callable[[], bool],
        flaws: FlawTally,
        clock: Clock = system_clock,
    ) -> None:
        self._node_name = node_name
        self._flaws = flaws
        clocks = _Clocks(clock)
        self._pods = ObjectWatch(
            client,
            pods(node_name),
            may_all_be_gone=may_all_be_gone,
            clock_ms=clocks.wall_ms,
            monotonic=clocks.boot_s,
        )
        self._nodes = ObjectWatch(client, nodes(node_name), clock_ms=clocks.wall_ms, monotonic=clocks.boot_s)
        self._namespaces = ObjectWatch(client, namespaces(), clock_ms=clocks.wall_ms, monotonic=clocks.boot_s)
        self._register_of: Node | None = None
        self._register = NodeRegister((), ())

    def start(self) -> None:
        """Begin to list and watch."""
        for watch in (self._namespaces, self._nodes, self._pods):
            watch.start()

    def stop(self) -> None:
        """End the watches."""
        for watch in (self._namespaces, self._nodes, self._pods):
            watch.stop()

    def missing(self) -> list[str]:
        """What was not listed yet, in words."""
        return [
            f"{watch.name} were not listed yet"
            for watch in (self._namespaces, self._nodes, self._pods)
            if not watch.view().listed
        ]

    def drain_pods(self) -> list[Change[Pod]]:
        """What happened to pods since the last call."""
        return self._pods.drain()

    def pods(self) -> View[Pod]:
        """The node's pods."""
        return self._pods.view()

    def namespaces(self) -> View[Namespace]:
        """All namespaces."""
        return self._namespaces.view()

    def node(self) -> tuple[Node | None, int | None]:
        """Our Node and when the API server last confirmed it."""
        self._nodes.drain()
        self._namespaces.drain()
        view = self._nodes.view()
        found = next((node for node in view.objects.values() if node.metadata.name == self._node_name), None)
        return found, view.confirmed_at_ms

    def register(self, node: Node | None) -> NodeRegister:
        """What HAMi registered on our Node; read once for each change of the Node."""
        if node is not self._register_of:
            known = self._register.errors
            self._register = registered(node.metadata.annotations if node is not None else {})
            self._register_of = node
            self._flaws.count(self._register.errors, known)
        return self._register

    def cluster_uid(self) -> str | None:
        """The UID of kube-system, once namespaces were listed."""
        return cluster_uid(self._namespaces.view())

    def health(self) -> list[CollectorHealth]:
        """How the API server answers, by kind."""
        found = []
        for watch in (self._pods, self._nodes, self._namespaces):
            view = watch.view()
            is_ok = view.listed and watch.failure is None
            found.append(CollectorHealth(watch.name, is_ok, None, view.confirmed_at_ms))
        return found
