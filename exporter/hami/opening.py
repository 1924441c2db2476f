"""Opens cache files that a tenant can replace by anything, and reads them with `pread` alone.

A container's directory is mounted into the tenant's container with mode 0777. Invariants: no link is
followed, nothing blocks, nothing is opened for writing, nothing is mapped (a shortened file under a
mapping kills the process), and whatever stands at the path costs one typed error at most.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, Self

from exporter.hami.errors import CacheContentError, CacheOpenError, printable
from exporter.hami.layouts import BY_FILE_SIZE, DEVICES, LAYOUTS
from exporter.hami.reading import Pause, RegionMemory, read_region
from exporter.hami.region import NotReady, Region, Slot

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_REFUSED_BY_OPEN: Final = {
    errno.ENOENT: ("missing", "no such file; check the path (a cache file goes when its pod does)"),
    errno.ELOOP: ("symlink", "a link, which is never followed; give the file itself"),
    errno.ENXIO: ("not_regular", "a socket or device, not a file"),
    errno.ENODEV: ("not_regular", "a device, not a file"),
}
SLOTS_A_READ: Final = 16
_LAYOUT_BY_NAME: Final = {layout.name: layout for layout in LAYOUTS}


class FileIdentity(NamedTuple):
    """Tells whether a path still leads to the same file; when it changes, cached state is void."""

    device: int
    inode: int
    size: int


class CacheFile:
    """One open cache file; a context manager. Reads see HAMi-core's mapped writes at once.

    Whoever keeps it open must know that its path still leads to it, and `refresh` it before each read:
    a file's size can change.
    """

    __slots__ = ("_fd", "_identity", "_status", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open `path`.

        Raises:
            CacheOpenError: It cannot be opened or is no regular file.
        """
        self.path = os.fspath(path)
        try:
            self._fd = os.open(path, _FLAGS)
        except (OSError, ValueError) as error:
            raise _refusal(self.path, error) from error
        self._identity: FileIdentity | None = None
        self._status = os.fstat(self._fd)
        if not stat.S_ISREG(self._status.st_mode):
            self.close()
            kind = _kind(self._status.st_mode)
            raise CacheOpenError("not_regular", f"{printable(self.path)}: {kind}, not a regular file")

    @property
    def identity(self) -> FileIdentity:
        """Which file this is, with its size when it was looked at last."""
        if self._identity is None:
            status = self._status
            self._identity = FileIdentity(status.st_dev, status.st_ino, status.st_size)
        return self._identity

    @property
    def modified_ns(self) -> int:
        """When it was written to; the kernel notes writes through a mapping only now and then."""
        return self._status.st_mtime_ns

    def refresh(self) -> None:
        """Look anew at its size and the time it was written to.

        Raises:
            CacheOpenError: The file system fails.
        """
        try:
            before, self._status = self._status, os.fstat(self._fd)
        except OSError as error:
            raise _refusal(self.path, error) from error
        if self._status.st_size != before.st_size:
            self._identity = None

    def glance(self, memory: RegionMemory) -> Region | None:
        """The region of `memory`, if the file still says the same; None = `refresh` and `read` it.

        Raises:
            CacheOpenError: The file system fails.
        """
        try:
            return memory.glance(self._fd)
        except OSError as error:
            raise _refusal(self.path, error) from error

    def read(
        self,
        *,
        pause: Pause = time.sleep,
        previous: Region | None = None,
        memory: RegionMemory | None = None,
    ) -> Region | NotReady:
        """Decode the file as it is now; see `read_region` for `pause`, `previous` and `memory`.

        Raises:
            CacheContentError: It is no region of a known layout, or it is shortened meanwhile.
            CacheOpenError: The file system fails.
        """
        try:
            return read_region(
                partial(os.pread, self._fd),
                self._status.st_size,
                self.path,
                pause=pause,
                previous=previous,
                memory=memory,
            )
        except OSError as error:
            raise _refusal(self.path, error) from error

    def sm_util(self, region: Region) -> Mapping[tuple[int, int], int]:
        """The SM percentages of `region`'s live slots at this instant, by (container pid, device index).

        HAMi-core's watcher zeroes all slots every 120 ms or so before it fills them, so one look is
        often a wrong 0: take several within some 250 ms and keep the maximum. A slot that another
        process has taken, or a file that shrank, is left out; so is everything in layouts without
        utilisation. A 0 may also mean "not measured" (`hami-core-cache-format.md` section 5).
        """
        layout = _LAYOUT_BY_NAME[region.layout]
        if layout.util is None:
            return {}
        count = 1 if region.device_num <= 1 else DEVICES
        record = layout.slot_structs[count]
        first = 2 + count * (layout.kinds + 1) + 2
        found: dict[tuple[int, int], int] = {}
        for slots in _neighbours(region.live_slots):
            begin = layout.slot_offset(slots[0].slot)
            length = layout.slot_offset(slots[-1].slot) - begin + record.size
            try:
                look = os.pread(self._fd, length, begin)
            except OSError as error:
                raise _refusal(self.path, error) from error
            for slot in slots:
                at = layout.slot_offset(slot.slot) - begin
                if len(look) < at + record.size:
                    continue
                values = record.unpack_from(look, at)
                if values[0] == slot.pid:
                    for index in range(region.device_num or 1):
                        found[slot.pid, index] = values[first + 3 * index]
        return found

    def fileno(self) -> int:
        """The descriptor, for reading on."""
        return self._fd

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _neighbours(slots: Sequence[Slot]) -> Iterator[Sequence[Slot]]:
    """Slots that one read can take in."""
    begin = 0
    for end in range(1, len(slots) + 1):
        if end == len(slots) or slots[end].slot - slots[begin].slot >= SLOTS_A_READ:
            yield slots[begin:end]
            begin = end


def read_cache(
    path: str | os.PathLike[str], *, pause: Pause = time.sleep, previous: Region | None = None
) -> Region | NotReady:
    """Open, decode and close one cache file.

    Raises:
        CacheError: The path or the bytes are refused; `reason` says why.
    """
    file = CacheFile(path)
    try:
        return file.read(pause=pause, previous=previous)
    finally:
        file.close()


def read_gzipped_cache(path: str | os.PathLike[str]) -> Region | NotReady:
    """Decode a gzip-compressed copy of a cache file, opened under the same rules.

    Raises:
        CacheError: The path or the bytes are refused; `reason` says why.
    """
    largest = max(BY_FILE_SIZE)
    with CacheFile(path) as file, open(file.fileno(), "rb", closefd=False) as packed:
        try:
            # One byte beyond the largest region is enough to refuse a longer one, however far it unpacks.
            data = gzip.GzipFile(fileobj=packed).read(largest + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise CacheContentError(
                "damaged_gzip", f"{printable(path)}: {error}; copy the file again"
            ) from error

    def pread(length: int, offset: int) -> bytes:
        return data[offset : offset + length]

    # Unpacked bytes stand still, so there is nothing to wait for.
    return read_region(pread, len(data), file.path, pause=_no_pause)


def _no_pause(_seconds: float) -> None:
    """Waits for nothing."""


def _refusal(path: str, error: OSError | ValueError) -> CacheOpenError:
    name = printable(path)
    if isinstance(error, OSError) and error.errno in _REFUSED_BY_OPEN:
        reason, why = _REFUSED_BY_OPEN[error.errno]
        return CacheOpenError(reason, f"{name}: {why}")
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return CacheOpenError("unreadable", f"{name}: {why}; check the path and that this user may read it")


def _kind(mode: int) -> str:
    names = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }
    return names.get(stat.S_IFMT(mode), "something else")
