"""One tick's sources joined by container: what it holds, what its regions say, which processes it has.

Where the host's processes are seen, a GPU process is its container's by its cgroup, whatever a region
says. Invariants: HAMi's directory names are not believed where they can be wrong; a host pid has one
container at most. Source: `reference/hami-kubernetes.md §3.5`, `reference/metering.md §5`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from contract.ids import PodUid
from exporter.hami.annotations.containers import container_of_directory
from exporter.hami.annotations.node_register import RegisteredDevice
from exporter.hami.holding import UNKNOWN_CONTAINER, HeldSlice
from exporter.hami.region import Slot
from exporter.node.attribution.mig import mig_residents
from exporter.node.attribution.regions import (
    ContainerUse,
    NvmlMemory,
    Surroundings,
    add_slotless,
    container_use,
)
from exporter.node.attribution.residents import Residents, pids_by_place
from exporter.node.sources.caches import CacheReading, CacheSurvey, DirectoryReading
from exporter.node.sources.hardware import HardwareView
from exporter.node.sources.pods import Place, PodRecord, PodSight
from exporter.node.tallies import Tallies
from exporter.nvidia.source import DeviceReading


@dataclass(frozen=True, slots=True)
class Sources:
    """All that was read at one tick.

    Attributes:
        registered: HAMi's devices by uuid.
        readings: NVML's, checked, by uuid.
        hardware: What happened to the cards so far, by uuid.
        had_readings: The device source has answered at some time.
        device_failure: Why it does not answer now; None = it does.
    """

    at_ms: int
    sight: PodSight
    registered: Mapping[str, RegisteredDevice]
    readings: Mapping[str, DeviceReading]
    survey: CacheSurvey
    hardware: Mapping[str, HardwareView] = field(default_factory=dict)
    had_readings: bool = False
    device_failure: str | None = None


@dataclass(slots=True)
class Backing:
    """The processes behind a container's use.

    Attributes:
        host_pids: Behind its live slots in order; 0 = not known, None = stale.
        slotless: Sets of processes that were added by other evidence than a slot, in their order.
    """

    host_pids: list[int | None] = field(default_factory=list)
    slotless: list[set[int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Joint:
    """The sources, joined.

    Attributes:
        held: Slices held now by container.
        directories: HAMi's directories by container.
        backing: The processes of each container.
        uses: What regions and NVML say of each container; only of known pods.
        nvml: NVML's memory by (device uuid, host pid).
        listed: Host pids NVML lists by device uuid; a device that lists none is missing.
        owned: Host pids of all known containers.
        alive: Containers in which a GPU process was seen alive.
        are_told: Processes are attributed by their cgroups; else a slice without a region has none.
        untold: Host pids NVML lists of which nobody can say where they live.
    """

    sources: Sources
    held: Mapping[Place, Sequence[HeldSlice]]
    directories: dict[Place, list[DirectoryReading]]
    backing: Mapping[Place, Backing]
    uses: dict[Place, ContainerUse]
    nvml: NvmlMemory
    listed: Mapping[str, frozenset[int]]
    owned: frozenset[int]
    alive: frozenset[Place]
    are_told: bool
    untold: frozenset[int]

    def record(self, place: Place) -> PodRecord:
        """The container's pod."""
        return self.sources.sight.records[place[0]]

    def unowned_on(self, device_uuid: str) -> frozenset[int] | None:
        """Processes on a device that are nobody's; None when the device lists none."""
        listed = self.listed.get(device_uuid)
        return None if listed is None else listed - self.owned

    def doubtful_on(self, place: Place, device_uuid: str) -> frozenset[int]:
        """Processes on a device that may be a container's although nobody says so."""
        listed = self.listed.get(device_uuid, frozenset())
        stray = self.uses.get((place[0], UNKNOWN_CONTAINER))
        return listed & (self.untold if stray is None else self.untold | stray.pids)


def listed_on(readings: Mapping[str, DeviceReading]) -> dict[str, frozenset[int]]:
    """Host pids NVML lists by device uuid; a device that lists none is missing."""
    return {
        uuid: frozenset([process.pid for process in reading.processes])
        for uuid, reading in readings.items()
        if reading.processes is not None
    }


def join(
    sources: Sources, listed: Mapping[str, frozenset[int]], residents: Residents, tallies: Tallies
) -> Joint:
    """Join one tick's sources.

    Args:
        sources: All of them.
        listed: The processes that their readings list.
        residents: Begun for this tick.
        tallies: Where impossible values are counted.
    """
    everywhere = frozenset().union(*listed.values()) if listed else None
    residents.turn(sources.sight.records)
    nvml = nvml_memory(sources.readings)
    held = _held(sources.sight)
    directories = _by_container(sources, held, residents)
    around = surroundings(sources, nvml, tallies)
    backing: defaultdict[Place, Backing] = defaultdict(Backing)
    uses: dict[Place, ContainerUse] = {}
    for place, found in directories.items():
        readings = caches_of(found)
        pids = backing[place].host_pids = residents.host_pids(place, slots_of(readings))
        uses[place] = container_use(readings, pids, _granted(held, place), around)
    if residents.are_seen:
        for place, mine in pids_by_place(residents, everywhere or ()).items():
            backing[place].slotless.append(mine)
            add_slotless(uses.setdefault(place, ContainerUse()), mine, nvml)
        untold = frozenset(pid for pid in everywhere or () if not residents.is_told(pid))
    else:
        _settle_claims(uses.values())
        untold = (everywhere or frozenset()) - {pid for use in uses.values() for pid in use.pids}
    for place, there in mig_residents(held, sources.readings).items():
        # An instance has one holder: that tells whose a process is where its cgroup does not.
        backing[place].slotless.append(there & untold)
        add_slotless(uses.setdefault(place, ContainerUse()), there & untold, nvml)
        untold -= there
    owned = frozenset().union(*(use.pids for use in uses.values()))
    living = (
        {pid for pid in owned if residents.exists(pid)} if residents.are_seen else everywhere or frozenset()
    )
    return Joint(
        sources=sources,
        held=held,
        directories=directories,
        backing=backing,
        uses=uses,
        nvml=nvml,
        listed=listed,
        owned=owned,
        alive=frozenset(place for place, use in uses.items() if not living.isdisjoint(use.pids)),
        are_told=residents.are_seen,
        untold=untold,
    )


def use_again(joint: Joint, place: Place, around: Surroundings) -> ContainerUse:
    """A container's use as its regions and NVML say now, while its processes are those of the joint."""
    backing = joint.backing.get(place, Backing())
    readings = caches_of(joint.directories.get(place, ()))
    use = container_use(readings, backing.host_pids, _granted(joint.held, place), around)
    for pids in backing.slotless:
        add_slotless(use, pids, joint.nvml)
    return use


def nvml_memory(readings: Mapping[str, DeviceReading]) -> NvmlMemory:
    """What NVML says of each process's memory."""
    return {
        (uuid, process.pid): process.used_bytes
        for uuid, reading in readings.items()
        for process in reading.processes or ()
        if process.used_bytes is not None
    }


def surroundings(sources: Sources, nvml: NvmlMemory, tallies: Tallies) -> Surroundings:
    """What is known besides the regions."""
    totals = {uuid: reading.memory_total_bytes for uuid, reading in sources.readings.items()}
    return Surroundings(totals, nvml, tallies)


def caches_of(directories: Iterable[DirectoryReading]) -> list[CacheReading]:
    """The files of a container's directories."""
    return [cache for directory in directories for cache in directory.caches]


def slots_of(readings: Iterable[CacheReading]) -> list[tuple[str, Slot]]:
    """Their live slots with their files."""
    return [(reading.path, slot) for reading in readings for slot in reading.region.live_slots]


def _granted(held: Mapping[Place, Sequence[HeldSlice]], place: Place) -> list[str]:
    return [slice_.grant.device_uuid for slice_ in held.get(place, ())]


def _held(sight: PodSight) -> dict[Place, list[HeldSlice]]:
    held: defaultdict[Place, list[HeldSlice]] = defaultdict(list)
    for uid, record in sight.records.items():
        for slice_ in record.holding.current:
            held[uid, slice_.grant.container].append(slice_)
    return dict(held)


def _by_container(
    sources: Sources, held: Mapping[Place, object], residents: Residents
) -> dict[Place, list[DirectoryReading]]:
    records = sources.sight.records
    # A static pod's directory may carry either of its two UIDs.
    static = {record.cgroup_uid: uid for uid, record in records.items() if record.cgroup_uid != uid}
    of_pod: defaultdict[PodUid, list[DirectoryReading]] = defaultdict(list)
    for directory in sources.survey.directories:
        uid = static.get(directory.pod_uid, PodUid(directory.pod_uid))
        if uid in records:
            of_pod[uid].append(directory)
    holders: defaultdict[PodUid, list[str]] = defaultdict(list)
    for uid, container in held:
        holders[uid].append(container)
    found: defaultdict[Place, list[DirectoryReading]] = defaultdict(list)
    for uid, directories in of_pod.items():
        record = records[uid]
        siblings = {directory.container for directory in directories}
        for directory in directories:
            if len(record.requesters) == 1:
                found[uid, record.requesters[0]].append(directory)
                continue
            name = _container(record, directory.container, siblings, holders[uid])
            if not record.requesters or not directory.caches:
                found[uid, name].append(directory)
                continue
            # Two GPU containers can share one directory; each file is one container's.
            for cache in directory.caches:
                home = residents.home_of(record, cache.path, cache.region) or name
                found[uid, home].append(structs.replace(directory, caches=(cache,)))
    return dict(found)


def _container(record: PodRecord, name: str, siblings: set[str], holders: Sequence[str]) -> str:
    known = container_of_directory(name, siblings, record.devices, record.layout)
    if known is not None:
        return known
    if len(holders) == 1:
        return holders[0]
    # A pod that holds nothing was not named by HAMi's positions: the name is all there is.
    return name if not holders and record.layout.kind_of(name) is not None else UNKNOWN_CONTAINER


def _settle_claims(uses: Iterable[ContainerUse]) -> None:
    """Take a host pid that several containers claim from all of them: HAMi-core mixes up neighbours."""
    uses = list(uses)
    claims = Counter(pid for use in uses for pid in use.pids)
    disputed = {pid for pid, count in claims.items() if count > 1}
    for use in uses:
        if not disputed.isdisjoint(use.pids):
            use.pids -= disputed
            use.has_unknown_pids = True
