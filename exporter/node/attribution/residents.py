"""Which host process stands behind a slot, and in which container a GPU process lives.

The numbers in a region are the tenant's and HAMi-core's own: it mixes up neighbours, moves pids away
from their host pids, and keeps slots of the dead. Invariants: where the host's processes are seen, a
host pid is believed only if its cgroup is that container's and its innermost pid is the slot's; a slot
is stale only after the container was searched for its process; a process that took the pid of one known
before is another process. Source: `reference/metering.md §5`, `hami-core-cache-format.md §6`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from contract.ids import PodUid
from exporter.hami.holding import UNKNOWN_CONTAINER
from exporter.hami.region import Region, Slot
from exporter.node.sources.liveness import Liveness
from exporter.node.sources.pods import Place, PodRecord
from exporter.node.sources.processes import RETRY_MS, HostProcess, ProcessTable


class _Seen(NamedTuple):
    """Where a process lives, and what that was told by."""

    process: HostProcess
    record: PodRecord | None
    place: Place | None


@dataclass(slots=True)
class _Memory:
    """What is remembered of a slot.

    Attributes:
        asked_ms: Since when its process is looked for.
        process: The process that was last found behind it.
        record: The pod as it was when the process was last found in its container.
    """

    asked_ms: int
    process: HostProcess | None = None
    record: PodRecord | None = None


class Residents:
    """Finds processes and their containers tick by tick.

    Args:
        table: The host's processes.
        liveness: Judges slots where those cannot be seen.
    """

    def __init__(self, table: ProcessTable, liveness: Liveness) -> None:
        self._table = table
        self._liveness = liveness
        self._now_ms = 0
        self._listed: frozenset[int] | None = None
        self._records: Mapping[PodUid, PodRecord] = {}
        self._by_cgroup_uid: dict[str, PodRecord] = {}
        self._slots: dict[tuple[str, int, int], _Memory] = {}
        self._slots_before: dict[tuple[str, int, int], _Memory] = {}
        self._homes: dict[str, str] = {}
        self._homes_before: dict[str, str] = {}
        self._seen: dict[int, _Seen] = {}
        self._seen_before: dict[int, _Seen] = {}
        self._has_just_gone = False
        self._searched_in: set[Place] = set()

    def begin(self, listed: frozenset[int] | None, now_ms: int) -> None:
        """Begin a tick.

        Args:
            listed: Host pids of all processes NVML lists on any card; None = it did not say.
            now_ms: Now.
        """
        self._now_ms, self._listed = now_ms, listed
        self._table.begin(listed, now_ms)
        self._liveness.begin(listed)

    def turn(self, records: Mapping[PodUid, PodRecord]) -> None:
        """Answer everything anew in this tick; what is not asked for again is forgotten.

        Args:
            records: The pods of the node.
        """
        self._table.forget()
        self._records = records
        self._by_cgroup_uid = {record.cgroup_uid: record for record in records.values()}
        self._slots_before, self._slots = self._slots, {}
        self._homes_before, self._homes = self._homes, {}
        self._seen_before, self._seen = self._seen, {}
        self._has_just_gone = False
        self._searched_in = set()

    @property
    def searched_in(self) -> Collection[Place]:
        """Containers with slots that do not name their process, so that it is searched for at every tick."""
        return self._searched_in

    @property
    def are_unchanged(self) -> bool:
        """Whether every process asked for since the last turn is as it was a tick ago.

        Then, for the same pods and lists, what was answered is so still, but for what is searched for.
        """
        return self._table.sees_host and self._table.is_unchanged and not self._has_just_gone

    @property
    def are_seen(self) -> bool:
        """Whether the host's processes can be looked up."""
        return self._table.sees_host

    def exists(self, host_pid: int) -> bool:
        """Whether a host process is there now."""
        return self._table.look(host_pid) is not None

    def is_told(self, host_pid: int) -> bool:
        """Whether it could be looked up in which container a process is, or that it is in none."""
        return self.exists(host_pid) or self._last_seen(host_pid) is not None

    def place_of(self, host_pid: int) -> Place | None:
        """The container of a process; None = in no known pod. Of one that has just gone, its last."""
        process = self._table.look(host_pid)
        if process is not None:
            return self._place(process)
        before = self._last_seen(host_pid)
        place = None if before is None else before.place
        # Its pod may have gone with it.
        return place if place is not None and place[0] in self._records else None

    def _last_seen(self, host_pid: int) -> _Seen | None:
        """Where a process was that has gone since the last tick."""
        before = self._seen_before.get(host_pid)
        self._has_just_gone = self._has_just_gone or before is not None
        return before

    def host_pids(self, place: Place, slots: Sequence[tuple[str, Slot]]) -> list[int | None]:
        """The living processes behind a container's slots.

        Args:
            place: The container.
            slots: The live slots of all its regions, with their files.

        Returns:
            Host pids in the same order; 0 = it lives as far as is known, its host pid is not; None = stale.
        """
        if not self.are_seen:
            return [self._claimed(path, slot) for path, slot in slots]
        record = self._records.get(place[0])
        found = [self._confirmed(place, record, path, slot) for path, slot in slots]
        if None in found:
            self._searched_in.add(place)
            taken = {pid for pid in found if pid}
            for number, (path, slot) in enumerate(slots):
                if found[number] is None:
                    found[number] = self._searched(place, path, slot, taken)
        return found

    def _claimed(self, path: str, slot: Slot) -> int | None:
        pid = max(0, slot.hostpid)
        return pid if self._liveness.is_listed(path, slot, pid) else None

    def _confirmed(self, place: Place, record: PodRecord | None, path: str, slot: Slot) -> int | None:
        """The process that a slot names, if it is its process."""
        key = (path, slot.pid, slot.hostpid)
        memory = self._slots.get(key) or self._slots_before.get(key)
        if memory is None:
            memory = _Memory(self._now_ms)
        self._slots[key] = memory
        process = self._table.look(slot.hostpid)
        if process is None:
            return None
        if process is memory.process and record is memory.record:
            return process.pid
        if process.inner_pid not in (None, slot.pid) or not self._is_in(process, place):
            return None
        if memory.process is None or memory.process.pid != process.pid:
            memory.process = process
        if memory.process != process:
            return None  # the same pid with another start: whoever wrote the slot is gone
        memory.process, memory.record = process, record
        return process.pid

    def lives_inside(self, place: Place, inner_pid: int, since_ms: int) -> bool | None:
        """Whether a container has a process; None while that is not known.

        Args:
            place: The container.
            inner_pid: The process's pid in it.
            since_ms: When somebody first asked.
        """
        found = self._inside(place, inner_pid, since_ms) if self.are_seen else None
        return None if found is None else bool(found)

    def home_of(self, record: PodRecord, path: str, region: Region) -> str | None:
        """The container whose processes wrote a region; None while no process tells."""
        names = set()
        for slot in region.live_slots if self.are_seen else ():
            process = self._table.look(slot.hostpid)
            if process is None or process.pod_uid != record.cgroup_uid:
                continue
            if process.inner_pid in (None, slot.pid):
                names.add(self._place(process))
        found = {place[1] for place in names if place is not None} - {UNKNOWN_CONTAINER}
        name = found.pop() if len(found) == 1 else self._homes_before.get(path)
        if name is not None:
            self._homes[path] = name
        return name

    def _searched(self, place: Place, path: str, slot: Slot, taken: set[int]) -> int | None:
        """Look for a slot's process by its pid in the container: its host pid is wrong or missing.

        Args:
            place: The container.
            path: The region's file.
            slot: The slot.
            taken: Processes that other slots name rightly.
        """
        memory = self._slots[path, slot.pid, slot.hostpid]
        found = self._candidates(place, slot.pid, memory)
        if found is None:
            return 0
        for process in found:
            if process.pid not in taken and self._may_back(path, slot, process, memory.process):
                memory.process, memory.record = process, None
                return process.pid
        return None

    def _may_back(self, path: str, slot: Slot, process: HostProcess, before: HostProcess | None) -> bool:
        """Whether a process with a slot's pid in the right container is the one that wrote it.

        A pid is soon used again after a restart, but whoever uses the GPU takes its slot over.
        """
        if self._listed is not None and process.pid in self._listed:
            return True
        if before not in (None, process):
            return False
        if slot.hostpid > 0:
            # One that names a process of somebody else was mixed up; one that names a dead process is dead.
            return self._listed is None and self.exists(slot.hostpid)
        # An empty list proves nothing: there are hosts on which NVML lists no process at all.
        return not self._listed or self._liveness.is_listed(path, slot, process.pid)

    def _candidates(self, place: Place, inner_pid: int, memory: _Memory) -> list[HostProcess] | None:
        if not memory.asked_ms <= self._now_ms < memory.asked_ms + RETRY_MS:
            fresh = self._inside(place, inner_pid, self._now_ms)
            if fresh is not None:
                memory.asked_ms = self._now_ms
                return fresh
        return self._inside(place, inner_pid, memory.asked_ms)

    def _inside(self, place: Place, inner_pid: int, since_ms: int) -> list[HostProcess] | None:
        record = self._records.get(place[0])
        if record is None:
            return []
        found = self._table.inside(record.cgroup_uid, inner_pid, since_ms)
        return None if found is None else [process for process in found if self._is_in(process, place)]

    def _is_in(self, process: HostProcess, place: Place) -> bool:
        found = self._place(process)
        return (
            found is not None
            and found[0] == place[0]
            and (found[1] == place[1] or UNKNOWN_CONTAINER in (found[1], place[1]))
        )

    def _place(self, process: HostProcess) -> Place | None:
        seen = self._seen.get(process.pid)
        if seen is not None and seen.process is process:
            return seen.place
        record = None if process.pod_uid is None else self._by_cgroup_uid.get(process.pod_uid)
        seen = self._seen_before.get(process.pid)
        if seen is None or seen.process is not process or seen.record is not record:
            place = None if record is None else (record.uid, _container(record, process.container_id))
            seen = _Seen(process, record, place)
        self._seen[process.pid] = seen
        return seen.place


def _container(record: PodRecord, container_id: str | None) -> str:
    """The container's name; the kubelet may not have told its id yet."""
    if container_id is None:
        return UNKNOWN_CONTAINER
    name = record.containers.get(container_id)
    if name is not None:
        return name
    containers = record.layout.requesters or record.layout.containers
    return containers[0].name if len(containers) == 1 else UNKNOWN_CONTAINER


def pids_by_place(residents: Residents, listed: Iterable[int]) -> dict[Place, set[int]]:
    """GPU processes by their container, those of no known pod left out."""
    found: dict[Place, set[int]] = {}
    for pid in listed:
        place = residents.place_of(pid)
        if place is not None:
            found.setdefault(place, set()).add(pid)
    return found
