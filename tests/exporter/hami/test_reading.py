"""Reading while HAMi-core writes: bounded, never torn, never beyond the arrays."""

from __future__ import annotations

import gzip
import pathlib
import struct
from collections.abc import Callable

import pytest

from exporter.hami.errors import CacheContentError
from exporter.hami.layouts import LAYOUTS, V0_1197896, V1_1_2008952, V1_1_2008984, V1_2_2008952, Layout
from exporter.hami.reading import RegionMemory, read_region
from exporter.hami.region import NotReady, Quality, Region

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "hami-core"
TOTAL, DATA = 32, 16

EACH_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)


class Memory:
    """A region in memory, whose writer acts at chosen reads or pauses."""

    def __init__(self, layout: Layout, case: str) -> None:
        packed = FIXTURES / layout.name / f"{case}.cache.gz"
        self.data = bytearray(gzip.decompress(packed.read_bytes()))
        self.layout = layout
        self.reads = 0
        self.pauses: list[float] = []
        self.on_read: Callable[[int], None] = lambda _count: None
        self.on_pause: Callable[[int], None] = lambda _count: None

    def pread(self, length: int, offset: int) -> bytes:
        self.reads += 1
        self.on_read(self.reads)
        return bytes(self.data[offset : offset + length])

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause(len(self.pauses))

    def put(self, form: str, offset: int, value: int) -> None:
        struct.pack_into(form, self.data, offset, value)

    def put_slot(self, slot: int, form: str, field: int, value: int) -> None:
        self.put(form, self.layout.slot_offset(slot) + field, value)

    def look(self, previous: Region | None = None) -> Region | NotReady:
        return read_region(self.pread, len(self.data), "a.cache", pause=self.pause, previous=previous)

    def region(self, previous: Region | None = None) -> Region:
        found = self.look(previous)
        assert isinstance(found, Region)
        return found


def memory(layout: Layout) -> Memory:
    """One process that uses device 0: 754,978,816 bytes in the layouts of this century's GPUs."""
    folder = FIXTURES / layout.name
    plain = folder / "one_process.cache.gz"
    path = plain if plain.exists() else min(folder.glob("one_process-*.cache.gz"))
    return Memory(layout, path.name.removesuffix(".cache.gz"))


def sound_v12() -> Memory:
    return memory(V1_2_2008952)


@EACH_LAYOUT
def test_a_region_whose_bytes_did_not_change_is_the_same_and_costs_one_look(layout: Layout) -> None:
    written, remembered = memory(layout), RegionMemory()

    def look() -> Region | NotReady:
        previous = remembered.region
        return read_region(
            written.pread,
            len(written.data),
            "a.cache",
            pause=written.pause,
            previous=previous,
            memory=remembered,
        )

    first = look()
    reads = written.reads
    assert look() is first
    assert written.reads == reads + 2  # header with slots, tail
    written.put_slot(0, "<i", layout.status, 2)
    changed = look()
    assert isinstance(changed, Region)
    assert changed.slots[0].status == 2
    written.put("<i", layout.tail + 12, 7)
    changed = look()
    assert isinstance(changed, Region)
    assert changed.priority == 7


@pytest.mark.parametrize("layout", [V1_2_2008952, V1_1_2008984], ids=lambda layout: layout.name)
def test_utilisation_alone_is_no_change_of_a_remembered_region_but_is_noticed(layout: Layout) -> None:
    written, remembered = Memory(layout, "two_processes"), RegionMemory()

    def look() -> Region:
        found = read_region(
            written.pread,
            len(written.data),
            "a.cache",
            pause=written.pause,
            previous=remembered.region,
            memory=remembered,
        )
        assert isinstance(found, Region)
        return found

    first, changes = look(), remembered.changes
    assert layout.util is not None
    for slot in (0, 1):
        written.put_slot(slot, "<Q", layout.util + 16, 77)
    assert look() is first
    assert remembered.changes == changes + 1
    # The last kernel's time is of the tail: it is taken over without decoding slots again.
    written.put("<Q", layout.tail + 16, 1_800_000_000)
    later = look()
    assert (later.last_kernel_time_s, later.slots is first.slots) == (1_800_000_000, True)
    # Memory is never an old one.
    written.put_slot(1, "<Q", layout.used + TOTAL, 5)
    written.put_slot(1, "<Q", layout.monitorused, 6)
    (use,) = look().slots[1].devices
    assert (use.total_bytes, use.monitorused_bytes) == (5, 6)


def test_an_unfinished_write_is_looked_at_again_although_its_bytes_did_not_change() -> None:
    written, remembered = sound_v12(), RegionMemory()
    written.put_slot(0, "<Q", V1_2_2008952.seqlock or 0, 13)
    size = len(written.data)
    read_region(written.pread, size, "a.cache", pause=written.pause, memory=remembered)
    assert remembered.region is None


def test_a_slot_that_was_moved_is_frozen_from_then_on() -> None:
    written = Memory(V1_2_2008952, "two_processes")
    first = written.region()
    one, two = (V1_2_2008952.slot_offset(slot) for slot in (0, 1))
    stride = V1_2_2008952.slot_stride
    # Another process clears the first slot away and moves the last into its place; nothing is left behind.
    written.data[one : one + stride] = written.data[two : two + stride]
    written.data[two : two + stride] = bytes(stride)
    written.put("<i", V1_2_2008952.tail, 1)
    second = written.region(first)
    assert second.slots[0].pid == first.slots[1].pid
    assert second.slots[0].quality == {Quality.SLOT_FROZEN}
    assert written.region(second).slots[0].quality == {Quality.SLOT_FROZEN}
    # Somebody who did not see it move cannot tell.
    assert written.region().slots[0].quality == frozenset()


@EACH_LAYOUT
def test_a_quiet_region_needs_no_pause(layout: Layout) -> None:
    written = memory(layout)
    assert len(written.region().live_slots) == 1
    assert written.pauses == []


@pytest.mark.parametrize("layout", [V1_2_2008952, V1_1_2008984], ids=lambda layout: layout.name)
def test_a_write_in_progress_is_waited_for(layout: Layout) -> None:
    written = memory(layout)
    assert layout.seqlock is not None
    record = layout.used
    sound_total = 754_978_816
    written.put_slot(0, "<Q", layout.seqlock, 13)
    written.put_slot(0, "<Q", record + TOTAL, sound_total + 1000)

    def finish(count: int) -> None:
        if count == 3:
            written.put_slot(0, "<Q", record + DATA, 644_878_336 + 1000)
            written.put_slot(0, "<Q", layout.seqlock or 0, 14)

    written.on_pause = finish
    (slot,) = written.region().live_slots
    assert slot.consistent
    assert [(use.data_bytes, use.total_bytes) for use in slot.devices] == [(644_879_336, 754_979_816)]
    # After the end of the write two looks have to agree.
    assert len(written.pauses) == 4


@pytest.mark.parametrize("layout", [V1_2_2008952, V1_1_2008984], ids=lambda layout: layout.name)
def test_a_counter_left_odd_costs_bounded_effort_and_one_flag(layout: Layout) -> None:
    written = memory(layout)
    assert layout.seqlock is not None
    written.put_slot(0, "<Q", layout.seqlock, 13)
    region = written.region()
    (slot,) = region.live_slots
    assert not slot.consistent
    assert slot.quality == {Quality.SLOT_INCONSISTENT}
    assert region.quality == {Quality.SLOT_INCONSISTENT}
    assert [use.total_bytes for use in slot.devices] == [754_978_816]
    assert len(written.pauses) == 20
    assert sum(written.pauses) <= 0.020


def test_a_counter_that_stood_odd_already_is_not_waited_for_again() -> None:
    written = sound_v12()
    written.put_slot(0, "<Q", V1_2_2008952.seqlock or 0, 13)
    first = written.region()
    written.pauses.clear()
    assert not written.region(previous=first).live_slots[0].consistent
    assert written.pauses == []


def test_many_slots_left_odd_share_one_patience() -> None:
    written = Memory(V1_2_2008952, "many_processes")
    for slot in range(24):
        written.put_slot(slot, "<Q", V1_2_2008952.seqlock or 0, 13)
    assert len(written.region().live_slots) == 24
    assert len(written.pauses) == 20


def test_a_dead_slot_is_not_waited_for() -> None:
    written = sound_v12()
    written.put_slot(0, "<Q", V1_2_2008952.seqlock or 0, 13)
    written.put_slot(0, "<i", V1_2_2008952.status, 0)
    assert written.region().live_slots == ()
    assert written.pauses == []


def test_a_process_of_a_newer_library_in_an_old_file_is_read_by_its_counter() -> None:
    written = memory(V1_1_2008952)
    written.put_slot(0, "<Q", V1_1_2008952.seqlock or 0, 13)
    region = written.region()
    assert region.layout == "v1.1-2008952"
    assert not region.live_slots[0].consistent


def test_every_byte_of_a_slot_may_change_between_two_looks() -> None:
    """The counter is even in both looks, so only their difference tells of the write between them."""
    written = sound_v12()

    def write(count: int) -> None:
        if count == 3:  # the table, proc_num, then this second look at the table
            written.put_slot(0, "<Q", V1_2_2008952.seqlock or 0, 14)
            written.put_slot(0, "<Q", V1_2_2008952.used + TOTAL, 110_100_480)
            written.put_slot(0, "<Q", V1_2_2008952.used + DATA, 0)

    written.on_read = write
    (slot,) = written.region().live_slots
    assert slot.consistent
    assert [(use.data_bytes, use.total_bytes) for use in slot.devices] == [(0, 110_100_480)]
    assert len(written.pauses) == 1


@pytest.mark.parametrize("layout", [V0_1197896, V1_1_2008952], ids=lambda layout: layout.name)
def test_a_torn_look_without_seqlock_is_taken_again(layout: Layout) -> None:
    """Total is written first; its part follows within the pause."""
    written = memory(layout)
    written.put_slot(0, "<Q", layout.used + TOTAL, 754_978_816 + 4096)
    written.on_pause = lambda _count: written.put_slot(0, "<Q", layout.used + DATA, 644_878_336 + 4096)
    (slot,) = written.region().live_slots
    assert slot.consistent
    assert not slot.quality
    assert [(use.data_bytes, use.total_bytes) for use in slot.devices] == [(644_882_432, 754_982_912)]


def test_parts_that_go_on_differing_are_flagged_and_total_is_shown() -> None:
    written = memory(V0_1197896)
    written.put_slot(0, "<Q", V0_1197896.used + TOTAL, 754_978_816 + 4096)
    region = written.region()
    assert region.quality == {Quality.PARTS_DIFFER}
    assert [use.total_bytes for use in region.usage()] == [754_982_912]
    assert len(written.pauses) == 3
    written.pauses.clear()
    written.region(previous=region)
    assert written.pauses == []


def test_a_process_that_attaches_meanwhile_is_seen_whole_or_not_at_all() -> None:
    """proc_num goes up last, so a slot below it is complete."""
    for at_read, pids in ((2, [39, 41]), (3, [39])):
        written = Memory(V1_2_2008952, "two_processes")
        attached = bytes(written.data[V1_2_2008952.slot_offset(1) : V1_2_2008952.slot_offset(2)])
        written.data[V1_2_2008952.slot_offset(1) : V1_2_2008952.slot_offset(2)] = bytes(1960)
        written.put("<i", V1_2_2008952.tail, 1)

        def attach(
            count: int, at_read: int = at_read, attached: bytes = attached, to: Memory = written
        ) -> None:
            if count == at_read:  # 1 = a look at the table, 2 = proc_num, 3 = the table again
                to.data[V1_2_2008952.slot_offset(1) : V1_2_2008952.slot_offset(2)] = attached
                to.put("<i", V1_2_2008952.tail, 2)

        written.on_read = attach
        region = written.region()
        assert [slot.pid for slot in region.live_slots] == pids
        assert not region.quality


def test_more_processes_than_expected_are_read_in_whole() -> None:
    written = Memory(V1_2_2008952, "many_processes")
    region = written.region()
    assert len(region.live_slots) == 24
    assert not region.quality
    assert written.reads == 6
    # What the last reading found is what the next one expects.
    written.reads = 0
    written.region(previous=region)
    assert written.reads == 3


def test_a_table_that_never_stands_still_is_bounded() -> None:
    written = Memory(V1_2_2008952, "many_processes")
    written.on_read = lambda count: written.put("<i", V1_2_2008952.tail, 6 + count)
    region = written.region()
    assert region.proc_num <= 24
    assert len(region.live_slots) == region.proc_num
    assert written.reads < 100


def test_a_process_seen_twice_counts_once_with_the_later_look() -> None:
    """Compaction copies the last slot over a dead one before the count goes down."""
    written = Memory(V1_2_2008952, "two_processes")
    written.put_slot(0, "<i", 0, 41)
    region = written.region()
    assert [(slot.slot, slot.pid) for slot in region.live_slots] == [(1, 41)]
    assert [use.total_bytes for use in region.usage()] == [445_644_800]
    assert region.quality == {Quality.DUPLICATE_PID}
    assert len(region.slots) == 2


@EACH_LAYOUT
@pytest.mark.parametrize(("stored", "read"), [(-1, 0), (-(2**31), 0), (1025, 1024), (2**31 - 1, 1024)])
def test_process_count_is_clamped(layout: Layout, stored: int, read: int) -> None:
    written = memory(layout)
    written.put("<i", layout.tail, stored)
    region = written.region()
    assert region.proc_num == read
    assert Quality.PROCESS_COUNT_CLAMPED in region.quality
    # All slots but the first are empty.
    assert len(region.live_slots) == min(read, 1)


@EACH_LAYOUT
@pytest.mark.parametrize("stored", [17, 2**32, 2**63, 2**64 - 1])
def test_device_count_is_clamped(layout: Layout, stored: int) -> None:
    written = memory(layout)
    written.put("<Q", layout.device_num, stored)
    region = written.region()
    assert region.device_num == len(region.devices) == 16
    assert region.devices[1].uuid is None
    assert Quality.DEVICE_COUNT_CLAMPED in region.quality


@EACH_LAYOUT
@pytest.mark.parametrize(("field", "value"), [("status", 0), ("pid", 0)])
def test_a_slot_with_status_0_or_pid_0_adds_nothing(layout: Layout, field: str, value: int) -> None:
    written = memory(layout)
    written.put_slot(0, "<i", layout.status if field == "status" else 0, value)
    region = written.region()
    assert len(region.slots) == 1
    assert region.live_slots == ()
    assert region.usage() == ()


@EACH_LAYOUT
def test_slots_beyond_the_process_count_add_nothing(layout: Layout) -> None:
    written = memory(layout)
    written.put("<i", layout.tail, 0)
    assert written.region().slots == ()


@EACH_LAYOUT
def test_an_unknown_status_counts_and_is_flagged(layout: Layout) -> None:
    written = memory(layout)
    written.put_slot(0, "<i", layout.status, 7)
    region = written.region()
    assert len(region.live_slots) == 1
    assert region.quality == {Quality.STATUS_UNKNOWN}


@EACH_LAYOUT
def test_a_counter_below_zero_is_negative_and_flagged(layout: Layout) -> None:
    written = memory(layout)
    total = layout.used + (0 if layout.kinds == 1 else TOTAL)
    written.put_slot(0, "<q", total, -4096)
    region = written.region()
    assert [use.total_bytes for use in region.usage()] == [-4096]
    assert Quality.COUNTER_BELOW_ZERO in region.quality


def test_memory_beyond_the_device_count_is_kept() -> None:
    written = sound_v12()
    written.put("<Q", V1_2_2008952.device_num, 0)
    written.put_slot(0, "<Q", V1_2_2008952.used + 15 * 64 + TOTAL, 4096)
    written.put_slot(0, "<Q", V1_2_2008952.used + 15 * 64 + DATA, 4096)
    region = written.region()
    assert region.devices == ()
    assert [(use.index, use.total_bytes) for use in region.usage()] == [(0, 754_978_816), (15, 4096)]


@EACH_LAYOUT
@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (b"", None),
        (b"GPU-1\0rest", "GPU-1"),
        (b"x" * 96, "x" * 96),
        (
            b"MIG-GPU-2b9f4c1e-7d35-4e08-9c61-0f3a5be7d842/11/0",
            "MIG-GPU-2b9f4c1e-7d35-4e08-9c61-0f3a5be7d842/11/0",
        ),
        (b"GPU-\xc3\xa9", None),
        (b"GPU-\x1b[2J", None),
        (b"GPU-1\nforged_metric 1", None),
    ],
)
def test_a_device_name_ends_at_its_first_nul_and_is_printable_ascii(
    layout: Layout, stored: bytes, shown: str | None
) -> None:
    written = memory(layout)
    written.put("<Q", layout.device_num, 1)
    written.data[layout.uuids : layout.uuids + 96] = stored.ljust(96, b"\0")
    region = written.region()
    assert [device.uuid for device in region.devices] == [shown]
    assert (Quality.UUID_INVALID in region.quality) == (shown is None and stored != b"")


def test_a_limit_of_0_is_no_limit() -> None:
    written = sound_v12()
    written.put("<Q", V1_2_2008952.limit, 0)
    assert written.region().devices[0].memory_limit_bytes is None


def test_the_region_lock_shows_without_being_taken() -> None:
    region = Memory(V1_2_2008952, "lock_held").region()
    assert (region.owner_pid, region.sem_held) == (39, True)
    assert (sound_v12().region().owner_pid, sound_v12().region().sem_held) == (0, False)


@pytest.mark.parametrize("size", range(12))
def test_a_file_shorter_than_magic_and_version_is_not_ready(size: int) -> None:
    found = read_region(lambda _length, _offset: b"\xff" * size, size, "a.cache", pause=lambda _seconds: None)
    assert isinstance(found, NotReady)
    assert found.reason == "too_short"


@EACH_LAYOUT
def test_magic_0_is_not_ready_and_another_magic_is_foreign(layout: Layout) -> None:
    written = memory(layout)
    written.put("<i", 0, 0)
    found = written.look()
    assert isinstance(found, NotReady)
    assert found.reason == "no_magic"
    written.put("<i", 0, 19920719)
    with pytest.raises(CacheContentError) as caught:
        written.look()
    assert caught.value.reason == "foreign_magic"


@pytest.mark.parametrize("words", [(0, 0), (1, 0), (1, 3), (2, 1), (2**32 - 1, 2)])
def test_version_words_that_do_not_fit_the_size_are_refused(words: tuple[int, int]) -> None:
    written = sound_v12()
    written.put("<I", 4, words[0])
    written.put("<I", 8, words[1])
    with pytest.raises(CacheContentError) as caught:
        written.look()
    assert caught.value.reason == "header_mismatch"
    assert f"{words[0]}.{words[1]}" in caught.value.detail


def test_version_12_does_not_fit_the_size_of_v281() -> None:
    written = memory(V1_1_2008984)
    written.put("<I", 8, 2)
    with pytest.raises(CacheContentError) as caught:
        written.look()
    assert caught.value.reason == "header_mismatch"


def test_the_flag_in_the_place_of_the_version_words_does_not_mislead() -> None:
    """sm_init_flag is 1 after a scaling; in the unversioned layouts it lies where the version would."""
    written = memory(V0_1197896)
    written.put("<i", 4, 1)
    assert written.region().layout == "v0-1197896"


@pytest.mark.parametrize(
    ("made_in", "lengthened_to"),
    [
        ("legacy-280392", 804681),
        ("legacy-280392", 1197897),
        ("v0-804680", 1197897),
        ("legacy-280392", 2008953),
        ("v0-804680", 2008953),
        ("v0-1197896", 2008985),
        ("v1.1-2008952", 2008985),
        ("v1.2-2008952", 2008985),
    ],
)
def test_an_old_file_lengthened_by_a_newer_library_is_refused(made_in: str, lengthened_to: int) -> None:
    written = memory(next(layout for layout in LAYOUTS if layout.name == made_in))
    written.data.extend(bytes(lengthened_to - len(written.data)))
    with pytest.raises(CacheContentError) as caught:
        written.look()
    assert caught.value.reason == "header_mismatch"
    assert "recreate the pod" in caught.value.detail


def test_a_lengthened_file_that_no_process_had_attached_to_is_refused_too() -> None:
    """v1.1 lengthened by v2.8.1, all of its tail zero: the name of a device lies in a semaphore."""
    written = memory(V1_1_2008952)
    written.data[V1_1_2008952.tail : V1_1_2008952.tail + 16] = bytes(16)
    written.data.extend(bytes(32))
    with pytest.raises(CacheContentError) as caught:
        written.look()
    assert caught.value.reason == "header_mismatch"


@pytest.mark.parametrize(
    ("made_in", "shortened_to"),
    [
        ("v0-804680", 280393),
        ("v0-1197896", 280393),
        ("v0-1197896", 804681),
        ("v1.1-2008952", 280393),
        ("v1.1-2008952", 804681),
        ("v1.1-2008984", 1197897),
        ("v1.1-2008984", 2008953),
        ("v1.2-2008952", 280393),
        ("v1.2-2008952", 804681),
        ("v1.2-2008952", 1197897),
    ],
)
def test_a_file_shortened_to_another_layouts_size_is_refused(made_in: str, shortened_to: int) -> None:
    written = memory(next(layout for layout in LAYOUTS if layout.name == made_in))
    del written.data[shortened_to:]
    with pytest.raises(CacheContentError) as caught:
        written.look()
    assert caught.value.reason == "header_mismatch"


@pytest.mark.parametrize("at_read", [1, 2, 3])
def test_a_file_shortened_while_it_is_read_is_refused(at_read: int) -> None:
    written = sound_v12()
    size = len(written.data)

    def shorten(count: int) -> None:
        if count == at_read:
            del written.data[1000:]

    written.on_read = shorten
    with pytest.raises(CacheContentError) as caught:
        read_region(written.pread, size, "a.cache", pause=written.pause)
    assert caught.value.reason == "truncated"


def test_a_file_shortened_while_a_slot_is_waited_for_is_refused() -> None:
    written = sound_v12()
    size = len(written.data)
    written.put_slot(0, "<Q", V1_2_2008952.seqlock or 0, 13)

    def shorten(_count: int) -> None:
        del written.data[:]

    written.on_pause = shorten
    with pytest.raises(CacheContentError) as caught:
        read_region(written.pread, size, "a.cache", pause=written.pause)
    assert caught.value.reason == "truncated"
