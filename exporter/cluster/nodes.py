"""The GPU nodes: what they register, whether they are Ready, and which annotations cannot be read.

Invariant: a node is read once per change of its object, and a flaw is counted once, not with every
heartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from exporter.hami.annotations.flaw import Flaw
from exporter.hami.annotations.node_lock import KEY as LOCK_KEY
from exporter.hami.annotations.node_lock import NodeLock, parse_node_lock
from exporter.hami.annotations.node_register import HAMI_KEY, VOLCANO_KEY, RegisteredDevice, registered
from exporter.hami.annotations.pod_keys import CORDON_KEY, parse_device_cordon
from exporter.hami.annotations.tally import FlawTally
from exporter.kube.objects import Node, parse_time_ms
from exporter.kube.view import View

CardShape = tuple[int, int, str]
"""Registered MiB, core percent, model."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """A Node's Ready condition; `heartbeat_at_ms` is the kubelet's last word in it."""

    is_ready: bool
    heartbeat_at_ms: int
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node as it is now.

    Attributes:
        is_gpu_node: It has a register annotation, readable or not.
        lock: None when the annotation is not there; an empty text is an unreadable lock.
    """

    node: Node
    is_gpu_node: bool
    devices: tuple[RegisteredDevice, ...]
    lock: NodeLock | None
    readiness: Readiness | None
    errors: tuple[Flaw, ...]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def uid(self) -> str:
        """The node's UID."""
        return self.node.metadata.uid

    def device(self, uuid: str) -> RegisteredDevice | None:
        """A registered device by its uuid."""
        return next((device for device in self.devices if device.uuid == uuid), None)


@dataclass(frozen=True)
class NodeSight:
    """The nodes at one tick, by UID and by name; only names are unique at one moment."""

    by_uid: Mapping[str, NodeRecord]
    by_name: Mapping[str, NodeRecord]

    @cached_property
    def gpu_nodes(self) -> tuple[NodeRecord, ...]:
        """Nodes with a register annotation."""
        return tuple(record for record in self.by_uid.values() if record.is_gpu_node)

    @cached_property
    def shapes(self) -> frozenset[tuple[CardShape, ...]]:
        """The different sets of cards that nodes have: what a request is measured against."""
        return frozenset(
            tuple(
                sorted((_largest_mib(device), device.core_percent, device.type) for device in record.devices)
            )
            for record in self.by_uid.values()
            if record.devices
        )


def _largest_mib(device: RegisteredDevice) -> int:
    if device.mode == "mig" and device.mig_profiles:
        return max(profile.memory_mb for profile in device.mig_profiles)
    return device.memory_mib


class NodeBook:
    """Remembers what was read of each node."""

    def __init__(self, flaws: FlawTally) -> None:
        self._flaws = flaws
        self._records: dict[str, NodeRecord] = {}
        self._objects: Mapping[str, Node] | None = None
        self._sight = NodeSight({}, {})

    def look(self, nodes: View[Node]) -> NodeSight:
        """The nodes as they are now; the same object while none of them changed."""
        if nodes.objects is self._objects:
            return self._sight
        records: dict[str, NodeRecord] = {}
        for uid, node in nodes.objects.items():
            known = self._records.get(uid)
            records[uid] = known if known is not None and known.node is node else self._read(node, known)
        self._objects, self._records = nodes.objects, records
        self._sight = NodeSight(records, {record.name: record for record in records.values()})
        return self._sight

    def _read(self, node: Node, known: NodeRecord | None) -> NodeRecord:
        record = read_node(node)
        self._flaws.count(record.errors, () if known is None else known.errors)
        return record


def read_node(node: Node) -> NodeRecord:
    """What a node's annotations and conditions say."""
    annotations = node.metadata.annotations
    register = registered(annotations)
    lock = parse_node_lock(annotations[LOCK_KEY]) if LOCK_KEY in annotations else None
    _, cordon_errors = parse_device_cordon(annotations.get(CORDON_KEY, ""))
    return NodeRecord(
        node=node,
        is_gpu_node=HAMI_KEY in annotations or VOLCANO_KEY in annotations,
        devices=register.devices,
        lock=lock,
        readiness=_readiness(node),
        errors=register.errors + (lock.errors if lock else ()) + cordon_errors,
    )


def _readiness(node: Node) -> Readiness | None:
    for condition in node.status.conditions:
        heartbeat_at_ms = parse_time_ms(condition.last_heartbeat_time or condition.last_transition_time)
        if condition.type == "Ready" and heartbeat_at_ms is not None:
            since_ms = parse_time_ms(condition.last_transition_time)
            return Readiness(condition.status == "True", heartbeat_at_ms, since_ms)
    return None
