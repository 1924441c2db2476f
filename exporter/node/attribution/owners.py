"""Whose is what: the joined sources as owners per device for the meter, and as gauges for the page.

Three kinds of GPU process, by its cgroup: in a container that holds the device (the slice's); in a known
pod that holds nothing there (unallocated, named by that pod); in no known pod (unattributed). Invariant:
neither of the last two changes a slice's figures. Source: `reference/metering.md §5`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import structs

from contract.ids import DeviceUuid
from exporter.node.attribution.gauges import model_of
from exporter.node.attribution.joining import Joint, Sources, join, listed_on
from exporter.node.attribution.locks import RegionLocks
from exporter.node.attribution.parts import Part, UsedBy, part_of
from exporter.node.attribution.recall import Frame
from exporter.node.attribution.residents import Residents
from exporter.node.metering.inputs import DeviceInput
from exporter.node.snapshot import SliceGauges
from exporter.node.sources.pods import Place
from exporter.node.tallies import Tallies

NOT_LISTED = "not_listed"
"""NVML answers and does not list the card any more."""

DRIVER_GONE = frozenset({"driver_not_loaded"})
"""Failures of the device source as a whole without which nobody can use a card."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who uses what at one tick.

    Attributes:
        devices: For the meter.
        slices: Gauges of all slices held now.
        unattributed: Host pids NVML lists in no known pod; None = no card lists processes, or no pod is
            known yet.
        alive: Containers in which a GPU process was seen alive.
        wants_looks: Some slice depends on the cache for its SM use.
    """

    devices: tuple[DeviceInput, ...] = ()
    slices: tuple[SliceGauges, ...] = ()
    unattributed: frozenset[int] | None = None
    alive: frozenset[Place] = field(default_factory=frozenset)
    wants_looks: bool = False


class Attributor:
    """Attributes one tick after the other; what did not change is kept from the one before.

    Args:
        residents: Finds the processes behind slots, and the containers of processes.
        tallies: Where impossible values are counted.
        idle_power_mw: Configured idle power by model.
    """

    def __init__(
        self, residents: Residents, tallies: Tallies, idle_power_mw: Mapping[str, int] | None = None
    ) -> None:
        self._residents = residents
        self._locks = RegionLocks()
        self._tallies = tallies
        self._idle_power_mw = idle_power_mw or {}
        self._frame: Frame | None = None

    def attribute(self, sources: Sources) -> Attribution:
        """Join one tick's sources and say who uses what."""
        listed = listed_on(sources.readings)
        everywhere = frozenset().union(*listed.values()) if listed else None
        self._residents.begin(everywhere, sources.at_ms)
        self._locks.begin()
        frame = self._recalled(sources, listed) or self._anew(sources, listed)
        self._frame = frame
        joint = frame.joint
        unowned = [pids for uuid in joint.listed if (pids := joint.unowned_on(uuid)) is not None]
        is_known = bool(unowned) and sources.sight.is_listed
        slices = tuple([gauges for part in frame.parts.values() for gauges in part.gauges])
        return Attribution(
            devices=self._devices(frame),
            slices=slices,
            unattributed=frozenset().union(*unowned) if is_known else None,
            alive=joint.alive,
            wants_looks=_want_looks(joint, slices),
        )

    def _recalled(self, sources: Sources, listed: Mapping[str, frozenset[int]]) -> Frame | None:
        """What was kept, brought up to date; None = too much has changed."""
        frame = self._frame
        changes = None if frame is None else frame.changes(sources, listed, self._residents)
        if frame is None or changes is None:
            return None
        for place in frame.take(changes, sources, self._tallies):
            part, is_restless = self._part(frame.joint, place, frame.used_by)
            frame.put(place, part, is_restless=is_restless)
        return frame

    def _anew(self, sources: Sources, listed: Mapping[str, frozenset[int]]) -> Frame:
        joint = join(sources, listed, self._residents, self._tallies)
        used_by: defaultdict[int, set[str]] = defaultdict(set)
        for uuid, pids in listed.items():
            for pid in pids:
                used_by[pid].add(uuid)
        parts: dict[Place, Part] = {}
        restless = []
        for place in dict.fromkeys([*joint.held, *joint.uses]):
            parts[place], is_restless = self._part(joint, place, used_by)
            if is_restless:
                restless.append(place)
        return Frame(joint, parts, used_by, restless)

    def _part(self, joint: Joint, place: Place, used_by: UsedBy) -> tuple[Part, bool]:
        """A container's part, and whether it is to be made anew at every tick."""
        part, use = part_of(joint, place, used_by), joint.uses.get(place)
        part.gauges = [self._with_lock(joint, place, gauges) for gauges in part.gauges]
        is_locked = any(
            gauges.region is not None and gauges.region.lock_held_since_ms is not None
            for gauges in part.gauges
        )
        return part, is_locked or (use is not None and use.has_impossible)

    def _with_lock(self, joint: Joint, place: Place, gauges: SliceGauges) -> SliceGauges:
        use = joint.uses.get(place)
        share = use.shares.get(gauges.key.device_uuid) if use is not None else None
        if gauges.region is None or share is None or share.region is None:
            return gauges
        since_ms = self._locks.held_since_ms(share.path, share.region, joint.sources.at_ms)
        if since_ms is None:
            return gauges
        region = structs.replace(
            gauges.region,
            lock_held_since_ms=since_ms,
            lock_owner_is_alive=self._residents.lives_inside(place, share.region.owner_pid, since_ms),
        )
        return structs.replace(gauges, region=region)

    def _devices(self, frame: Frame) -> tuple[DeviceInput, ...]:
        joint, sources = frame.joint, frame.joint.sources
        found = []
        for uuid in sorted({*sources.registered, *sources.readings, *frame.devices}):
            registered, reading = sources.registered.get(uuid), sources.readings.get(uuid)
            has_failed = sources.had_readings
            if reading is not None:
                has_failed = reading.failure is not None or reading.has_lost_utilization
            total_bytes = reading.memory_total_bytes if reading is not None else None
            registered_mib = registered.memory_mib if registered is not None else None
            if registered_mib is None and total_bytes is not None:
                registered_mib = total_bytes >> 20
            found.append(
                DeviceInput(
                    device_uuid=DeviceUuid(uuid),
                    reading=reading,
                    owners=frame.owners_on(uuid),
                    unknown_reason="source_failed" if has_failed else "no_source",
                    registered_mib=registered_mib,
                    idle_power_mw=self._idle_power_mw.get(model_of(joint, uuid), 0),
                    is_down=down_reason(sources, uuid) is not None,
                )
            )
        return tuple(found)


def down_reason(sources: Sources, device_uuid: str) -> str | None:
    """Why a device counts as down; None = it is not.

    NVML lost it, a fatal XID stands, or HAMi registered it as unhealthy. That NVML cannot be read from here
    (a library that is not mounted) is no fault of the card.
    """
    reading, history = sources.readings.get(device_uuid), sources.hardware.get(device_uuid)
    if reading is not None and reading.failure is not None:
        return reading.failure
    if reading is None and history is not None:  # NVML knew it once
        if sources.device_failure is None:
            return NOT_LISTED
        if sources.device_failure in DRIVER_GONE:
            return sources.device_failure
    if history is not None and history.fatal_xid is not None:
        return f"xid_{history.fatal_xid}"
    registered = sources.registered.get(device_uuid)
    return "registered_unhealthy" if registered is not None and not registered.health else None


def _want_looks(joint: Joint, slices: Iterable[SliceGauges]) -> bool:
    """Whether some slice with a region is on a card without samples."""
    sampled = {uuid for uuid, each in joint.sources.readings.items() if each.utilization is not None}
    return any(gauges.region is not None and gauges.key.device_uuid not in sampled for gauges in slices)
