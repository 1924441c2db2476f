"""The six layouts of HAMi-core's shared region, one value each, and the choice among them.

Invariant: every offset stands in this table and nowhere else, for readers and for the lab's writer;
tests assert each of them against the fixtures' manifests, which come from a C compiler.
Source: `reference/hami-core-cache-format.md` sections 1 and 2. All integers are little endian. A file
is one byte longer than its structure, because the creator extends it by writing one byte there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

MAGIC: Final = 19920718
"""Stored at offset 0 as the last step of a region's creation."""

DEVICES: Final = 16
SLOTS: Final = 1024
UUID_BYTES: Final = 96
SEM_SPARE: Final = 16
"""Where the 16 bytes of glibc's `sem_t` begin that it never writes."""

PREFIX: Final = Struct("<iII")
"""Magic and, in the versioned layouts, major and minor version: the least bytes that identify a region."""

SEQLOCK: Final = Struct("<Q")


def _with_gaps(fields: Iterable[tuple[int, str, int]]) -> Struct:
    """A `Struct` of (offset, format, size in bytes) fields, padded where fields leave gaps."""
    parts, at = ["<"], 0
    for offset, form, size in fields:
        parts.append(f"{offset - at}x{form}")
        at = offset + size
    return Struct("".join(parts))


def _strided(count: int, form: str, size: int, stride: int) -> str:
    return f"{form}{stride - size}x" * count


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything lies in one layout; offsets in bytes from the region's or the slot's start.

    Attributes:
        version: What the two version words must hold, or None where the layout has none.
        tail: Offset of proc_num, followed by utilization_switch, recent_kernel and priority.
        record_stride: Distance of two device records in `used`; 8 = one total a device, no breakdown.
        util: Offset of `device_util` in a slot, None where utilisation is not kept.
        seqlock: Offset of a slot's counter. v1.1-2008952 has reserved zeros there, but processes of a
            newer library that attach to such a file use it, so the parity check applies to both.
        has_seqlock: Whether the library of this layout itself guards memory with the counter (and not
            with the region lock).
        kinds: Numbers in a device's memory record: context, module, data, offset, total; or total alone.
        is_full: Whether slots keep both the breakdown of memory and utilisation.
        sem_spares: Bytes in the header that are 0 in every region: the unused half of its semaphores.
        prefix: What a region of this layout begins with: magic and, where there are any, version words.
        slot_structs: Unpack a slot with one or with all 16 devices: pid, hostpid, `kinds` numbers a
            device, monitorused a device, dec, enc and sm utilisation a device (if kept), status.
        lengthened_tails: Where the tail of a shorter layout comes to lie when a newer library
            lengthens its file: (offset, slot that covers it). Nothing else tells such a file apart.
    """

    name: str
    struct_size: int
    version: tuple[int, int] | None
    sm_init_flag: int
    owner_pid: int
    sem: int
    device_num: int
    uuids: int
    limit: int
    sm_limit: int
    procs: int
    slot_stride: int
    tail: int
    used: int
    record_stride: int
    monitorused: int
    util: int | None
    util_stride: int
    status: int
    seqlock: int | None = None
    has_seqlock: bool = False
    last_kernel_time: int | None = None
    sem_postinit: int | None = None
    lengthened_tails: tuple[tuple[int, int], ...] = ()
    kinds: int = field(init=False, repr=False, compare=False)
    is_full: bool = field(init=False, repr=False, compare=False)
    sem_spares: tuple[int, ...] = field(init=False, repr=False, compare=False)
    prefix: bytes = field(init=False, repr=False, compare=False)
    header_struct: Struct = field(init=False, repr=False, compare=False)
    tail_struct: Struct = field(init=False, repr=False, compare=False)
    slot_structs: dict[int, Struct] = field(init=False, repr=False, compare=False)
    rest_is_zero: tuple[tuple[int, bytes], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        derive = object.__setattr__
        derive(self, "kinds", 1 if self.record_stride == 8 else 5)
        derive(self, "is_full", self.kinds == 5 and self.util is not None)
        semaphores = [at for at in (self.sem, self.sem_postinit) if at is not None and at < self.procs]
        derive(self, "sem_spares", tuple(at + SEM_SPARE for at in semaphores))
        # Unversioned layouts keep other fields in the place of the version words.
        versioned = PREFIX.pack(MAGIC, *(self.version or (0, 0)))
        derive(self, "prefix", versioned if self.version else versioned[:4])
        header = [
            (self.sm_init_flag, "i", 4),
            (self.owner_pid, "Q", 8),
            (self.sem, "I", 4),
            (self.device_num, "Q", 8),
            (self.limit, f"{DEVICES}Q", DEVICES * 8),
            (self.sm_limit, f"{DEVICES}Q", DEVICES * 8),
        ]
        derive(self, "header_struct", _with_gaps(header))
        derive(self, "tail_struct", Struct("<4i" if self.last_kernel_time is None else "<4iQ"))
        derive(self, "slot_structs", {count: self._slot_struct(count) for count in (1, DEVICES)})
        derive(self, "rest_is_zero", self._rest_is_zero())

    @property
    def file_size(self) -> int:
        """Size of the file in bytes."""
        return self.struct_size + 1

    @property
    def rest_bytes(self) -> int:
        """Bytes from the tail to the end of the file."""
        return self.file_size - self.tail

    @property
    def memory_end(self) -> int:
        """Where a slot's `used` array ends: pid, hostpid and memory lie before it in every layout."""
        return self.used + DEVICES * self.record_stride

    def slot_offset(self, slot: int) -> int:
        """Offset of a process slot from the region's start."""
        return self.procs + slot * self.slot_stride

    def _slot_struct(self, count: int) -> Struct:
        """A slot's pid, hostpid and its first `count` devices (memory, monitorused, util), then status.

        Counters are read as signed, so that one which wrapped below zero comes out negative.
        """
        used = _strided(count, f"{self.kinds}q", self.kinds * 8, self.record_stride)
        fields = [
            (0, "ii", 8),
            (self.used, used, count * self.record_stride),
            (self.monitorused, f"{count}q", count * 8),
        ]
        if self.util is not None:
            util = _strided(count, "3q", 24, self.util_stride)
            fields.append((self.util, util, count * self.util_stride))
        return _with_gaps([*fields, (self.status, "i", 4)])

    def _rest_is_zero(self) -> tuple[tuple[int, bytes], ...]:
        """(offset, zeros): what a slot holds when the process uses device 0 alone, as nearly all do."""
        rest = DEVICES - 1
        places = [(self.used, self.record_stride), (self.monitorused, 8), (self.util or 0, self.util_stride)]
        return tuple((start + stride, bytes(rest * stride)) for start, stride in places)


LEGACY_280392: Final = Layout(
    name="legacy-280392",
    struct_size=280392,
    version=None,
    sm_init_flag=4,
    owner_pid=8,
    sem=16,
    device_num=48,
    uuids=56,
    limit=1592,
    sm_limit=1720,
    procs=1848,
    slot_stride=272,
    tail=280376,
    used=8,
    record_stride=8,
    monitorused=136,
    util=None,
    util_stride=0,
    status=264,
)

V0_804680: Final = Layout(
    name="v0-804680",
    struct_size=804680,
    version=None,
    sm_init_flag=4,
    owner_pid=8,
    sem=16,
    device_num=48,
    uuids=56,
    limit=1592,
    sm_limit=1720,
    procs=1848,
    slot_stride=784,
    tail=804664,
    used=8,
    record_stride=40,
    monitorused=648,
    util=None,
    util_stride=0,
    status=776,
    lengthened_tails=((280376, 355),),
)

V0_1197896: Final = Layout(
    name="v0-1197896",
    struct_size=1197896,
    version=None,
    sm_init_flag=4,
    owner_pid=8,
    sem=16,
    device_num=48,
    uuids=56,
    limit=1592,
    sm_limit=1720,
    procs=1848,
    slot_stride=1168,
    tail=1197880,
    used=8,
    record_stride=40,
    monitorused=648,
    util=776,
    util_stride=24,
    status=1160,
    lengthened_tails=((280376, 238), (804664, 687)),
)

V1_1_2008952: Final = Layout(
    name="v1.1-2008952",
    struct_size=2008952,
    version=(1, 1),
    sm_init_flag=12,
    owner_pid=16,
    sem=24,
    device_num=56,
    uuids=64,
    limit=1600,
    sm_limit=1728,
    procs=1856,
    slot_stride=1960,
    tail=2008896,
    used=8,
    record_stride=64,
    monitorused=1032,
    util=1160,
    util_stride=48,
    status=1928,
    seqlock=1936,
    last_kernel_time=2008912,
)

V1_1_2008984: Final = Layout(
    name="v1.1-2008984",
    struct_size=2008984,
    version=(1, 1),
    sm_init_flag=12,
    owner_pid=16,
    sem=24,
    sem_postinit=56,
    device_num=88,
    uuids=96,
    limit=1632,
    sm_limit=1760,
    procs=1888,
    slot_stride=1960,
    tail=2008928,
    used=16,
    record_stride=64,
    monitorused=1040,
    util=1168,
    util_stride=48,
    status=1936,
    seqlock=8,
    has_seqlock=True,
    last_kernel_time=2008944,
    lengthened_tails=((2008896, 1023),),
)

V1_2_2008952: Final = Layout(
    name="v1.2-2008952",
    struct_size=2008952,
    version=(1, 2),
    sm_init_flag=12,
    owner_pid=16,
    sem=24,
    device_num=56,
    uuids=64,
    limit=1600,
    sm_limit=1728,
    procs=1856,
    slot_stride=1960,
    tail=2008896,
    used=8,
    record_stride=64,
    monitorused=1032,
    util=1160,
    util_stride=48,
    status=1928,
    seqlock=1936,
    has_seqlock=True,
    last_kernel_time=2008912,
    sem_postinit=2008920,
)

LAYOUTS: Final = (LEGACY_280392, V0_804680, V0_1197896, V1_1_2008952, V1_1_2008984, V1_2_2008952)


def _by_file_size() -> dict[int, tuple[Layout, ...]]:
    sizes: dict[int, tuple[Layout, ...]] = {}
    for layout in LAYOUTS:
        sizes[layout.file_size] = (*sizes.get(layout.file_size, ()), layout)
    return sizes


BY_FILE_SIZE: Final = _by_file_size()
"""Candidates by exact file size; those of one size differ in version and seqlock only, not in offsets."""
