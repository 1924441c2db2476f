"""What the cluster witness sees: the views as `Sight`, for the witness that makes facts of them.

Invariant: nothing is claimed later than the view it was read from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from contract.ids import DeviceUuid, NodeUid
from exporter.cluster.nodes import NodeRecord, NodeSight
from exporter.cluster.pods import PodRecord
from exporter.delivery.presence import PresentDevice, SeenNode
from exporter.delivery.witness import Sighting
from exporter.hami.holding import NVIDIA

UNHEALTHY = "registered_unhealthy"
"""Reason of a down device: its register entry says `health=false`."""


class NodeUids:
    """UIDs by name, of nodes that are gone, too: their pods may outlive them for a while."""

    def __init__(self) -> None:
        self._uids: dict[str, NodeUid] = {}

    def learn(self, nodes: NodeSight) -> None:
        """Take in the nodes that exist."""
        self._uids |= {name: NodeUid(record.uid) for name, record in nodes.by_name.items()}

    def of(self, name: str | None) -> NodeUid | None:
        """The UID that the name last had; None when no such node was ever seen."""
        return self._uids.get(name or "")


def sightings(records: Iterable[PodRecord], nodes: NodeSight, uids: NodeUids) -> Iterator[Sighting]:
    """Every NVIDIA slice of these pods whose node is known."""
    for record in records:
        node_uid = uids.of(record.holding.node)
        if node_uid is None or record.holding.node is None:
            continue
        node = nodes.by_name.get(record.holding.node)
        for held in record.holding.slices:
            if not held.grant.is_nvidia:
                continue
            device = node.device(held.grant.device_uuid) if node else None
            yield Sighting(
                held=held,
                pod_uid=record.uid,
                namespace=record.pod.metadata.namespace,
                pod=record.pod.metadata.name,
                node_uid=node_uid,
                node=record.holding.node,
                tenant_key=record.tenant,
                model=device.type if device else "",
            )


def present_devices(nodes: NodeSight, view_ms: int) -> Iterator[PresentDevice]:
    """Every registered device."""
    for node in nodes.gpu_nodes:
        for device in node.devices:
            yield PresentDevice(
                device_uuid=DeviceUuid(device.uuid),
                node_uid=NodeUid(node.uid),
                node=node.name,
                model=device.type,
                vendor=NVIDIA,
                registered_mib=device.memory_mib,
                slots=device.count,
                confirmed_at_ms=view_ms,
                state="healthy" if device.health else "down",
                reason=None if device.health else UNHEALTHY,
            )


def seen_nodes(nodes: NodeSight, view_ms: int) -> Iterator[SeenNode]:
    """The Ready condition of every GPU node."""
    return (seen for node in nodes.gpu_nodes if (seen := _seen_node(node, view_ms)) is not None)


def _seen_node(node: NodeRecord, view_ms: int) -> SeenNode | None:
    readiness = node.readiness
    if readiness is None:
        return None
    return SeenNode(
        node_uid=NodeUid(node.uid),
        node=node.name,
        is_ready=readiness.is_ready,
        heartbeat_at_ms=readiness.heartbeat_at_ms,
        confirmed_at_ms=view_ms,
        since_ms=readiness.since_ms,
    )
