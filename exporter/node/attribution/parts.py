"""One container's part of an attribution: its slices, and what it uses past them. Pure.

Everything here is made of one container's own: what it holds, what its regions say, its processes, and
the cards these touch. Invariant: while none of that changes, its part is the same, whatever its
neighbours do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from contract.ids import DeviceUuid
from exporter.hami.holding import NVIDIA, HeldSlice
from exporter.node.attribution.gauges import model_of, slice_gauges
from exporter.node.attribution.joining import Joint
from exporter.node.attribution.regions import ContainerUse, DeviceShare
from exporter.node.metering.counters import Labels, OwnerKey
from exporter.node.metering.inputs import OwnerInput
from exporter.node.snapshot import SliceGauges
from exporter.node.sources.pods import Place

UsedBy = Mapping[int, Collection[str]]
"""Uuids of the devices that list a process, by host pid."""


@dataclass(slots=True)
class Part:
    """What one container adds to an attribution.

    Attributes:
        gauges: Of the slices it holds.
        owners: The same for the meter; after them what it uses past its slices.
    """

    gauges: list[SliceGauges]
    owners: list[OwnerInput]


def part_of(joint: Joint, place: Place, used_by: UsedBy) -> Part:
    """A container's part, but for the locks of its regions."""
    held = joint.held.get(place, ())
    gauges = [slice_gauges(joint, place, each) for each in held]
    owners = [_slice_owner(joint, place, each, of) for each, of in zip(held, gauges, strict=True)]
    if place in joint.uses:
        owners += _past_slices(joint, place, {each.grant.device_uuid for each in held}, used_by)
    return Part(gauges, owners)


def devices_of(joint: Joint, place: Place, used_by: UsedBy) -> set[str]:
    """Uuids of the devices that a container's part is made of."""
    uuids = {each.grant.device_uuid for each in joint.held.get(place, ())}
    use = joint.uses.get(place)
    if use is not None:
        uuids.update(use.shares, *_devices_used(use, used_by))
    return uuids


def _devices_used(use: ContainerUse, used_by: UsedBy) -> list[Collection[str]]:
    return [used_by[pid] for pid in use.pids if pid in used_by]


def _slice_owner(joint: Joint, place: Place, held: HeldSlice, gauges: SliceGauges) -> OwnerInput:
    use = joint.uses.get(place, ContainerUse())
    share = use.shares.get(gauges.key.device_uuid, DeviceShare())
    is_nvidia = held.grant.vendor == NVIDIA
    return OwnerInput(
        key=gauges.key,
        labels=gauges.labels,
        allocated_mib=gauges.allocated_mib,
        held_from_ms=held.bound_at_ms,
        held_until_ms=held.ended_at_ms,
        pids=frozenset(use.pids),
        used_bytes=gauges.used_bytes,
        limit_bytes=gauges.region.limit_bytes if gauges.region is not None else None,
        is_blocked=use.is_blocked,
        cache_sm_percent=None if use.has_unplaced else share.sm_percent,
        has_unknown_pids=use.has_unknown_pids or use.has_unplaced or _may_have_more(joint, place, gauges),
        has_source=is_nvidia and (joint.sources.had_readings or place in joint.directories),
        has_sm_source=gauges.enforcement != "mig",
    )


def _may_have_more(joint: Joint, place: Place, gauges: SliceGauges) -> bool:
    """Whether processes may be a slice's although neither a region nor a cgroup says so."""
    if gauges.region is not None:
        return False
    return not joint.are_told or bool(joint.doubtful_on(place, gauges.key.device_uuid))


def _past_slices(joint: Joint, place: Place, held: Collection[str], used_by: UsedBy) -> Iterator[OwnerInput]:
    """What a container of a known pod uses of devices that it does not hold."""
    use, record = joint.uses[place], joint.record(place)
    for uuid in sorted(set(use.shares).union(*_devices_used(use, used_by)) - set(held)):
        share = use.shares.get(uuid, DeviceShare())
        used_bytes = _unallocated_bytes(joint, uuid, use, share, is_over=record.is_terminal)
        if used_bytes is None:
            continue
        yield OwnerInput(
            key=OwnerKey(*place, DeviceUuid(uuid), is_slice=False),
            labels=Labels(
                namespace=record.pod.metadata.namespace,
                pod=record.pod.metadata.name,
                container=place[1],
                tenant=record.tenant,
                model=model_of(joint, uuid),
            ),
            pids=frozenset(use.pids),
            used_bytes=used_bytes,
            cache_sm_percent=share.sm_percent,
            has_unknown_pids=use.has_unknown_pids,
            has_source=True,
            has_sm_source=not _is_mig(joint, uuid),
        )


def _is_mig(joint: Joint, device_uuid: str) -> bool:
    reading = joint.sources.readings.get(device_uuid)
    return reading is not None and reading.mode == "mig"


def _unallocated_bytes(
    joint: Joint, device_uuid: str, use: ContainerUse, share: DeviceShare, *, is_over: bool
) -> int | None:
    """Memory in use past the allocations; None when no living process shows any use.

    The files of an ended pod stay for a while: of those only processes that NVML still lists count.
    """
    listed = joint.listed.get(device_uuid)
    if listed is not None:
        mine = use.pids & listed
        if not mine:
            return None
        figures = [joint.nvml.get((device_uuid, pid)) for pid in mine]
        told = [figure for figure in figures if figure is not None]
        return sum(told) if len(told) == len(figures) else share.used_bytes
    return share.used_bytes if share.processes and not is_over else None
