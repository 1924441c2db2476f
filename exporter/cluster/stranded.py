"""Free memory that no pod can get, because its card has no slot or no core left.

HAMi's filter refuses a card without a free slot, and one whose cores are all given away also to pods that
ask for none. Invariant: a card's free memory is stranded for one reason at most, the one that HAMi finds
first. Cards that are down or cut by MIG are left out: nothing of them is free in that sense.

Source: `reference/hami-kubernetes.md §4` (fit check).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from exporter.cluster.nodes import NodeSight
from exporter.cluster.pods import PodRecord
from exporter.hami.annotations.node_register import RegisteredDevice

Why: TypeAlias = Literal["slots", "cores"]
WHYS: tuple[Why, ...] = ("slots", "cores")


@dataclass(slots=True)
class _Held:
    """What bound pods hold of one card."""

    memory_mib: int = 0
    core_percent: int = 0
    slots: int = 0


def stranded(nodes: NodeSight, records: Iterable[PodRecord]) -> dict[tuple[str, Why], int]:
    """MiB by node and reason, 0 where nothing is stranded, for every GPU node."""
    held = _by_card(records)
    found: dict[tuple[str, Why], int] = {}
    for node in nodes.gpu_nodes:
        sums: dict[Why, int] = dict.fromkeys(WHYS, 0)
        for device in node.devices:
            mine = held.get((node.name, device.uuid), _Held())
            why = _why(device, mine)
            if why is not None:
                sums[why] += max(0, device.memory_mib - mine.memory_mib)
        found |= {(node.name, why): mib for why, mib in sums.items()}
    return found


def _by_card(records: Iterable[PodRecord]) -> Mapping[tuple[str, str], _Held]:
    held: dict[tuple[str, str], _Held] = defaultdict(_Held)
    for record in records:
        node = record.holding.node
        if node is None:
            continue
        for one in record.holding.current:
            grant = one.grant
            if grant.is_nvidia:
                mine = held[node, grant.device_uuid]
                mine.memory_mib += grant.memory_mib
                mine.core_percent += grant.core_percent
                mine.slots += grant.slots
    return held


def _why(device: RegisteredDevice, held: _Held) -> Why | None:
    if not device.health or device.mode == "mig":
        return None
    if held.slots >= device.count:
        return "slots"
    return "cores" if held.core_percent >= device.core_percent else None
