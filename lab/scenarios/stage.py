"""A cluster of the scenario brought to life: its API server, and the cues that change what it knows.

Invariant: the API server knows node and namespaces before the scenario starts, so that exporters are
ready when it does; everything else comes by cues.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from lab.kube.double import ApiDouble
from lab.kube.json_object import JsonObject
from lab.scenarios.manifests import Writer
from lab.scenarios.plan import ClusterPlan
from lab.scenarios.player import Cue
from lab.scenarios.timeline import Deed, timeline

HEARTBEAT_S = 60
BOOKMARK_S = 1.0
"""A real API server confirms a quiet watch about once a minute; the demo's grace is six seconds."""


class Stage:
    """One cluster's API server.

    Args:
        cluster: What lives there.
        folder: For the server's CA and token.
    """

    def __init__(self, cluster: ClusterPlan, folder: Path) -> None:
        self.cluster = cluster
        self.double = ApiDouble(folder, bookmark_interval_s=BOOKMARK_S)

    def open(self, now_s: int) -> None:
        """Serve a cluster with its node and namespaces, and no pods yet."""
        writer = Writer(self.cluster, now_s)
        for namespace in writer.namespaces():
            self.double.create("Namespace", namespace)
        self.double.create("Node", writer.node())
        self.double.start()

    def close(self) -> None:
        """Stop serving."""
        self.double.stop()

    def cues(self, start_s: int) -> Iterator[Cue]:
        """What happens to the cluster's objects from the start on."""
        return (
            Cue(deed.at_s, partial(self._do, deed), deed.text) for deed in timeline(self.cluster, start_s)
        )

    def heartbeats(self, start_s: int, ends_s: int | None) -> Iterator[Cue]:
        """The kubelet says that the node is Ready, every minute."""
        writer = Writer(self.cluster, start_s)
        at_s = HEARTBEAT_S
        while ends_s is None or at_s <= ends_s:
            yield Cue(at_s, partial(self._patch_node, writer.heartbeat(at_s)))
            at_s += HEARTBEAT_S

    def outage(self) -> Iterator[Cue]:
        """The API server goes away, where the plan says so."""
        if self.cluster.api_gone_s is not None:
            text = f"{self.cluster.code}: the API server goes away"
            yield Cue(self.cluster.api_gone_s, self.double.stop, text)

    def _patch_node(self, patch: JsonObject) -> None:
        self.double.patch("Node", "", self.cluster.node, patch)

    def _do(self, deed: Deed) -> None:
        if deed.name is None:
            self.double.create(deed.kind, deed.manifest)
        else:
            self.double.patch(deed.kind, deed.namespace, deed.name, deed.manifest)
