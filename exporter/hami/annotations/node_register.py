"""Which devices a node offers: HAMi's register annotation, string or JSON, and Volcano's string.

    string (≤ 2.7)   uuid,count,devmem,devcore,type,numa,health[,index,mode]:   each device ends in ":"
    JSON (≥ 2.8)     [{"id","index","count","devmem","devcore","type","numa","mode","health","migProfiles"}]
    Volcano          uuid,count,devmem,type,health[,mode]:

In JSON every member with Go's zero value is left out, so an absent `health` is *unhealthy*. Invariant: one
unreadable device costs itself alone (HAMi throws the whole annotation away), and uuids are unique.

Source: `reference/hami-kubernetes.md §2.1, §2.2, §12`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from exporter.hami.annotations.flaw import Flaw, Kind, Reason, flaw
from exporter.hami.annotations.json_list import JsonObject, read_objects
from exporter.hami.annotations.scalars import boolean, is_id, is_text, whole

KIND: Kind = "node-register"
HAMI_KEY = "hami.io/node-nvidia-register"
VOLCANO_KEY = "volcano.sh/node-vgpu-register"

DEFAULT_MODE = "hami-core"
_WHOLE_CARD_PERCENT = 100

Form: TypeAlias = Literal["hami", "volcano"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a MIG instance sits: first memory slice and number of slices."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A MIG profile the card can be cut into (HAMi 2.10)."""

    name: str
    memory_mb: int
    core_percent: int
    slice_count: int
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class RegisteredDevice:
    """One physical device as HAMi offers it.

    Attributes:
        uuid: Full UUID of the card.
        count: Slots.
        memory_mib: What may be handed out: scaled on scaled cards.
        core_percent: Percent of one card; above 100 where cores are scaled.
        type: Model name.
        numa: NUMA node; 0 is also written when it is unknown.
        health: False also when JSON leaves it out.
        index: NVML's index; None where the form has none.
        mode: `hami-core`, `mig`, `mps`.
        mig_profiles: In MIG mode of HAMi 2.10.
    """

    uuid: str
    count: int
    memory_mib: int
    core_percent: int
    type: str
    numa: int
    health: bool
    index: int | None
    mode: str
    mig_profiles: tuple[MigProfile, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRegister:
    """A whole annotation; the order of devices means nothing (HAMi iterates a Go map)."""

    devices: tuple[RegisteredDevice, ...]
    errors: tuple[Flaw, ...]


def parse_node_register(text: str, form: Form = "hami") -> NodeRegister:
    """Read a register annotation; never raises. `form` is the plugin's whose key it stood under."""
    stripped = text.strip()
    errors: list[Flaw] = []
    if stripped.startswith("[") or stripped == "null":
        objects, errors = read_objects(KIND, stripped)
        read = [(element.segment, _from_json(element, errors)) for element in objects]
    else:
        of_piece = _from_hami if form == "hami" else _from_volcano
        pieces = [piece.strip() for piece in stripped.split(":")]
        read = [(piece, of_piece(piece, errors)) for piece in pieces if piece]
    devices: dict[str, RegisteredDevice] = {}
    for segment, device in read:
        if device is None:
            continue
        if device.uuid in devices:
            detail = f"{device.uuid} is listed before; the first holds"
            errors.append(flaw(KIND, segment, "duplicate", detail))
            continue
        devices[device.uuid] = device
    return NodeRegister(tuple(devices.values()), tuple(errors))


def registered(annotations: dict[str, str]) -> NodeRegister:
    """What a node's annotations offer: HAMi's key, else Volcano's, else nothing."""
    if HAMI_KEY in annotations:
        return parse_node_register(annotations[HAMI_KEY])
    return parse_node_register(annotations.get(VOLCANO_KEY, ""), "volcano")


def _from_hami(segment: str, errors: list[Flaw]) -> RegisteredDevice | None:
    fields = [field.strip() for field in segment.split(",")]
    if len(fields) not in {7, 9}:
        detail = f"a device has 7 or 9 fields, not {len(fields)}"
        errors.append(flaw(KIND, segment, "field_count", detail))
        return None
    uuid, count, devmem, devcore, model, numa, health = fields[:7]
    index, mode = (fields[7], fields[8]) if len(fields) == 9 else (None, "")
    read = _Reader(segment, errors)
    device = RegisteredDevice(
        uuid=read.uuid(uuid),
        count=read.number("count", count),
        memory_mib=read.number("devmem", devmem),
        core_percent=read.number("devcore", devcore),
        type=read.text("type", model),
        numa=read.number("numa", numa, at_least=-1),
        health=read.flag("health", health),
        index=None if index is None else read.number("index", index),
        mode=read.text("mode", mode) or DEFAULT_MODE,
    )
    return device if read.is_good else None


def _from_volcano(segment: str, errors: list[Flaw]) -> RegisteredDevice | None:
    fields = [field.strip() for field in segment.split(",")]
    if len(fields) not in {5, 6}:
        detail = f"a device of Volcano's plugin has 5 or 6 fields, not {len(fields)}"
        errors.append(flaw(KIND, segment, "field_count", detail))
        return None
    uuid, count, devmem, model, health = fields[:5]
    read = _Reader(segment, errors)
    device = RegisteredDevice(
        uuid=read.uuid(uuid),
        count=read.number("count", count),
        memory_mib=read.number("devmem", devmem),
        core_percent=_WHOLE_CARD_PERCENT,
        type=read.text("type", model),
        numa=0,
        health=read.flag("health", health),
        index=None,
        mode=read.text("mode", fields[5] if len(fields) == 6 else "") or DEFAULT_MODE,
    )
    return device if read.is_good else None


def _from_json(element: JsonObject, errors: list[Flaw]) -> RegisteredDevice | None:
    members = element.members
    read = _Reader(element.segment, errors)
    device = RegisteredDevice(
        uuid=read.uuid(members.get("id", "")),
        count=read.number("count", members.get("count", 0)),
        memory_mib=read.number("devmem", members.get("devmem", 0)),
        core_percent=read.number("devcore", members.get("devcore", 0)),
        type=read.text("type", members.get("type", "")),
        numa=read.number("numa", members.get("numa", 0), at_least=-1),
        health=read.flag("health", members.get("health", False)),
        index=read.number("index", members.get("index", 0)),
        mode=read.text("mode", members.get("mode", "")) or DEFAULT_MODE,
        mig_profiles=_mig_profiles(members.get("migProfiles"), element.segment, errors),
    )
    return device if read.is_good else None


def _mig_profiles(value: object, segment: str, errors: list[Flaw]) -> tuple[MigProfile, ...]:
    """The readable profiles; a bad one costs itself, not the device."""
    if value is None:
        return ()
    profiles: list[MigProfile] = []
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, dict):
            errors.append(flaw(KIND, segment, "bad_value", "migProfiles holds something else than objects"))
            continue
        read = _Reader(segment, errors)
        profile = MigProfile(
            name=read.text("migProfiles.name", item.get("name", "")),
            memory_mb=read.number("migProfiles.memoryMB", item.get("memoryMB", 0)),
            core_percent=read.number("migProfiles.core", item.get("core", 0)),
            slice_count=read.number("migProfiles.sliceCount", item.get("sliceCount", 0)),
            placements=read.placements("migProfiles.placements", item.get("placements")),
        )
        if read.is_good:
            profiles.append(profile)
    return tuple(profiles)


class _Reader:
    """Reads one device's values and notes what is wrong; `is_good` is False after the first bad one."""

    def __init__(self, segment: str, errors: list[Flaw]) -> None:
        self._segment = segment
        self._errors = errors
        self.is_good = True

    def _bad(self, reason: Reason, detail: str) -> None:
        self.is_good = False
        self._errors.append(flaw(KIND, self._segment, reason, detail))

    def uuid(self, value: object) -> str:
        if isinstance(value, str) and is_id(value):
            return value
        if value is None or value == "":
            self._bad("missing_uuid", "the device has no uuid")
        else:
            self._bad("bad_uuid", "the uuid is no short printable text")
        return ""

    def number(self, name: str, value: object, *, at_least: int = 0) -> int:
        number = whole(value, at_least=at_least)
        if number is None:
            self._bad("bad_number", f"{name} is no whole number from {at_least} to 2147483647")
            return 0
        return number

    def flag(self, name: str, value: object) -> bool:
        found = value if isinstance(value, bool) else boolean(value) if isinstance(value, str) else None
        if found is None:
            self._bad("bad_boolean", f"{name} is no boolean")
            return False
        return found

    def text(self, name: str, value: object) -> str:
        if isinstance(value, str) and is_text(value):
            return value
        self._bad("bad_value", f"{name} is no short printable text")
        return ""

    def placements(self, name: str, value: object) -> tuple[Placement, ...]:
        items = value if isinstance(value, list) else [] if value is None else [value]
        placements: list[Placement] = []
        for item in items:
            if isinstance(item, dict):
                start, size = item.get("start", 0), item.get("size", 0)
                placements.append(Placement(self.number(name, start), self.number(name, size)))
            else:
                self._bad("bad_value", f"{name} is no list of objects")
        return tuple(placements)
