"""What one container's regions say of each device: memory, processes, SM use. Pure.

Invariant: index i of a region means the device whose uuid stands at i, never the i-th device of
anything else; an index without a uuid means the container's only device, or none that can be told.
Source: `reference/hami-core-cache-format.md §3-5`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from exporter.hami.region import DeviceUse, Quality, Region, Slot
from exporter.node.checks import MAX_DEVICE_BYTES, possible
from exporter.node.sources.caches import CacheReading
from exporter.node.tallies import Tallies

NvmlMemory: TypeAlias = Mapping[tuple[str, int], int]
"""Bytes that NVML reports, by (device uuid, host pid)."""

CROSS_CHECK_SLACK_BYTES = 64 << 20
"""Sums of two devices may differ by this between region and NVML before an exchange is suspected."""

MAX_THROTTLING_PERCENT = 100

_MISPLACED = frozenset({Quality.COUNTER_BELOW_ZERO, Quality.SLOT_FROZEN})
"""Bytes of such a slot are not where the process has them, so NVML is asked instead."""

_Living: TypeAlias = Sequence[tuple[Slot, int]]
"""Slots of living processes with their host pids, 0 = not known."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known besides the regions.

    Attributes:
        device_bytes: Physical memory by uuid: no slot can hold more.
        nvml: For slots whose own figure is impossible, and to find devices that are mixed up.
        tallies: Where impossible values are counted.
    """

    device_bytes: Mapping[str, int | None]
    nvml: NvmlMemory
    tallies: Tallies


@dataclass(slots=True)
class DeviceShare:
    """One container's use of one device.

    Attributes:
        used_bytes: Sum over living slots.
        context_bytes: Kinds; None where a layout keeps none.
        processes: Living processes that account anything on the device (or all, on the only device).
        sm_percent: By the cache; None = not measured.
        region: The region that speaks of the device: limits and the like.
        index: The device's index in that region.
        is_uncertain: The devices of the container may be mixed up.
    """

    used_bytes: int = 0
    context_bytes: int | None = None
    module_bytes: int | None = None
    data_bytes: int | None = None
    processes: int = 0
    sm_percent: int | None = None
    region: Region | None = None
    index: int = 0
    path: str = ""
    is_uncertain: bool = False


@dataclass(slots=True)
class ContainerUse:
    """One container's use, all its regions together.

    Attributes:
        shares: By device uuid.
        pids: Host pids of its living processes, those without a slot included.
        has_unknown_pids: A living process has no host pid yet.
        has_impossible: A slot's figure was refused.
        has_unplaced: Something is used on a device that cannot be told.
        stale: Slots of processes that no longer live.
    """

    shares: dict[str, DeviceShare] = field(default_factory=dict)
    pids: set[int] = field(default_factory=set)
    has_unknown_pids: bool = False
    has_impossible: bool = False
    has_unplaced: bool = False
    stale: int = 0
    is_blocked: bool = False


def device_name(uuid: str) -> str:
    """A device's uuid without the suffix that sharing plugins add (`uuid::2`, `uuid/vgpu1`)."""
    name = uuid.partition("::")[0]
    return name if name.startswith("MIG-") else name.partition("/")[0]


def device_at(region: Region, index: int, granted: Collection[str]) -> str | None:
    """Which device a region's index means; None when that cannot be told."""
    if index < len(region.devices) and region.devices[index].uuid:
        return device_name(region.devices[index].uuid or "")
    if len(granted) == 1 and not any(device.uuid for device in region.devices):
        return next(iter(granted))
    return None


def container_use(
    readings: Sequence[CacheReading],
    host_pids: Sequence[int | None],
    granted: Collection[str],
    around: Surroundings,
) -> ContainerUse:
    """Sum up a container's regions.

    Args:
        readings: Its decoded files; one without living processes adds nothing but its limits.
        host_pids: The living process behind each live slot of all of them in order; 0 = its host pid is not
            known, None = the slot is stale.
        granted: Uuids of the devices the container holds.
        around: What is known besides.
    """
    use = ContainerUse()
    taken = 0
    for reading in readings:
        region = reading.region
        living: list[tuple[Slot, int]] = []
        for slot, pid in zip(region.live_slots, host_pids[taken:], strict=False):
            if pid is None:
                use.stale += 1
                continue
            living.append((slot, pid))
            if pid:
                use.pids.add(pid)
            else:
                use.has_unknown_pids = True
        taken += len(region.live_slots)
        if living and region.recent_kernel < 0:
            use.is_blocked = True
        is_only = len(region.devices) <= 1
        for index in _indices(region, living):
            uuid = device_at(region, index, granted)
            if uuid is None:
                use.has_unplaced = use.has_unplaced or any(slot.on(index) for slot, _ in living)
                continue
            share = use.shares.get(uuid)
            if share is None:
                share = use.shares[uuid] = DeviceShare()
            if share.region is None or living:
                share.region, share.index, share.path = region, index, reading.path
            use.has_impossible |= not _add_memory(share, (uuid, index), living, around)
            _add_sm(share, reading, index, living)
            share.processes += (
                len(living) if is_only else sum(slot.on(index) is not None for slot, _ in living)
            )
    _cross_check(use, around.nvml)
    return use


def add_slotless(use: ContainerUse, pids: Collection[int], nvml: NvmlMemory) -> None:
    """Add GPU processes that live in a container but have no slot: no library, or it lost the slot.

    Args:
        use: The container's use by its regions.
        pids: Its processes by NVML and their cgroups.
        nvml: Their memory.
    """
    slotless = set(pids) - use.pids
    use.pids |= slotless
    if use.has_unknown_pids:
        return  # a slot whose process is still being looked for may be theirs
    for uuid, share in use.shares.items():
        here = [nvml[uuid, pid] for pid in slotless if (uuid, pid) in nvml]
        share.used_bytes += sum(here)
        share.processes += len(here)


def _indices(region: Region, living: _Living) -> Sequence[int]:
    count = max(1, len(region.devices))
    used = {device.index for slot, _ in living for device in slot.devices if device.index >= count}
    return [*range(count), *sorted(used)]


def _add_memory(share: DeviceShare, place: tuple[str, int], living: _Living, around: Surroundings) -> bool:
    """Add up slots' memory; False if a figure was impossible."""
    uuid, index = place
    known_bytes = around.device_bytes.get(uuid)
    most_bytes = MAX_DEVICE_BYTES if known_bytes is None else known_bytes
    are_possible = True
    for slot, pid in living:
        device = slot.on(index)
        if device is None:
            continue
        total = possible("slot_memory", device.total_bytes, 0, most_bytes, around.tallies)
        are_possible = are_possible and total is not None
        is_misplaced = bool(slot.quality) and not slot.quality.isdisjoint(_MISPLACED)
        if total is None or is_misplaced:
            by_nvml = around.nvml.get((uuid, pid))
            if by_nvml is None and Quality.SLOT_FROZEN in slot.quality and device.monitorused_bytes > 0:
                by_nvml = min(device.monitorused_bytes, most_bytes)
            if total is None or by_nvml is not None:
                share.used_bytes += by_nvml or 0
                continue
        share.used_bytes += total
        if _has_sound_kinds(device):
            share.context_bytes = (share.context_bytes or 0) + (device.context_bytes or 0)
            share.module_bytes = (share.module_bytes or 0) + (device.module_bytes or 0)
            share.data_bytes = (share.data_bytes or 0) + (device.data_bytes or 0)
    return are_possible


def _has_sound_kinds(device: DeviceUse) -> bool:
    context, module, data = device.context_bytes, device.module_bytes, device.data_bytes
    if context is None or module is None or data is None:
        return False
    total = device.total_bytes
    return 0 <= context <= total and 0 <= module <= total and 0 <= data <= total


def _add_sm(share: DeviceShare, reading: CacheReading, index: int, living: _Living) -> None:
    """HAMi-core's SM figure, if it measures at all: a 0 without a running watcher means nothing."""
    if not living:
        share.sm_percent = share.sm_percent or 0
        return
    figures = reading.sm_percent
    if not figures:
        return
    percents = [figures.get((slot.pid, index)) for slot, _ in living]
    known = [
        percent for percent in percents if percent is not None and 0 <= percent <= MAX_THROTTLING_PERCENT
    ]
    is_watched = any(known) or any(
        (device := slot.on(index)) is not None and device.monitorused_bytes > 0 for slot, _ in living
    )
    if known and is_watched:
        share.sm_percent = min(100, (share.sm_percent or 0) + sum(known))


def _cross_check(use: ContainerUse, nvml: NvmlMemory) -> None:
    """Mark devices as uncertain whose figures fit NVML's better when exchanged.

    Memory follows the program's CUDA order, uuids NVML's; `CUDA_VISIBLE_DEVICES=1,0` exchanges them.
    """
    if len(use.shares) < 2:
        return
    told = {
        uuid: sum(nvml.get((uuid, pid), 0) for pid in use.pids)
        for uuid in use.shares
        if any((uuid, pid) in nvml for pid in use.pids)
    }
    uuids = sorted(use.shares)
    for number, first in enumerate(uuids):
        for second in uuids[number + 1 :]:
            if first not in told and second not in told:
                continue
            ours = use.shares[first].used_bytes, use.shares[second].used_bytes
            theirs = told.get(first, 0), told.get(second, 0)
            straight = abs(ours[0] - theirs[0]) + abs(ours[1] - theirs[1])
            exchanged = abs(ours[0] - theirs[1]) + abs(ours[1] - theirs[0])
            if straight > exchanged + CROSS_CHECK_SLACK_BYTES:
                use.shares[first].is_uncertain = use.shares[second].is_uncertain = True
