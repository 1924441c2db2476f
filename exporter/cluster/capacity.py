"""What the GPU nodes have, what is held of it, and what HAMi's filter has promised.

Invariant: only bound pods count as allocated and only unbound ones as reserved, so that the two never
overlap. (HAMi's own metrics count reservations as allocated.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from exporter.cluster.nodes import NodeSight
from exporter.cluster.pods import PodRecord
from exporter.hami.holding import Grant


@dataclass(slots=True)
class NodeCapacity:
    """Sums over one node's NVIDIA devices; memory in MiB, cores in percent of a card."""

    registered_mib: int = 0
    registered_core_percent: int = 0
    registered_slots: int = 0
    allocated_mib: int = 0
    allocated_core_percent: int = 0
    allocated_slots: int = 0
    reserved_mib: int = 0
    models: tuple[str, ...] = ()

    def hold(self, grant: Grant) -> None:
        """Add a slice that is held."""
        self.allocated_mib += grant.memory_mib
        self.allocated_core_percent += grant.core_percent
        self.allocated_slots += grant.slots


def capacities(nodes: NodeSight, records: Iterable[PodRecord]) -> dict[str, NodeCapacity]:
    """By node name: GPU nodes, and any other node on which a slice is held or reserved."""
    found: dict[str, NodeCapacity] = {}
    for node in nodes.gpu_nodes:
        found[node.name] = NodeCapacity(
            registered_mib=sum(device.memory_mib for device in node.devices),
            registered_core_percent=sum(device.core_percent for device in node.devices),
            registered_slots=sum(device.count for device in node.devices),
            models=tuple(sorted({device.type for device in node.devices})),
        )
    for record in records:
        holding = record.holding
        if holding.node is None or not (holding.slices or holding.reserved):
            continue
        capacity = found.setdefault(holding.node, NodeCapacity())
        for held in holding.current:
            if held.grant.is_nvidia:
                capacity.hold(held.grant)
        capacity.reserved_mib += sum(grant.memory_mib for grant in holding.reserved if grant.is_nvidia)
    return found
