"""What the node witness says of allocations and devices: from one tick's sources to a `Sight`. Pure.

Invariant: a slice is confirmed by the API server's last good answer or by a process seen alive now; a
device by NVML now, else by the last good view of its Node.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping

from contract.ids import DeviceUuid, NodeUid
from exporter.delivery.presence import PresentDevice
from exporter.delivery.witness import Sight, Sighting
from exporter.hami.annotations.node_register import RegisteredDevice
from exporter.hami.holding import NVIDIA
from exporter.kube.objects import Meta, Node
from exporter.node.attribution.joining import Sources
from exporter.node.attribution.owners import Attribution, down_reason
from exporter.node.sources.pods import PodRecord


class Reporter:
    """Makes a tick's sight; slices of pods and devices that did not change are the same as a tick ago."""

    def __init__(self) -> None:
        self._records: tuple[PodRecord, ...] = ()
        self._registered: Mapping[str, RegisteredDevice] | None = None
        self._meta: Meta | None = None
        self._slices: tuple[Sighting, ...] = ()

    def sight_of(
        self, sources: Sources, attribution: Attribution, node: Node, node_confirmed_ms: int | None
    ) -> Sight:
        """What the witness sees at this tick."""
        sight = sources.sight
        records = (*sight.records.values(), *sight.gone)
        if not (
            node.metadata is self._meta
            and sources.registered is self._registered
            and len(records) == len(self._records)
            and all(map(operator.is_, records, self._records))
        ):
            self._records, self._registered, self._meta = records, sources.registered, node.metadata
            self._slices = tuple([each for record in records for each in _sightings(record, sources, node)])
        return Sight(
            now_ms=sources.at_ms,
            confirmed_at_ms=sight.confirmed_at_ms if sight.is_listed else None,
            slices=self._slices,
            alive=attribution.alive,
            devices=tuple(_devices(sources, node, node_confirmed_ms)),
            vanished=sight.vanished,
        )


def _sightings(record: PodRecord, sources: Sources, node: Node) -> Iterator[Sighting]:
    for held in record.holding.slices:
        registered = sources.registered.get(held.grant.device_uuid)
        yield Sighting(
            held=held,
            pod_uid=record.uid,
            namespace=record.pod.metadata.namespace,
            pod=record.pod.metadata.name,
            node_uid=NodeUid(node.metadata.uid),
            node=node.metadata.name,
            tenant_key=record.tenant,
            model=registered.type if registered is not None else "",
        )


def _devices(sources: Sources, node: Node, node_confirmed_ms: int | None) -> Iterator[PresentDevice]:
    for uuid, registered in sources.registered.items():
        reading = sources.readings.get(uuid)
        confirmed_ms = sources.at_ms if reading is not None else node_confirmed_ms
        if confirmed_ms is None:
            continue
        total_bytes = reading.memory_total_bytes if reading is not None else None
        reason = down_reason(sources, uuid)
        yield PresentDevice(
            device_uuid=DeviceUuid(uuid),
            node_uid=NodeUid(node.metadata.uid),
            node=node.metadata.name,
            model=registered.type,
            vendor=NVIDIA,
            registered_mib=registered.memory_mib,
            slots=registered.count,
            confirmed_at_ms=confirmed_ms,
            physical_mib=None if total_bytes is None else total_bytes >> 20,
            state="healthy" if reason is None else "down",
            reason=reason,
        )
