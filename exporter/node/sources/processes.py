"""The host's processes as its `/proc` shows them: identity, pid inside the container, pod and container.

A process is (pid, start time): a pid is used again. Invariants: what is remembered of a process is used
only while its folder is the same one (inode and birth), so a used-again pid is read anew; only those
few files are opened; nothing remembered outlives the process by more than a tick; a process that did not
change is the same object from tick to tick.
Source: `reference/metering.md §5`.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from exporter.node.sources.cgroups import container_of

RETRY_MS = 5_000
"""A process outside of pods, or one that cannot be read, is looked at again after this."""

SCAN_SPACING_MS = 2_000
FORGET_AFTER_MS = 60_000
"""After this every process is looked at anew in a search: a pid can be used again unseen."""

MOST_BYTES = 65_536

_START_FIELD = 22
_FIRST_AFTER_NAME = 3


@dataclass(frozen=True, slots=True)
class HostProcess:
    """One process of the host.

    Attributes:
        start_ticks: When it started, in clock ticks since boot.
        inner_pid: Its pid in its own pid namespace; None where the kernel does not say.
        pod_uid: As the cgroup writes it; None = in no pod.
        container_id: None = in no container.
    """

    pid: int
    start_ticks: int
    inner_pid: int | None = None
    pod_uid: str | None = None
    container_id: str | None = None


@dataclass(slots=True)
class _Known:
    path: str
    folder: tuple[int, int]
    process: HostProcess | None
    retry_at_ms: int | None


class ProcessTable:
    """Looks processes up; remembers those looked up a tick ago, and the members of pods it has searched.

    Args:
        proc_root: The host's `/proc`; None = processes are not looked up.
    """

    def __init__(self, proc_root: Path | None) -> None:
        self._root = None if proc_root is None else os.fspath(proc_root)
        self._now_ms = 0
        self._sees_host = False
        self._known: dict[int, _Known] = {}
        self._looked: dict[int, HostProcess | None] = {}
        self._asked: set[int] = set()
        self._is_unchanged = False
        self._scanned_ms: int | None = None
        self._forgotten_ms = 0
        self._passed: set[int] = set()
        self._living: set[int] = set()
        self._members: dict[tuple[str, int], set[int]] = {}

    @property
    def sees_host(self) -> bool:
        """Whether this `/proc` is the host's, so that a pid that is not there does not exist."""
        return self._sees_host

    @property
    def is_unchanged(self) -> bool:
        """Whether all that was asked since `forget` is as it was a tick ago."""
        return self._is_unchanged

    def begin(self, listed: Iterable[int] | None, now_ms: int) -> None:
        """Begin a tick: every process that was asked for is looked at once more.

        Args:
            listed: Host pids of all processes NVML lists on any card; None = it did not say.
            now_ms: Now, on any clock.
        """
        self._now_ms = now_ms
        before, saw_host = self._looked, self._sees_host
        if not self._known.keys() <= self._asked:
            members = {pid for pids in self._members.values() for pid in pids}
            self._known = {
                pid: known for pid, known in self._known.items() if pid in self._asked or pid in members
            }
        self._looked = looked = {pid: self._look(pid) for pid in before if pid in self._asked}
        self._sees_host = self._root is not None and self._is_hosts(listed)
        self._is_unchanged = (
            saw_host == self._sees_host
            and len(looked) == len(before)
            and all(map(operator.is_, looked.values(), before.values()))
        )

    def forget(self) -> None:
        """Look at those no more at the next tick that nobody asks for from now on."""
        self._asked.clear()

    def look(self, pid: int) -> HostProcess | None:
        """A process by its host pid; None when there is none (any more), or it cannot be read."""
        self._asked.add(pid)
        if pid in self._looked:
            return self._looked[pid]
        found = self._looked[pid] = self._look(pid)
        return found

    def inside(self, pod_uid: str, inner_pid: int, since_ms: int) -> list[HostProcess] | None:
        """Processes of a pod by their pid inside a container; one for each container at most.

        Args:
            pod_uid: As the cgroup writes it.
            inner_pid: In the container's pid namespace.
            since_ms: When the question arose: an answer must not be older.

        Returns:
            None while the host cannot be searched again so soon.
        """
        if self._scanned_ms is None or self._scanned_ms < since_ms:
            if not self._may_scan():
                return None
            self._scan()
        found = (self.look(pid) for pid in sorted(self._members.get((pod_uid, inner_pid), ())))
        return [each for each in found if each and (each.pod_uid, each.inner_pid) == (pod_uid, inner_pid)]

    def _is_hosts(self, listed: Iterable[int] | None) -> bool:
        """Pid 2 is the kernel's thread parent in the host's pid namespace alone; else NVML's list decides."""
        if _text(f"{self._root}/2/comm").strip() == "kthreadd":
            return True
        pids = list(listed or ())
        if not pids:
            return self._sees_host
        # One pid may exist here by chance, and one may have gone a moment ago.
        return 2 * sum(self.look(pid) is not None for pid in pids) > len(pids)

    def _look(self, pid: int) -> HostProcess | None:
        if self._root is None or pid <= 0:
            return None
        known = self._known.get(pid)
        path = f"{self._root}/{pid}" if known is None else known.path
        try:
            status = os.stat(path)  # noqa: PTH116 - hundreds a tick
        except OSError:
            self._known.pop(pid, None)
            return None
        # The kernel makes the folder anew for another process, with a number and a time of its own.
        folder = (status.st_ino, status.st_ctime_ns)
        if (
            known is not None
            and known.folder == folder
            and (known.retry_at_ms is None or not self._is_due(known.retry_at_ms))
        ):
            return known.process
        process = _read(path, pid)
        if known is not None and process == known.process:
            process = known.process
        is_settled = process is not None and process.pod_uid is not None
        self._known[pid] = _Known(path, folder, process, None if is_settled else self._now_ms + RETRY_MS)
        return process

    def _is_due(self, retry_at_ms: int) -> bool:
        # Farther away than ever set: the clock was set back.
        return not self._now_ms < retry_at_ms <= self._now_ms + RETRY_MS

    def _may_scan(self) -> bool:
        last_ms = self._scanned_ms
        return last_ms is None or not last_ms <= self._now_ms < last_ms + SCAN_SPACING_MS

    def _scan(self) -> None:
        """Find the processes of pods that came since the last search."""
        if self._root is None:
            return
        self._scanned_ms = self._now_ms
        if not self._forgotten_ms <= self._now_ms < self._forgotten_ms + FORGET_AFTER_MS:
            self._forgotten_ms, self._passed, self._living, self._members = self._now_ms, set(), set(), {}
        try:
            living = {int(name) for name in os.listdir(self._root) if name.isdecimal()}  # noqa: PTH208
        except OSError:
            return
        self._members = {key: pids & living for key, pids in self._members.items() if pids & living}
        for pid in living - self._passed:
            was_known = pid in self._looked or pid in self._known
            # Not `look`: of those found here only a few are asked for again.
            process = self._looked[pid] if pid in self._looked else self._look(pid)
            if process is not None and process.pod_uid is not None and process.inner_pid is not None:
                self._members.setdefault((process.pod_uid, process.inner_pid), set()).add(pid)
            elif not was_known:
                # Thousands of the host's own are not worth remembering one by one.
                self._known.pop(pid, None)
        # A container's first process starts outside of its cgroup: one look is not enough to pass it by.
        self._passed, self._living = living & self._living, living


def inner_pid_of(status: str) -> int | None:
    """The pid in the innermost namespace, from `/proc/<pid>/status`; None when it has no `NSpid`."""
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            last = line.split()[-1]
            return int(last) if last.isdecimal() else None
    return None


def start_ticks_of(stat: str) -> int | None:
    """Field 22 of `/proc/<pid>/stat`; the program's name before it may hold anything, brackets too."""
    fields = stat.rpartition(")")[2].split()
    place = _START_FIELD - _FIRST_AFTER_NAME
    return int(fields[place]) if len(fields) > place and fields[place].isdecimal() else None


def _read(path: str, pid: int) -> HostProcess | None:
    start_ticks = start_ticks_of(_text(f"{path}/stat"))
    if start_ticks is None:
        return None
    place = container_of(_text(f"{path}/cgroup"))
    inner_pid = inner_pid_of(_text(f"{path}/status"))
    if start_ticks_of(_text(f"{path}/stat")) != start_ticks:
        return None  # another process took the pid in between
    if place is None:
        return HostProcess(pid, start_ticks, inner_pid)
    return HostProcess(pid, start_ticks, inner_pid, place.pod_uid, place.container_id)


def _text(path: str) -> str:
    """A small file's text, empty when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.read(descriptor, MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
