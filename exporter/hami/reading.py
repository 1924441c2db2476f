"""Turns a region's bytes into a `Region`, also while HAMi-core writes them.

Invariants: every byte is read before it is decoded and within bounds; the effort for one region is
bounded (20 pauses, some 17 ms), whatever a tenant writes into it; memory of a slot counts as consistent
only after two looks in a row agreed on pid, counter and memory with the counter even. That is the
seqlock protocol of `reference/hami-core-cache-format.md` section 3 (no complete write fits between two
equal counters), and it serves the layouts without a counter as well. proc_num is read between the two
looks at the table: slots that held still around it are a true picture of that instant, and a process
that comes or moves shows as a slot that did not.

Live files and unpacked fixtures share this module: both are a `Pread`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeAlias

from msgspec import structs

from exporter.hami.decoding import decode_region, decode_slot, same_memory, with_tail
from exporter.hami.errors import CacheContentError, printable
from exporter.hami.layouts import (
    BY_FILE_SIZE,
    DEVICES,
    MAGIC,
    PREFIX,
    SLOTS,
    V1_1_2008952,
    Layout,
)
from exporter.hami.region import NotReady, Quality, Region, Slot

Pread: TypeAlias = Callable[[int, int], bytes]
"""`os.pread` of one file: (length, offset) → bytes, fewer at the end of the file."""

Pause: TypeAlias = Callable[[float], object]
"""Waits the given seconds (`time.sleep`)."""

PAUSES: Final = 20
FIRST_PAUSE_S: Final = 0.00005
LONGEST_PAUSE_S: Final = 0.001
TABLE_LOOKS: Final = 4
FIRST_SLOTS: Final = 4
"""Slots in the first look at an unknown region; more processes cost one look more."""
PART_LOOKS: Final = 3
FROZEN_BYTES: Final = 32 << 20
"""A slot is suspected when NVML gives its process more than this beyond what the slot says."""
LEFT_OVERS: Final = 8
"""Slots behind the table in which the old place of a moved one is looked for."""

_LENGTHENED: Final = "an older file that a newer library lengthened: recreate the pod"
_SEM_SPARE: Final = bytes(16)
_FOREIGN_SEM: Final = (128).to_bytes(8, "little") + bytes(16)
"""The rest of the semaphore that v1.1-2008984 has where v1.1-2008952 has a device's name."""


class RegionMemory:
    """The last sound look at one file; while its bytes stay the same, so does its region.

    Utilisation, which HAMi-core writes eight times a second, is not compared: of a remembered region it
    may be an old one, and `CacheFile.sm_util` is what reads it.

    Attributes:
        region: The region as it was decoded last; None = nothing sound was seen yet.
        changes: How often the bytes were found to have changed, those of utilisation included.
    """

    __slots__ = ("_head", "_layout", "_tail", "changes", "region")

    def __init__(self) -> None:
        self.region: Region | None = None
        self.changes = 0
        self._head = self._tail = b""
        self._layout: Layout | None = None

    def glance(self, descriptor: int) -> Region | None:
        """The region, if one look at the open file still says the same; None = it must be read.

        Reading a byte more than there should be tells a file of another size, so its status is not asked.

        Raises:
            OSError: The file system fails.
        """
        layout = self._layout
        if layout is None:
            return None
        head = os.pread(descriptor, len(self._head), 0)
        rest = os.pread(descriptor, layout.rest_bytes + 1, layout.tail)
        if len(rest) != layout.rest_bytes:
            return None
        return self.recall(head, rest[: layout.tail_struct.size])

    def recall(self, head: bytes, tail: bytes) -> Region | None:
        """The region, if these bytes of header, slots and tail still say the same."""
        is_same_head, is_same_tail = head == self._head, tail == self._tail
        if is_same_head and is_same_tail:
            return self.region
        self.changes += 1
        region, layout = self.region, self._layout
        if region is None or layout is None:
            return None
        if not (is_same_head or _same_but_utilisation(layout, head, self._head)):
            return None
        if not is_same_tail:
            words = layout.tail_struct.unpack(tail)
            if words[0] != region.proc_num:
                return None
            region = self.region = with_tail(layout, region, words)
        self._head, self._tail = head, tail
        return region

    def keep(self, layout: Layout, head: bytes, tail: bytes, region: Region | None) -> None:
        """Remember a look; None = it was not sound, so that only its bytes are remembered."""
        self._layout, self._head, self._tail, self.region = layout, head, tail, region


def _same_but_utilisation(layout: Layout, one: bytes, other: bytes) -> bool:
    """Whether two looks at header and slots differ in nothing but the utilisation in slots."""
    if len(one) != len(other) or layout.util is None:
        return False
    begin, length = 0, DEVICES * layout.util_stride
    for util in range(layout.procs + layout.util, len(one), layout.slot_stride):
        if one[begin:util] != other[begin:util]:
            return False
        begin = util + length
    return one[begin:] == other[begin:]


def read_region(
    pread: Pread,
    size: int,
    name: str,
    *,
    pause: Pause,
    previous: Region | None = None,
    memory: RegionMemory | None = None,
) -> Region | NotReady:
    """Decode the region behind `pread`.

    Args:
        pread: Reads from the file.
        size: Size of the file in bytes.
        name: The file's name for messages.
        pause: Waits between looks at what is being written.
        previous: The last reading of the same file. A counter that stood odd at the same value then
            was left by a killed process; it is not waited for again.
        memory: Of the same file; kept up to date here. None = everything is decoded.

    Raises:
        CacheContentError: The bytes are no region of a known layout.
    """
    if size < PREFIX.size:
        shown = printable(name)
        return NotReady(
            "too_short", f"{shown}: {size} bytes; its creator has not extended it yet, look again"
        )
    candidates = BY_FILE_SIZE.get(size)
    if candidates is None:
        known = ", ".join(str(each) for each in sorted(BY_FILE_SIZE))
        raise _refused(name, "unknown_size", f"{size} bytes is no known size (known: {known})")
    layout = candidates[0]
    procs, stride, tail_struct = layout.procs, layout.slot_stride, layout.tail_struct
    seen = FIRST_SLOTS if previous is None else previous.proc_num
    for _ in range(TABLE_LOOKS):
        earlier, tail = pread(procs + seen * stride, 0), pread(tail_struct.size, layout.tail)
        if len(tail) != tail_struct.size:
            raise _refused(name, "truncated", "shortened while it was read")
        if memory is not None and (recalled := memory.recall(earlier, tail)) is not None:
            return recalled
        words = tail_struct.unpack(tail)
        process_count = words[0] if 0 <= words[0] <= SLOTS else 0 if words[0] < 0 else SLOTS
        head_bytes = procs + process_count * stride
        head = pread(head_bytes, 0)
        if process_count <= seen:
            break
        seen = process_count
    if len(head) != head_bytes:
        raise _refused(name, "truncated", "shortened while it was read")
    known_layout = _layout_of(candidates, head)
    if known_layout is None:
        return _unidentified(name, head)
    layout = known_layout
    _refuse_misfit(pread, layout, head, words, name, previous=previous)
    held_still = earlier.startswith(head)
    slots: list[Slot] = []
    offset, is_sound = procs, True
    for slot in range(process_count):
        found = decode_slot(layout, head, offset, slot, held_still)
        slots.append(found)
        is_sound = is_sound and not found.quality
        offset += stride
    if not is_sound:
        settling = _Settling(pread, layout, name, pause, previous)
        slots = [settling.settled(earlier, head, slot.slot) if slot.quality else slot for slot in slots]
    if layout.has_seqlock and _may_be_frozen(slots, previous):
        _mark_frozen(pread, layout, slots, previous)
    region = decode_region(layout, head, words, slots)
    if memory is not None:
        memory.keep(layout, head, tail, region if is_sound else None)
    return region


def _layout_of(candidates: tuple[Layout, ...], head: bytes) -> Layout | None:
    for layout in candidates:
        if head.startswith(layout.prefix):
            return layout
    return None


def _may_be_frozen(slots: list[Slot], previous: Region | None) -> bool:
    """Whether a slot was moved, or NVML's figure has clearly left one behind; nearly never."""
    for slot in slots:
        for use in slot.devices:
            if use.monitorused_bytes - use.total_bytes > FROZEN_BYTES:
                return True
    if previous is None:
        return False
    # A move changes who stands at a place; a mere newcomer, at the end, moves nobody.
    for slot, then in zip(slots, previous.slots, strict=False):
        if then.pid != slot.pid:
            return True
    return Quality.SLOT_FROZEN in previous.quality


def _mark_frozen(pread: Pread, layout: Layout, slots: list[Slot], previous: Region | None) -> None:
    """Mark slots that were moved while their owners go on writing to the old place (section 7, 1).

    The move is seen, or was at an earlier look, or the old place behind the table still has the pid;
    that is looked at only where NVML's figure has left the slot's behind.
    """
    before = () if previous is None else previous.slots
    left_over: set[int] | None = None
    for place, slot in enumerate(slots):
        if not slot.is_live:
            continue
        if place < len(before) and before[place].pid == slot.pid:
            is_frozen = Quality.SLOT_FROZEN in before[place].quality
        else:
            is_frozen = any(then.pid == slot.pid and then.is_live for then in before[place + 1 :])
        behind_bytes = sum(use.monitorused_bytes - use.total_bytes for use in slot.devices)
        if not is_frozen and behind_bytes > FROZEN_BYTES:
            left_over = _left_over(pread, layout, len(slots)) if left_over is None else left_over
            is_frozen = slot.pid in left_over
        if is_frozen:
            slots[place] = structs.replace(slot, quality=slot.quality | {Quality.SLOT_FROZEN})


def _left_over(pread: Pread, layout: Layout, process_count: int) -> set[int]:
    """Pids in the first slots behind the table."""
    stride = layout.slot_stride
    count = min(LEFT_OVERS, SLOTS - process_count)
    look = pread(count * stride, layout.slot_offset(process_count))
    return {int.from_bytes(look[at : at + 4], "little") for at in range(0, len(look), stride)}


def _unidentified(name: str, head: bytes) -> NotReady:
    """What it is, if no region of a layout of its size; raises unless it is just not ready yet."""
    magic, major, minor = PREFIX.unpack_from(head)
    if magic == 0:
        return NotReady("no_magic", f"{printable(name)}: not initialised yet (magic 0), look again")
    if magic != MAGIC:
        why = f"int32 at 0 is {magic}, a region has {MAGIC}; not HAMi-core's file"
        raise _refused(name, "foreign_magic", why)
    why = f"version words {major}.{minor} at 4 do not fit its size; {_LENGTHENED}"
    raise _refused(name, "header_mismatch", why)


def _refuse_misfit(
    pread: Pread,
    layout: Layout,
    head: bytes,
    tail: tuple[int, ...],
    name: str,
    *,
    previous: Region | None,
) -> None:
    """Refuse another layout's file that was lengthened or shortened to the size of this one.

    A newer library lengthens an older file without converting it: its magic is already right. A file that
    had this layout has it still, since whoever lengthens it changes its size.
    """
    if previous is not None and previous.layout == layout.name:
        return
    found = None
    for spare in layout.sem_spares:
        if not head.startswith(_SEM_SPARE, spare):
            found = spare
    if layout.lengthened_tails:
        for offset, slot in layout.lengthened_tails:
            if tail[0] <= slot and any(pread(16, offset)):
                found = offset
    if layout.version is None and not any(tail):
        # No region begins with a tail of zeros, and a slot that a process left keeps its status.
        first = pread(layout.slot_stride, layout.procs)
        if any(first[:4]) and not any(first[layout.status : layout.status + 4]):
            found = layout.tail
    if layout is V1_1_2008952 and head.startswith(_FOREIGN_SEM, layout.uuids):
        found = layout.uuids
    if found is not None:
        why = f"bytes at {found} are not those of {layout.name}; {_LENGTHENED}"
        raise _refused(name, "header_mismatch", why)


def _refused(name: str, reason: str, why: str) -> CacheContentError:
    return CacheContentError(reason, f"{printable(name)}: {why}")


class _Settling:
    """Looks at doubtful slots of one region until they hold still, with one patience for all."""

    __slots__ = ("layout", "name", "next_pause_s", "pause", "pauses_left", "pread", "previous")

    def __init__(
        self, pread: Pread, layout: Layout, name: str, pause: Pause, previous: Region | None
    ) -> None:
        self.pread = pread
        self.layout = layout
        self.name = name
        self.pause = pause
        self.previous = previous
        self.pauses_left = PAUSES
        self.next_pause_s = FIRST_PAUSE_S

    def settled(self, earlier: bytes, head: bytes, slot: int) -> Slot:
        """Slot `slot` of two looks at the whole table, looked at until it holds still or patience ends."""
        layout, stride = self.layout, self.layout.slot_stride
        offset = layout.procs + slot * stride
        found = decode_slot(layout, head, offset, slot, same_memory(layout, earlier, offset, head, offset))
        looks, last, base = 0, head, offset
        while not self._is_settled(found, looks) and self._waited():
            look = self.pread(stride, offset)
            if len(look) != stride:
                raise _refused(self.name, "truncated", f"shortened while slot {slot} was read")
            found = decode_slot(layout, look, 0, slot, same_memory(layout, last, base, look, 0))
            looks, last, base = looks + 1, look, 0
        return found

    def _is_settled(self, found: Slot, looks: int) -> bool:
        """Whether no further look is due. Parts that go on differing are taken as they are."""
        if found.consistent and (self.layout.has_seqlock or found.seqlock):
            return True
        if not found.is_live or self._stood_before(found):
            return True
        return found.consistent and (
            looks >= PART_LOOKS or not any(use.parts_differ for use in found.devices)
        )

    def _stood_before(self, found: Slot) -> bool:
        """Whether the slot was left unfinished already at the last reading: nobody is writing it."""
        if self.previous is None or found.slot >= len(self.previous.slots):
            return False
        then = self.previous.slots[found.slot]
        if then.pid != found.pid or then.seqlock != found.seqlock:
            return False
        if found.seqlock and found.seqlock % 2:
            return True
        return found.consistent and then.devices == found.devices

    def _waited(self) -> bool:
        """Wait a little longer than the last time; False when the patience is used up."""
        if self.pauses_left == 0:
            return False
        self.pauses_left -= 1
        self.pause(self.next_pause_s)
        self.next_pause_s = min(self.next_pause_s * 2, LONGEST_PAUSE_S)
        return True
