"""Whose is what: the joined sources as owners per device for the meter, and as gauges for the page.

Three kinds of GPU process, by its cgroup: in a container that holds the device (the slice's); in a known
pod that holds nothing there (unallocated, named by that pod); in no known pod (unattributed). Invariant:
neither of the last two changes a slice's figures. Source: `reference/metering.md §5`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import structs

from contract.ids import DeviceUuid
from exporter.hami.holding import NVIDIA, HeldSlice
from exporter.node.attribution.gauges import model_of, slice_gauges
from exporter.node.attribution.joining import Joint, Sources, join
from exporter.node.attribution.locks import RegionLocks
from exporter.node.attribution.regions import ContainerUse, DeviceShare
from exporter.node.attribution.residents import Residents
from exporter.node.metering.counters import Labels, OwnerKey
from exporter.node.metering.inputs import DeviceInput, OwnerInput
from exporter.node.snapshot import SliceGauges
from exporter.node.sources.pods import Place
from exporter.node.tallies import Tallies


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who uses what at one tick.

    Attributes:
        devices: For the meter.
        slices: Gauges of all slices held now.
        unattributed: Host pids NVML lists in no known pod; None = no card lists processes, or no pod is
            known yet.
        alive: Containers in which a GPU process was seen alive.
        wants_looks: Some slice depends on the cache for its SM use.
    """

    devices: tuple[DeviceInput, ...] = ()
    slices: tuple[SliceGauges, ...] = ()
    unattributed: frozenset[int] | None = None
    alive: frozenset[Place] = field(default_factory=frozenset)
    wants_looks: bool = False


class Attributor:
    """Attributes one tick after the other; remembers only what processes and locks need.

    Args:
        residents: Finds the processes behind slots, and the containers of processes.
        tallies: Where impossible values are counted.
        idle_power_mw: Configured idle power by model.
    """

    def __init__(
        self, residents: Residents, tallies: Tallies, idle_power_mw: Mapping[str, int] | None = None
    ) -> None:
        self._residents = residents
        self._locks = RegionLocks()
        self._tallies = tallies
        self._idle_power_mw = idle_power_mw or {}

    def attribute(self, sources: Sources) -> Attribution:
        """Join one tick's sources and say who uses what."""
        joint = join(sources, self._residents, self._tallies)
        self._locks.begin()
        slices: list[SliceGauges] = []
        owners: list[OwnerInput] = []
        for place, held in joint.held.items():
            for each in held:
                gauges = self._with_lock(joint, place, slice_gauges(joint, place, each))
                slices.append(gauges)
                owners.append(_slice_owner(joint, place, each, gauges))
        owners += _unallocated(joint, {owner.key for owner in owners})
        listed = [pids for uuid in joint.listed if (pids := joint.unowned_on(uuid)) is not None]
        is_known = bool(listed) and sources.sight.is_listed
        return Attribution(
            devices=self._devices(joint, owners),
            slices=tuple(slices),
            unattributed=frozenset().union(*listed) if is_known else None,
            alive=joint.alive,
            wants_looks=any(
                gauges.region is not None and _lacks_samples(joint, gauges.key.device_uuid)
                for gauges in slices
            ),
        )

    def _with_lock(self, joint: Joint, place: Place, gauges: SliceGauges) -> SliceGauges:
        use = joint.uses.get(place)
        share = use.shares.get(gauges.key.device_uuid) if use is not None else None
        if gauges.region is None or share is None or share.region is None:
            return gauges
        since_ms = self._locks.held_since_ms(share.path, share.region, joint.sources.at_ms)
        if since_ms is None:
            return gauges
        region = structs.replace(
            gauges.region,
            lock_held_since_ms=since_ms,
            lock_owner_is_alive=self._residents.lives_inside(place, share.region.owner_pid, since_ms),
        )
        return structs.replace(gauges, region=region)

    def _devices(self, joint: Joint, owners: Iterable[OwnerInput]) -> tuple[DeviceInput, ...]:
        sources = joint.sources
        by_device: defaultdict[str, list[OwnerInput]] = defaultdict(list)
        for owner in owners:
            by_device[owner.key.device_uuid].append(owner)
        found = []
        for uuid in sorted({*sources.registered, *sources.readings, *by_device}):
            registered, reading = sources.registered.get(uuid), sources.readings.get(uuid)
            has_failed = sources.had_readings
            if reading is not None:
                has_failed = reading.failure is not None or reading.has_lost_utilization
            total_bytes = reading.memory_total_bytes if reading is not None else None
            registered_mib = registered.memory_mib if registered is not None else None
            if registered_mib is None and total_bytes is not None:
                registered_mib = total_bytes >> 20
            found.append(
                DeviceInput(
                    device_uuid=DeviceUuid(uuid),
                    reading=reading,
                    owners=tuple(sorted(by_device[uuid], key=lambda owner: owner.key)),
                    unknown_reason="source_failed" if has_failed else "no_source",
                    registered_mib=registered_mib,
                    idle_power_mw=self._idle_power_mw.get(model_of(joint, uuid), 0),
                    is_down=down_reason(sources, uuid) is not None,
                )
            )
        return tuple(found)


def down_reason(sources: Sources, device_uuid: str) -> str | None:
    """Why a device counts as down; None = it is not.

    NVML lost it, a fatal XID stands, or HAMi registered it as unhealthy.
    """
    reading = sources.readings.get(device_uuid)
    if reading is not None and reading.failure is not None:
        return reading.failure
    history = sources.hardware.get(device_uuid)
    if history is not None and history.fatal_xid is not None:
        return f"xid_{history.fatal_xid}"
    registered = sources.registered.get(device_uuid)
    return "registered_unhealthy" if registered is not None and not registered.health else None


def _lacks_samples(joint: Joint, device_uuid: str) -> bool:
    reading = joint.sources.readings.get(device_uuid)
    return reading is None or reading.utilization is None


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


def _unallocated(joint: Joint, slices: set[OwnerKey]) -> Iterable[OwnerInput]:
    """Containers of known pods that use a device they do not hold."""
    held = {(key.pod_uid, key.container, key.device_uuid) for key in slices}
    used_by = defaultdict(set)
    for uuid, pids in joint.listed.items():
        for pid in pids:
            used_by[pid].add(uuid)
    for place, use in joint.uses.items():
        uuids = set(use.shares).union(*(used_by[pid] for pid in use.pids if pid in used_by))
        record = joint.record(place)
        for uuid in sorted(uuids):
            if (*place, uuid) in held:
                continue
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
