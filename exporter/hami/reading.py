"""Turns a region's bytes into a `Region`, also while HAMi-core writes them.

Invariants: every byte is read before it is decoded and within bounds; the effort for one region is
bounded (20 pauses, some 17 ms), whatever a tenant writes into it; memory of a slot counts as consistent
only after two looks in a row agreed on pid, counter and memory with the counter even. That is the
seqlock protocol of `reference/hami-core-cache-format.md` section 3 (no complete write fits between two
equal counters), and it serves the layouts without a counter as well.

Live files and unpacked fixtures share this module: both are a `Pread`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from exporter.hami.decoding import decode_region, decode_slot, same_memory
from exporter.hami.errors import CacheContentError
from exporter.hami.layouts import (
    BY_FILE_SIZE,
    MAGIC,
    PREFIX,
    SEM_BYTES,
    SEM_SPARE_BYTES,
    SLOTS,
    Layout,
    choose,
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
PART_LOOKS: Final = 3

_LENGTHENED: Final = "an older file that a newer library lengthened: recreate the pod"


def read_region(
    pread: Pread, size: int, name: str, *, pause: Pause, previous: Region | None = None
) -> Region | NotReady:
    """Decode the region behind `pread`.

    Args:
        pread: Reads from the file.
        size: Size of the file in bytes.
        name: The file's name for messages.
        pause: Waits between looks at a slot that is being written.
        previous: The last reading of the same file. A counter that stood odd at the same value then
            was left by a killed process; it is not waited for again.

    Raises:
        CacheContentError: The bytes are no region of a known layout.
    """
    if size < PREFIX.size:
        return NotReady("too_short", f"{name}: {size} bytes; its creator has not extended it yet, look again")
    candidates = BY_FILE_SIZE.get(size)
    if candidates is None:
        known = ", ".join(str(each) for each in sorted(BY_FILE_SIZE))
        raise CacheContentError("unknown_size", f"{name}: {size} bytes is no known size (known: {known})")
    return _Reader(pread, candidates[0], name, pause, previous).read(candidates)


class _Reader:
    """One reading of one region: the looks, and the patience that they share."""

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

    def read(self, candidates: tuple[Layout, ...]) -> Region | NotReady:
        quality: set[Quality] = set()
        layout = self.layout
        tail_bytes = layout.tail_struct.size
        tail = layout.tail_struct.unpack(self._exact(tail_bytes, layout.tail, "proc_num"))
        for _ in range(TABLE_LOOKS):
            process_count = min(max(tail[0], 0), SLOTS)
            head_bytes = layout.procs + process_count * layout.slot_stride
            earlier = self._exact(head_bytes, 0, "header and slots")
            if (unready := self._identify(earlier, candidates)) is not None:
                return unready
            head = self._exact(head_bytes, 0, "header and slots") if process_count else earlier
            before = tail[0]
            tail = layout.tail_struct.unpack(self._exact(tail_bytes, layout.tail, "proc_num"))
            if tail[0] == before or not self._waited():
                break
        if before != process_count:
            quality.add(Quality.PROCESS_COUNT_CLAMPED)
        if tail[0] != before:
            quality.add(Quality.TABLE_MOVING)
            process_count = min(process_count, max(tail[0], 0))
        self._refuse_lengthened(head, process_count)
        slots = [self._settled(earlier, head, slot) for slot in range(process_count)]
        return decode_region(self.layout, head, (process_count, *tail[1:]), slots, quality)

    def _identify(self, head: bytes, candidates: tuple[Layout, ...]) -> NotReady | None:
        """Settle on a layout by magic and version words; the file's size chose the candidates."""
        magic, major, minor = PREFIX.unpack_from(head)
        if magic == 0:
            return NotReady("no_magic", f"{self.name}: not initialised yet (magic 0), look again")
        if magic != MAGIC:
            raise CacheContentError(
                "foreign_magic",
                f"{self.name}: int32 at 0 is {magic}, a region has {MAGIC}; not HAMi-core's file",
            )
        layout = choose(candidates, (major, minor))
        if layout is None:
            raise CacheContentError(
                "header_mismatch",
                f"{self.name}: version words {major}.{minor} at 4 do not fit its size; {_LENGTHENED}",
            )
        self.layout = layout
        return None

    def _refuse_lengthened(self, head: bytes, process_count: int) -> None:
        """Refuse a shorter layout's file that a newer library lengthened without converting it."""
        layout = self.layout
        if not layout.lengthened_tails:
            return
        found = None
        if layout.sem_postinit is not None:
            spare = layout.sem_postinit + SEM_BYTES - SEM_SPARE_BYTES
            if head[spare : spare + SEM_SPARE_BYTES].strip(b"\0"):
                found = spare
        for offset, slot in layout.lengthened_tails:
            if process_count <= slot and self._exact(16, offset, "unused slot").strip(b"\0"):
                found = offset
        if found is not None:
            raise CacheContentError(
                "header_mismatch",
                f"{self.name}: bytes at {found} belong to a layout shorter than {layout.name}; {_LENGTHENED}",
            )

    def _settled(self, earlier: bytes, head: bytes, slot: int) -> Slot:
        """Slot `slot` of the two looks at the whole table, looked at on until it holds still."""
        layout = self.layout
        offset = layout.slot_offset(slot)
        held_still = same_memory(layout, earlier, offset, head, offset)
        found = decode_slot(layout, head, offset, slot, held_still=held_still)
        looks, last, base = 0, head, offset
        while not self._is_settled(found, looks) and self._waited():
            look = self._exact(layout.slot_stride, offset, f"slot {slot}")
            held_still = same_memory(layout, last, base, look, 0)
            found = decode_slot(layout, look, 0, slot, held_still=held_still)
            looks, last, base = looks + 1, look, 0
        return found

    def _is_settled(self, found: Slot, looks: int) -> bool:
        """Whether no further look is due. Parts that go on differing are taken as they are."""
        if not found.is_live or self._stood_before(found):
            return True
        if not found.consistent or self.layout.has_seqlock or found.seqlock:
            return found.consistent
        return looks >= PART_LOOKS or not any(use.parts_differ for use in found.devices)

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

    def _exact(self, length: int, offset: int, what: str) -> bytes:
        data = self.pread(length, offset)
        if len(data) != length:
            raise CacheContentError(
                "truncated",
                f"{self.name}: {what} at {offset} ends after {len(data)} of {length} bytes; "
                "the file was shortened while it was read",
            )
        return data
