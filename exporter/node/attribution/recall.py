"""What of the attribution a tick ago still holds: most of a node stays as it is from second to second.

A `Frame` is a whole attribution kept. As long as the pods, the processes, the files and the lists of the
cards are the same, only containers whose own figures changed are made anew; else everything is.
Invariant: what a frame gives is what making everything anew would give, in every figure and every count.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from contract.ids import PodUid
from exporter.hami.region import Region
from exporter.node.attribution.joining import (
    Joint,
    Sources,
    caches_of,
    nvml_memory,
    slots_of,
    surroundings,
    use_again,
)
from exporter.node.attribution.parts import Part, UsedBy, devices_of
from exporter.node.attribution.residents import Residents
from exporter.node.metering.counters import OwnerKey
from exporter.node.metering.inputs import OwnerInput
from exporter.node.sources.caches import CacheReading, DirectoryReading
from exporter.node.sources.pods import Place, PodRecord
from exporter.node.tallies import Tallies
from exporter.nvidia.source import DeviceReading


@dataclass(slots=True)
class Changes:
    """What is not as it was a tick ago, of containers that are.

    Attributes:
        stirred: Containers that are to be made anew.
        ticked: Files in which nothing but the time of the last kernel changed, by container.
        has_new_figures: NVML says other figures.
    """

    stirred: set[Place] = field(default_factory=set)
    ticked: dict[Place, list[CacheReading]] = field(default_factory=dict)
    has_new_figures: bool = False


class Frame:
    """One attribution, kept up to date.

    Args:
        joint: What it is made of.
        parts: Of every container.
        used_by: By which devices each process is listed.
        restless: Containers that are to be made anew at every tick.
    """

    def __init__(
        self, joint: Joint, parts: dict[Place, Part], used_by: UsedBy, restless: Iterable[Place]
    ) -> None:
        self.joint = joint
        self.parts = parts
        self.used_by = used_by
        self.restless = set(restless)
        self._homes = {
            cache.path: place for place, found in joint.directories.items() for cache in caches_of(found)
        }
        self._places_on: defaultdict[str, set[Place]] = defaultdict(set)
        for place in parts:
            self._note_devices(place)
        self._owners: dict[str, list[OwnerInput]] = {}
        self._spots: dict[OwnerKey, int] = {}
        self._handed_out: dict[str, tuple[OwnerInput, ...]] = {}
        self._group()

    def owners_on(self, device_uuid: str) -> tuple[OwnerInput, ...]:
        """Everybody on a device, by key; the very same tuple while none of them changed."""
        given = self._handed_out.get(device_uuid)
        if given is None:
            given = self._handed_out[device_uuid] = tuple(self._owners.get(device_uuid, ()))
        return given

    @property
    def devices(self) -> Collection[str]:
        """Uuids of the devices that somebody is on."""
        return self._owners.keys()

    def changes(
        self, sources: Sources, listed: Mapping[str, frozenset[int]], residents: Residents
    ) -> Changes | None:
        """What changed since the last tick; None = so much that everything is to be made anew.

        Args:
            sources: This tick's.
            listed: The processes that their readings list.
            residents: Begun for this tick.
        """
        before = self.joint.sources
        if not (
            residents.are_unchanged
            and sources.registered is before.registered
            and sources.had_readings == before.had_readings
            and sources.survey.has_tree == before.survey.has_tree
            and listed == self.joint.listed
            and _are_same(sources.sight.records, before.sight.records)
        ):
            return None
        found = Changes()
        if not (self._look_at_cards(sources.readings, found) and self._look_at_files(sources, found)):
            return None
        for place in list(residents.searched_in):
            slots = slots_of(caches_of(self.joint.directories.get(place, ())))
            if residents.host_pids(place, slots) != self.joint.backing[place].host_pids:
                return None
        return found

    def take(self, changes: Changes, sources: Sources, tallies: Tallies) -> set[Place]:
        """Take the changes in.

        Returns:
            The containers whose parts are to be made anew, by `put`.
        """
        joint = self.joint
        nvml = nvml_memory(sources.readings) if changes.has_new_figures else joint.nvml
        joint = self.joint = replace(joint, sources=sources, nvml=nvml)
        stirred = changes.stirred | self.restless
        around = surroundings(sources, nvml, tallies)
        for place in stirred:
            if place in joint.uses:
                joint.uses[place] = use_again(joint, place, around)
        for place, caches in changes.ticked.items():
            if place not in stirred:
                self._tick(place, caches)
        return stirred

    def put(self, place: Place, part: Part, *, is_restless: bool) -> None:
        """Take in a container's part; owners that did not change stay the same objects."""
        self.restless.discard(place)
        if is_restless:
            self.restless.add(place)
        self._note_devices(place)
        before = self.parts[place].owners
        self.parts[place] = part
        if [each.key for each in before] != [each.key for each in part.owners]:
            self._group()
            return
        for number, (old, new) in enumerate(zip(before, part.owners, strict=True)):
            if old == new:
                part.owners[number] = old
            else:
                uuid = new.key.device_uuid
                self._owners[uuid][self._spots[new.key]] = new
                self._handed_out.pop(uuid, None)

    def _note_devices(self, place: Place) -> None:
        for uuid in devices_of(self.joint, place, self.used_by):
            self._places_on[uuid].add(place)

    def _group(self) -> None:
        grouped: defaultdict[str, list[OwnerInput]] = defaultdict(list)
        for part in self.parts.values():
            for owner in part.owners:
                grouped[owner.key.device_uuid].append(owner)
        for owners in grouped.values():
            owners.sort(key=operator.attrgetter("key"))
            self._spots.update({owner.key: number for number, owner in enumerate(owners)})
        self._owners, self._handed_out = dict(grouped), {}

    def _look_at_cards(self, readings: Mapping[str, DeviceReading], found: Changes) -> bool:
        """Note the containers on cards with other figures; False = a card is not the same any more."""
        before = self.joint.sources.readings
        if readings.keys() != before.keys():
            return False
        for uuid, now in readings.items():
            then = before[uuid]
            if now.mode != then.mode or _ids(now) != _ids(then):
                return False
            if (now.processes, now.mig, now.memory_total_bytes, now.model) != (
                then.processes,
                then.mig,
                then.memory_total_bytes,
                then.model,
            ):
                found.has_new_figures = True
                found.stirred |= self._places_on.get(uuid, set())
        return True

    def _look_at_files(self, sources: Sources, found: Changes) -> bool:
        """Note what changed in files; False = there are others, or other processes in them."""
        before, now = self.joint.sources.survey.directories, sources.survey.directories
        if len(before) != len(now):
            return False
        for then, directory in zip(before, now, strict=True):
            if directory is then:
                continue
            # Nearly every directory has one file, and that is one container's.
            look = self._look_at_one if len(directory.caches) == 1 else self._look_into
            if not look(then, directory, found):
                return False
        return True

    def _look_at_one(self, then: DirectoryReading, now: DirectoryReading, found: Changes) -> bool:
        """As `_look_into`, for a directory with one file."""
        (new,) = now.caches
        place = self._homes.get(new.path)
        directories = self.joint.directories.get(place, ()) if place is not None else ()
        if len(directories) != 1 or directories[0] is not then or len(then.caches) != 1:
            return self._look_into(then, now, found)
        assert place is not None
        (old,) = then.caches
        is_the_same = new.path == old.path and (now.pod_uid, now.container) == (then.pod_uid, then.container)
        if not (is_the_same and _has_same_processes(old.region, new.region)):
            return False
        if _has_only_ticked(old, new):
            found.ticked[place] = [new]
        else:
            found.stirred.add(place)
        self.joint.directories[place][0] = now
        return True

    def _look_into(self, then: DirectoryReading, now: DirectoryReading, found: Changes) -> bool:
        if (now.pod_uid, now.container, len(now.caches)) != (then.pod_uid, then.container, len(then.caches)):
            return False
        changed: dict[str, CacheReading] = {}
        for old, new in zip(then.caches, now.caches, strict=True):
            if new is old:
                continue
            if new.path != old.path or not _has_same_processes(old.region, new.region):
                return False
            changed[new.path] = new
            place = self._homes.get(new.path)
            if place is None:
                continue  # of no known pod
            if _has_only_ticked(old, new):
                found.ticked.setdefault(place, []).append(new)
            else:
                found.stirred.add(place)
        for place in {self._homes[path] for path in changed if path in self._homes}:
            directories = self.joint.directories[place]
            directories[:] = [_with_caches(each, now, changed) for each in directories]
        return True

    def _tick(self, place: Place, caches: Sequence[CacheReading]) -> None:
        """Set the time of the last kernel in a container's gauges."""
        shares, gauges = self.joint.uses[place].shares, self.parts[place].gauges
        regions = {cache.path: cache.region for cache in caches}
        for number, each in enumerate(gauges):
            share = shares.get(each.key.device_uuid)
            now = None if share is None else regions.get(share.path)
            if share is None or now is None or each.region is None:
                continue
            share.region = now
            region = structs.replace(each.region, last_kernel_s=now.last_kernel_time_s or None)
            gauges[number] = structs.replace(each, region=region)


def _are_same(one: Mapping[PodUid, PodRecord], other: Mapping[PodUid, PodRecord]) -> bool:
    """Whether two mappings hold the very same objects in the same order."""
    return len(one) == len(other) and all(map(operator.is_, one.values(), other.values()))


def _ids(reading: DeviceReading) -> list[tuple[str, int, int]] | None:
    if reading.mig is None:
        return None
    return [(each.uuid, each.gpu_instance_id, each.compute_instance_id) for each in reading.mig]


def _has_same_processes(then: Region, now: Region) -> bool:
    if now.live_slots is then.live_slots:
        return True
    return [(slot.pid, slot.hostpid) for slot in now.live_slots] == [
        (slot.pid, slot.hostpid) for slot in then.live_slots
    ]


def _has_only_ticked(then: CacheReading, now: CacheReading) -> bool:
    """Whether nothing but the time of the last kernel changed."""
    old, new = then.region, now.region
    return (
        new.slots is old.slots
        and new.devices is old.devices
        and new.limits_bytes is old.limits_bytes
        and new.priority == old.priority
        and new.recent_kernel == old.recent_kernel
        and new.utilization_switch == old.utilization_switch
        and then.sm_percent == now.sm_percent
    )


def _with_caches(
    directory: DirectoryReading, now: DirectoryReading, changed: Mapping[str, CacheReading]
) -> DirectoryReading:
    """A container's directory with its files as they are now; it may hold only some of them."""
    if (directory.pod_uid, directory.container) != (now.pod_uid, now.container):
        return directory
    if len(directory.caches) == len(now.caches):
        return now
    return structs.replace(
        directory, caches=tuple([changed.get(cache.path, cache) for cache in directory.caches])
    )
