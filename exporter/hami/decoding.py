"""Decodes header, slots and tail that were already read: pure functions from bytes to values.

Invariant: bounds and counts are the caller's (`reading.py` reads exactly what is decoded here), so no
function here can fail on any content.
"""

from __future__ import annotations

import functools
from typing import Final

from msgspec import structs

from exporter.hami.layouts import DEVICES, SEQLOCK, UUID_BYTES, Layout
from exporter.hami.region import DeviceUse, Quality, Region, RegionDevice, Slot

_KNOWN_STATUS: Final = (0, 1, 2)
_SOUND: Final[frozenset[Quality]] = frozenset()


def decode_region(layout: Layout, head: bytes, tail: tuple[int, ...], slots: list[Slot]) -> Region:
    """Put a region together from its header bytes, its tail and its decoded slots."""
    quality: set[Quality] = set()
    header = layout.header_struct.unpack_from(head)
    sm_init_flag, owner_pid, sem_word, device_count = header[:4]
    limits, sm_limits = header[4 : 4 + DEVICES], header[4 + DEVICES :]
    device_num = min(device_count, DEVICES)
    if device_num != device_count:
        quality.add(Quality.DEVICE_COUNT_CLAMPED)
    if tail[0] != len(slots):
        quality.add(Quality.PROCESS_COUNT_CLAMPED)
    devices = [
        RegionDevice(index, _uuid(head, layout, index, quality), limits[index] or None, sm_limits[index])
        for index in range(device_num)
    ]
    for slot in slots:
        if slot.quality:
            quality |= slot.quality
    return Region(
        layout.name,
        layout.version,
        sm_init_flag,
        owner_pid,
        sem_word == 0,
        device_num,
        tuple(devices),
        limits,
        sm_limits,
        len(slots),
        tuple(slots),
        _live(slots, quality),
        tail[1],
        tail[2],
        tail[3],
        tail[4] if layout.last_kernel_time is not None else None,
        frozenset(quality) if quality else _SOUND,
    )


def with_tail(layout: Layout, region: Region, tail: tuple[int, ...]) -> Region:
    """The region with what another look at its tail says."""
    return structs.replace(
        region,
        utilization_switch=tail[1],
        recent_kernel=tail[2],
        priority=tail[3],
        last_kernel_time_s=tail[4] if layout.last_kernel_time is not None else None,
    )


def decode_slot(layout: Layout, look: bytes, offset: int, slot: int, held_still: bool) -> Slot:
    """Decode the slot that begins at `offset` of `look`; `held_still` = the look before agreed."""
    one, two, three = layout.rest_is_zero
    alone = (
        look.startswith(one[1], offset + one[0])
        and look.startswith(two[1], offset + two[0])
        and look.startswith(three[1], offset + three[0])
    )
    seqlock = None if layout.seqlock is None else SEQLOCK.unpack_from(look, offset + layout.seqlock)[0]
    consistent = held_still and not (seqlock and seqlock % 2)
    # Nearly every slot uses device 0 alone and is sound; only the others pay for a closer look.
    uses: tuple[DeviceUse, ...] = ()
    if alone and layout.is_full:
        values = layout.slot_structs[1].unpack_from(look, offset)
        _, _, context, module, data, spare, total, monitorused, dec, enc, sm, _ = values
        parts = context + module + data
        # The sign of all of them at once: negative if any is.
        signs = context | module | data | spare | total | monitorused
        closer = signs < 0 or parts != total
        if signs or sm or enc or dec:
            use = DeviceUse(0, total, monitorused, context, module, data, spare, sm, enc, dec)
            uses = (use,)
    else:
        # Memory beyond device_num counts: some releases never write that number, and indices can differ.
        values = layout.slot_structs[DEVICES].unpack_from(look, offset)
        found = [_use(layout, values, index, DEVICES) for index in range(DEVICES)]
        uses = tuple(use for use in found if use is not None)
        closer = True
    pid, status = values[0], values[-1]
    quality = _SOUND
    if closer or not consistent or status not in _KNOWN_STATUS:
        quality = _slot_quality(pid, status, uses, consistent=consistent)
    return Slot(slot, pid, values[1], status, seqlock, uses, consistent, quality)


def _slot_quality(
    pid: int, status: int, uses: tuple[DeviceUse, ...], *, consistent: bool
) -> frozenset[Quality]:
    """What is wrong with a slot; a dead one's left-overs matter to nobody."""
    quality = set() if consistent else {Quality.SLOT_INCONSISTENT}
    if pid and status:
        if status not in _KNOWN_STATUS:
            quality.add(Quality.STATUS_UNKNOWN)
        if any(use.parts_differ for use in uses):
            quality.add(Quality.PARTS_DIFFER)
        if any(use.has_counter_below_zero for use in uses):
            quality.add(Quality.COUNTER_BELOW_ZERO)
    return frozenset(quality)


def _use(layout: Layout, values: tuple[int, ...], index: int, count: int) -> DeviceUse | None:
    """Device `index` of an unpacked slot with `count` devices, None when all its figures are 0."""
    kinds = layout.kinds
    first = 2 + index * kinds
    monitorused = values[2 + count * kinds + index]
    dec = enc = sm = None
    if layout.util is not None:
        first_util = 2 + count * (kinds + 1) + index * 3
        dec, enc, sm = values[first_util : first_util + 3]
    if kinds == 1:
        total = values[first]
        return DeviceUse(index, total, monitorused) if total or monitorused else None
    context, module, data, offset, total = values[first : first + 5]
    if not (total or monitorused or context or module or data or offset or sm or enc or dec):
        return None
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


def _live(slots: list[Slot], quality: set[Quality]) -> tuple[Slot, ...]:
    """The slots that count; of a process seen twice, as while the table is compacted, the later look."""
    live = [slot for slot in slots if slot.pid and slot.status]
    if len(live) < 2 or len({slot.pid for slot in live}) == len(live):
        return tuple(live)
    latest = {slot.pid: slot for slot in live}
    quality.add(Quality.DUPLICATE_PID)
    return tuple(slot for slot in live if latest[slot.pid] is slot)


def _uuid(head: bytes, layout: Layout, index: int, quality: set[Quality]) -> str | None:
    """A device's name, None when it is empty or unfit."""
    start = layout.uuids + index * UUID_BYTES
    text = _text(head[start : start + UUID_BYTES])
    if text is None:
        quality.add(Quality.UUID_INVALID)
    return text or None


@functools.lru_cache(maxsize=1_024)
def _text(field: bytes) -> str | None:
    """The text up to the first NUL; None unless it is printable ASCII: it ends in labels and terminals."""
    try:
        text = field.partition(b"\0")[0].decode("ascii")
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None
