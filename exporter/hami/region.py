"""What a region says, as values: limits, process slots, memory per device, and how far to trust it.

Invariant: a `Region` holds only bytes that were read, with every count clamped and every string
checked; numbers are HAMi-core's own (signed, so a counter below zero is negative, never 16 EB).
Whether a slot's process still lives on the host is the meter's question, not this module's.
Meaning of the fields: `reference/hami-core-cache-format.md` section 5.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Quality(StrEnum):
    """What a reader noticed in a region that decodes all the same."""

    COUNTER_BELOW_ZERO = "counter_below_zero"
    DEVICE_COUNT_CLAMPED = "device_count_clamped"
    DUPLICATE_PID = "duplicate_pid"
    PARTS_DIFFER = "parts_differ"
    PROCESS_COUNT_CLAMPED = "process_count_clamped"
    SLOT_FROZEN = "slot_frozen"
    SLOT_INCONSISTENT = "slot_inconsistent"
    STATUS_UNKNOWN = "status_unknown"
    UUID_INVALID = "uuid_invalid"


class NotReady(msgspec.Struct, frozen=True):
    """The creator has not finished: look again later. No error.

    Attributes:
        reason: `too_short` (the file is still empty) or `no_magic` (it is not initialised yet).
        detail: The same in words, with the file's name.
    """

    reason: str
    detail: str


class RegionDevice(msgspec.Struct, frozen=True, gc=False):
    """A device the region names.

    Attributes:
        index: NVML index inside the container.
        uuid: Its name, None while it is not known (or not printable ASCII).
        memory_limit_bytes: What HAMi-core enforces, None = no limit.
        sm_limit_percent: Of the whole card; 100 and above do not throttle.
    """

    index: int
    uuid: str | None
    memory_limit_bytes: int | None
    sm_limit_percent: int


class DeviceUse(msgspec.Struct, frozen=True, gc=False):
    """What is accounted on one device index, by one slot or summed over several.

    None = this layout does not keep the figure. Negative = the counter wrapped below zero.

    Attributes:
        index: Device index: CUDA order for memory, NVML order for the rest (they can differ).
        total_bytes: What the limit is checked against; the one memory figure to use.
        monitorused_bytes: What NVML said for the same process, 0 when no watcher runs.
        sm_util_percent: Of the whole card, at one instant; often a false 0, see `CacheFile.sm_util`.
    """

    index: int
    total_bytes: int
    monitorused_bytes: int
    context_bytes: int | None = None
    module_bytes: int | None = None
    data_bytes: int | None = None
    offset_bytes: int | None = None
    sm_util_percent: int | None = None
    enc_util_percent: int | None = None
    dec_util_percent: int | None = None

    @property
    def parts_differ(self) -> bool:
        """Whether total is not the sum of context, module and data, as it is in a quiet slot."""
        if self.context_bytes is None or self.module_bytes is None or self.data_bytes is None:
            return False
        parts = self.context_bytes + self.module_bytes + self.data_bytes
        # The counters live modulo 2^64; so does their sum.
        return parts != self.total_bytes and (parts - self.total_bytes) % 2**64 != 0

    @property
    def has_counter_below_zero(self) -> bool:
        """Whether a memory counter wrapped."""
        parts = (
            self.context_bytes or 0,
            self.module_bytes or 0,
            self.data_bytes or 0,
            self.offset_bytes or 0,
        )
        return min(self.total_bytes, self.monitorused_bytes, *parts) < 0


class Slot(msgspec.Struct, frozen=True, gc=False):
    """One of the first proc_num process slots.

    Attributes:
        slot: Place in the table; it changes while a process lives (compaction).
        pid: In the container's pid namespace; 0 = free or exited.
        hostpid: As NVML reports it, 0 = not known; no proof of identity.
        status: 0 free or exited, 1 running, 2 suspended (memory is still held).
        seqlock: The slot's counter (odd = a write is in progress), None where there is none.
        devices: Devices with any figure that is not 0.
        consistent: False = the memory figures may not belong together; only total means something.
        quality: What the reader noticed in this slot.
    """

    slot: int
    pid: int
    hostpid: int
    status: int
    seqlock: int | None
    devices: tuple[DeviceUse, ...]
    consistent: bool
    quality: frozenset[Quality]

    @property
    def is_live(self) -> bool:
        """Whether the region counts this slot; a killed process stays live in it."""
        return self.status != 0 and self.pid != 0

    def on(self, index: int) -> DeviceUse | None:
        """What this slot accounts on a device index, None when nothing."""
        for device in self.devices:  # not `next` of a generator: asked of every slot at every tick
            if device.index == index:
                return device
        return None


class Region(msgspec.Struct, frozen=True, gc=False):
    """One decoded region.

    Attributes:
        version: The version words, None in the unversioned layouts.
        owner_pid: Container pid of the holder of the region lock, 0 = free.
        sem_held: Whether the lock's semaphore is taken; with owner_pid not 0 the lock is held.
        devices: The first device_num devices; may be empty although slots use memory.
        limits_bytes: All 16 limits as stored, 0 = none.
        sm_limits_percent: All 16 SM limits as stored.
        slots: The first proc_num slots, dead ones included.
        live_slots: Those that count, without duplicates of one pid.
        utilization_switch: 1 = the core limit is enforced (under the default policy).
        recent_kernel: -1 = blocked by a higher priority; no measure of activity.
        priority: 0 is the highest.
        last_kernel_time_s: Unix time of the last launch or attach, None where it is not kept.
        quality: What the reader noticed in it and in its slots.
    """

    layout: str
    version: tuple[int, int] | None
    sm_init_flag: int
    owner_pid: int
    sem_held: bool
    device_num: int
    devices: tuple[RegionDevice, ...]
    limits_bytes: tuple[int, ...]
    sm_limits_percent: tuple[int, ...]
    proc_num: int
    slots: tuple[Slot, ...]
    live_slots: tuple[Slot, ...]
    utilization_switch: int
    recent_kernel: int
    priority: int
    last_kernel_time_s: int | None
    quality: frozenset[Quality]

    def usage(self, slots: Iterable[Slot] | None = None) -> tuple[DeviceUse, ...]:
        """Sums per device index over the given slots (default: the live ones), in index order.

        Sums are signed: a counter below zero pulls down, it never adds 16 EB.
        """
        chosen = self.live_slots if slots is None else tuple(slots)
        uses = [use for slot in chosen for use in slot.devices]
        return tuple(
            _sum([use for use in uses if use.index == index]) for index in sorted({u.index for u in uses})
        )


def _sum(uses: list[DeviceUse]) -> DeviceUse:
    def over(values: list[int | None]) -> int | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    return DeviceUse(
        index=uses[0].index,
        total_bytes=sum(use.total_bytes for use in uses),
        monitorused_bytes=sum(use.monitorused_bytes for use in uses),
        context_bytes=over([use.context_bytes for use in uses]),
        module_bytes=over([use.module_bytes for use in uses]),
        data_bytes=over([use.data_bytes for use in uses]),
        offset_bytes=over([use.offset_bytes for use in uses]),
        sm_util_percent=over([use.sm_util_percent for use in uses]),
        enc_util_percent=over([use.enc_util_percent for use in uses]),
        dec_util_percent=over([use.dec_util_percent for use in uses]),
    )
