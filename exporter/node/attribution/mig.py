"""MIG slices: which instances a container holds, which processes run on them, and how much memory. Pure.

HAMi 2.10 names the instances in its annotation; before, only the container's own processes show which
one it has. Invariant: an instance is believed to be a slice's only by its ids or by its processes,
never by its size. Source: `reference/hami-kubernetes.md §3.7`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from exporter.hami.annotations.mig_allocations import MigAllocation
from exporter.hami.holding import Grant, HeldSlice
from exporter.node.sources.pods import Place
from exporter.nvidia.source import DeviceReading, MigInstance, ProcessMemory


def mig_residents(
    held: Mapping[Place, Sequence[HeldSlice]], readings: Mapping[str, DeviceReading]
) -> dict[Place, set[int]]:
    """Host pids on the instances that the annotation gives to each container."""
    found: dict[Place, set[int]] = {}
    for place, slices in held.items():
        for slice_ in slices:
            reading = readings.get(slice_.grant.device_uuid)
            if reading is None:
                continue
            for instance in _by_ids(slice_.grant, reading):
                found.setdefault(place, set()).update(process.pid for process in _on(instance, reading))
    return found


def mig_used_bytes(grant: Grant, reading: DeviceReading | None, pids: Collection[int]) -> int | None:
    """Memory in use on a slice's instances, the driver's own share of them included.

    Args:
        grant: What the container holds of the card.
        reading: The card.
        pids: The container's processes.

    Returns:
        None when it is not known which instances are the slice's, or what they use.
    """
    if reading is None or reading.mig is None or grant.mig is None:
        return None
    instances = _by_ids(grant, reading) or _by_processes(reading, pids)
    figures = [_instance_bytes(instance, reading) for instance in instances]
    if not figures or None in figures:
        return None
    return sum(figure for figure in figures if figure is not None)


def _by_ids(grant: Grant, reading: DeviceReading) -> list[MigInstance]:
    """The instances the annotation names; none unless every one is there."""
    found = [_named(allocation, reading.mig or ()) for allocation in grant.instances]
    return [instance for instance in found if instance is not None] if None not in found else []


def _named(allocation: MigAllocation, instances: Sequence[MigInstance]) -> MigInstance | None:
    if allocation.mig_uuid is None:
        return None
    by_uuid = next((each for each in instances if each.uuid == allocation.mig_uuid), None)
    if by_uuid is not None:
        return by_uuid
    # Sliced again under the same ids, an instance has another UUID.
    ids = (allocation.gpu_instance_id, allocation.compute_instance_id)
    return next((each for each in instances if (each.gpu_instance_id, each.compute_instance_id) == ids), None)


def _by_processes(reading: DeviceReading, pids: Collection[int]) -> list[MigInstance]:
    return [
        instance
        for instance in reading.mig or ()
        if any(process.pid in pids for process in _on(instance, reading))
    ]


def _on(instance: MigInstance, reading: DeviceReading) -> list[ProcessMemory]:
    """Processes on an instance; where it has no siblings, its compute instance needs not be told."""
    ids = (instance.gpu_instance_id, instance.compute_instance_id)
    return [
        process
        for process in reading.processes or ()
        if process.gpu_instance_id == ids[0] and process.compute_instance_id in {ids[1], None}
    ]


def _instance_bytes(instance: MigInstance, reading: DeviceReading) -> int | None:
    """Memory belongs to the GPU instance: compute instances that share one have only their processes'."""
    siblings = sum(each.gpu_instance_id == instance.gpu_instance_id for each in reading.mig or ())
    if siblings == 1:
        return instance.memory_used_bytes
    figures = [process.used_bytes for process in _on(instance, reading)]
    if reading.processes is None or None in figures:
        return None
    return sum(figure for figure in figures if figure is not None)
