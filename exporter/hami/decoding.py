"""Decodes header, slots and tail that were already read: pure functions from bytes to values.

Invariant: bounds and counts are the caller's (`reading.py` reads exactly what is decoded here), so no
function here can fail on any content.
"""

from __future__ import annotations

from exporter.hami.layouts import DEVICES, SEQLOCK, UUID_BYTES, Layout
from exporter.hami.region import DeviceUse, Quality, Region, RegionDevice, Slot


def decode_region(
    layout: Layout, head: bytes, tail: tuple[int, ...], slots: list[Slot], quality: set[Quality]
) -> Region:
    """Put a region together from its header bytes, its clamped tail and its decoded slots.

    What is noticed on the way is added to `quality`.
    """
    sm_init_flag, owner_pid, sem_word, device_count, *limits = layout.header_struct.unpack_from(head)
    device_num = min(device_count, DEVICES)
    if device_num != device_count:
        quality.add(Quality.DEVICE_COUNT_CLAMPED)
    process_count, utilization_switch, recent_kernel, priority, *last_kernel_time = tail
    devices = tuple(
        RegionDevice(
            index, _uuid(head, layout, index, quality), limits[index] or None, limits[DEVICES + index]
        )
        for index in range(device_num)
    )
    for slot in slots:
        _note(slot, quality)
    return Region(
        layout=layout.name,
        version=layout.version,
        sm_init_flag=sm_init_flag,
        owner_pid=owner_pid,
        sem_held=sem_word == 0,
        device_num=device_num,
        devices=devices,
        limits_bytes=tuple(limits[:DEVICES]),
        sm_limits_percent=tuple(limits[DEVICES:]),
        proc_num=process_count,
        slots=tuple(slots),
        live_slots=_live(slots, quality),
        utilization_switch=utilization_switch,
        recent_kernel=recent_kernel,
        priority=priority,
        last_kernel_time_s=last_kernel_time[0] if last_kernel_time else None,
        quality=frozenset(quality),
    )


def decode_slot(layout: Layout, look: bytes, offset: int, slot: int, *, held_still: bool) -> Slot:
    """Decode the slot that begins at `offset` of `look`; `held_still` = the look before agreed."""
    count = 1
    for start, zeros in layout.rest_is_zero:
        if not look.startswith(zeros, offset + start):
            count = DEVICES
            break
    values = layout.slot_structs[count].unpack_from(look, offset)
    seqlock = None if layout.seqlock is None else SEQLOCK.unpack_from(look, offset + layout.seqlock)[0]
    uses = (_use(layout, values, index, count) for index in range(count))
    return Slot(
        slot=slot,
        pid=values[0],
        hostpid=values[1],
        status=values[-1],
        seqlock=seqlock,
        devices=tuple(use for use in uses if use is not None),
        consistent=held_still and not (seqlock and seqlock % 2),
    )


def _use(layout: Layout, values: tuple[int, ...], index: int, count: int) -> DeviceUse | None:
    """Device `index` of an unpacked slot with `count` devices, None when all its figures are 0."""
    kinds = layout.kinds
    memory = values[2 + index * kinds : 2 + (index + 1) * kinds]
    monitorused = values[2 + count * kinds + index]
    first_util = 2 + count * (kinds + 1) + index * 3
    util = (None, None, None) if layout.util is None else values[first_util : first_util + 3]
    if not (monitorused or any(memory) or any(util)):
        return None
    dec, enc, sm = util
    if kinds == 1:
        return DeviceUse(index, memory[0], monitorused)
    context, module, data, offset, total = memory
    return DeviceUse(index, total, monitorused, context, module, data, offset, sm, enc, dec)


def same_memory(layout: Layout, one: bytes, at_one: int, other: bytes, at_other: int) -> bool:
    """Whether two looks at a slot agree on pid, hostpid, counter and memory."""
    end = layout.memory_end
    if one[at_one : at_one + end] != other[at_other : at_other + end]:
        return False
    if layout.seqlock is None or layout.seqlock < end:
        return True
    one_at, other_at = at_one + layout.seqlock, at_other + layout.seqlock
    return one[one_at : one_at + SEQLOCK.size] == other[other_at : other_at + SEQLOCK.size]


def _note(slot: Slot, quality: set[Quality]) -> None:
    if not slot.consistent:
        quality.add(Quality.SLOT_INCONSISTENT)
    if not slot.is_live:
        return
    if slot.status not in {1, 2}:
        quality.add(Quality.STATUS_UNKNOWN)
    for use in slot.devices:
        if use.parts_differ:
            quality.add(Quality.PARTS_DIFFER)
        if use.below_zero:
            quality.add(Quality.COUNTER_BELOW_ZERO)


def _live(slots: list[Slot], quality: set[Quality]) -> tuple[Slot, ...]:
    """The slots that count; of a process seen twice, as while the table is compacted, the later look."""
    live = [slot for slot in slots if slot.is_live]
    latest = {slot.pid: slot for slot in live}
    if len(latest) == len(live):
        return tuple(live)
    quality.add(Quality.DUPLICATE_PID)
    return tuple(slot for slot in live if latest[slot.pid] is slot)


def _uuid(head: bytes, layout: Layout, index: int, quality: set[Quality]) -> str | None:
    """A device's name up to the first NUL; printable ASCII only, for it ends in labels and terminals."""
    start = layout.uuids + index * UUID_BYTES
    name = head[start : start + UUID_BYTES].partition(b"\0")[0]
    if not name:
        return None
    if not name.isascii() or not (text := name.decode("ascii")).isprintable():
        quality.add(Quality.UUID_INVALID)
        return None
    return text
