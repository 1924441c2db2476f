"""Writes HAMi-core regions of layout v1.2, byte for byte as the library leaves them.

The lab's workloads have no libvgpu.so, so this stands in for it, on the same `Layout` table that the
exporter reads by. Invariant: what it writes equals genuine files (tests rebuild several to the last
byte), and memory changes keep the library's seqlock protocol, so a reader may look at any instant.
Source: `reference/hami-core-cache-format.md` sections 3, 5 and 6.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from exporter.hami.layouts import DEVICES, MAGIC, SLOTS, UUID_BYTES
from exporter.hami.layouts import V1_2_2008952 as LAYOUT

RECENT_KERNEL_AT_START: Final = 2
RUNNING: Final = 1
SUSPENDED: Final = 2
REMOVED_A_PASS: Final = 10
"""Dead slots that one attaching process clears away at most."""

_SHARED_SEM: Final = struct.pack("<QI", 1, 128)
"""glibc's free `sem_t`, shared between processes."""

# Offsets in a device's memory record.
_CONTEXT, _DATA, _TOTAL = 0, 16, 32
_SM_UTIL: Final = 16


class RegionFile:
    """A container's cache file, seen from inside the container; a context manager.

    Numbers are written as single aligned words, as the library's machine code does.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        uuids: Sequence[str],
        limits_bytes: Sequence[int],
        sm_limit_percent: int = 100,
        priority: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the file in the library's order: extend, initialise, magic last.

        Args:
            path: The new file; it must not exist.
            uuids: Names of the container's devices in NVML order, 16 at most.
            limits_bytes: Memory limit of each device, 0 = none.
            sm_limit_percent: Core limit of every device, percent of the whole card.
            priority: 0 is high, 1 low.
            clock: Unix time in seconds.
        """
        if len(uuids) > DEVICES or len(limits_bytes) > DEVICES:
            raise ValueError(f"{os.fspath(path)}: a region holds {DEVICES} devices, {len(uuids)} were given")
        self._clock = clock
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            os.fchmod(descriptor, 0o666)
            os.pwrite(descriptor, b"\0", LAYOUT.struct_size)
            self._map = mmap.mmap(descriptor, LAYOUT.struct_size)
        finally:
            os.close(descriptor)
        self._bytes = memoryview(self._map)
        self._words = self._bytes.cast("Q")
        self._ints = self._bytes.cast("i")
        self._slots: list[ProcessSlot] = []
        self._initialise(uuids, limits_bytes, sm_limit_percent, priority)

    def _initialise(
        self, uuids: Sequence[str], limits_bytes: Sequence[int], sm_limit_percent: int, priority: int
    ) -> None:
        for semaphore in (LAYOUT.sem, LAYOUT.sem_postinit):
            assert semaphore is not None
            self._bytes[semaphore : semaphore + len(_SHARED_SEM)] = _SHARED_SEM
        self._write_word(LAYOUT.device_num, len(uuids))
        for index, uuid in enumerate(uuids):
            start = LAYOUT.uuids + index * UUID_BYTES
            name = uuid.encode("ascii")[: UUID_BYTES - 1]
            self._bytes[start : start + len(name)] = name
        for index, limit in enumerate(limits_bytes):
            self._write_word(LAYOUT.limit + 8 * index, limit)
        for index in range(DEVICES):
            # 0 means unset to the library, which stores 100.
            self._write_word(LAYOUT.sm_limit + 8 * index, sm_limit_percent or 100)
        self._write_int(LAYOUT.tail + 4, 1)
        self._write_int(LAYOUT.tail + 8, RECENT_KERNEL_AT_START)
        self._write_int(LAYOUT.tail + 12, priority)
        major, minor = LAYOUT.version or (0, 0)
        self._write_int(4, major)
        self._write_int(8, minor)
        self.record_kernel()
        self._write_int(0, MAGIC)

    def attach(self, pid: int, hostpid: int) -> ProcessSlot:
        """Take a slot for a new process; dead slots are cleared away first, as the library does.

        Args:
            pid: Process id in the container's pid namespace.
            hostpid: Process id on the host; 0 when it was not found.
        """
        self._clear_dead_slots()
        if len(self._slots) == SLOTS:
            raise ValueError(f"a region holds {SLOTS} processes; let one exit first")
        slot = ProcessSlot(self, len(self._slots))
        base = slot.offset
        self._bytes[base : base + LAYOUT.slot_stride] = bytes(LAYOUT.slot_stride)
        self._write_int(base, pid)
        self._write_int(base + 4, hostpid)
        self._write_int(base + LAYOUT.status, RUNNING)
        self._slots.append(slot)
        self._write_int(LAYOUT.tail, len(self._slots))
        self.record_kernel()
        # The library's start-up makes one change of 0 bytes.
        slot._change(0, _CONTEXT, 0)  # noqa: SLF001 -- the two classes are one writer
        return slot

    def _clear_dead_slots(self) -> None:
        """Move the last slot into the place of each dead one."""
        dead = [slot for slot in self._slots if slot.has_exited][:REMOVED_A_PASS]
        for slot in dead:
            last = self._slots.pop()
            if last is not slot:
                source = last.offset
                self._bytes[slot.offset : slot.offset + LAYOUT.slot_stride] = self._bytes[
                    source : source + LAYOUT.slot_stride
                ]
                self._slots[slot.index] = last
                last.index = slot.index
            self._write_int(LAYOUT.tail, len(self._slots))

    def record_kernel(self) -> None:
        """A kernel was launched, or a process attached: the last kernel's time is now."""
        assert LAYOUT.last_kernel_time is not None
        self._write_word(LAYOUT.last_kernel_time, int(self._clock()))

    def set_recent_kernel(self, value: int) -> None:
        """-1 = blocked by a higher priority, 0 = idle, 2 = just active."""
        self._write_int(LAYOUT.tail + 8, value)

    def set_utilization_switch(self, *, enforced: bool) -> None:
        """Whether the core limit is enforced under the default policy; HAMi's monitor decides that."""
        self._write_int(LAYOUT.tail + 4, int(enforced))

    def close(self) -> None:
        """Unmap the file; it stays where it is."""
        for view in (self._words, self._ints, self._bytes):
            view.release()
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_word(self, offset: int, value: int) -> None:
        self._words[offset // 8] = value % 2**64

    def _write_int(self, offset: int, value: int) -> None:
        self._ints[offset // 4] = value

    def _read_word(self, offset: int) -> int:
        return self._words[offset // 8]


class ProcessSlot:
    """One process of the container; made by `RegionFile.attach`. A killed process just stops writing."""

    def __init__(self, region: RegionFile, index: int) -> None:
        self._region = region
        self.index = index
        self.has_exited = False

    @property
    def offset(self) -> int:
        """Where the slot begins now; clearing away dead slots moves it."""
        return LAYOUT.slot_offset(self.index)

    def set_memory(
        self, device: int, *, context_bytes: int | None = None, data_bytes: int | None = None
    ) -> None:
        """Bring the memory on a device to these figures, one guarded change for each that differs."""
        for part, wanted in ((_CONTEXT, context_bytes), (_DATA, data_bytes)):
            if wanted is None:
                continue
            grown = wanted - self._region._read_word(self._record(device) + part)  # noqa: SLF001
            if grown:
                self._change(device, part, grown)

    def set_monitorused(self, device: int, used_bytes: int) -> None:
        """What NVML says that the process uses; the watcher thread writes it, outside the seqlock."""
        self._region._write_word(self.offset + LAYOUT.monitorused + 8 * device, used_bytes)  # noqa: SLF001

    def set_sm(self, device: int, percent: int) -> None:
        """The watcher's last SM sample, percent of the whole card."""
        assert LAYOUT.util is not None
        record = self.offset + LAYOUT.util + device * LAYOUT.util_stride
        self._region._write_word(record + _SM_UTIL, percent)  # noqa: SLF001

    def suspend(self) -> None:
        """SIGUSR2: the process waits and keeps its memory."""
        self._region._write_int(self.offset + LAYOUT.status, SUSPENDED)  # noqa: SLF001

    def resume(self) -> None:
        """SIGUSR1 after `suspend`."""
        self._region._write_int(self.offset + LAYOUT.status, RUNNING)  # noqa: SLF001

    def exit(self) -> None:
        """An orderly end: pid and status become 0, all else stays until another process attaches."""
        self._region._write_int(self.offset, 0)  # noqa: SLF001
        self._region._write_int(self.offset + LAYOUT.status, 0)  # noqa: SLF001
        self.has_exited = True

    def _record(self, device: int) -> int:
        return self.offset + LAYOUT.used + device * LAYOUT.record_stride

    def _change(self, device: int, part: int, grown_bytes: int) -> None:
        """One guarded change: counter odd, total, one part, counter even."""
        region, record = self._region, self._record(device)
        assert LAYOUT.seqlock is not None
        counter = self.offset + LAYOUT.seqlock
        count = region._read_word(counter)  # noqa: SLF001
        region._write_word(counter, count + 1)  # noqa: SLF001
        for place in (record + _TOTAL, record + part):
            region._write_word(place, region._read_word(place) + grown_bytes)  # noqa: SLF001
        region._write_word(counter, count + 2)  # noqa: SLF001
