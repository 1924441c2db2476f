"""Which devices a pod was given: the grammar that all vendors share.

    pod       = *( container ";" )      each container is terminated by ";"
    container = *( device ":" )         each device is terminated by ":"
    device    = uuid "," vendor "," mem "," cores *( "," more )

`hami.io/vgpu-devices-allocated`, `…-devices-to-allocate`, every other vendor's pair, and Volcano's
`vgpu-ids-new` (whose containers are joined instead) read alike. Invariant: the order and positions of
entries are kept, for they are what names the containers (`containers.py`).

Source: `reference/hami-kubernetes.md §3.2, §3.3, §12`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

from exporter.hami.annotations.flaw import Flaw, Kind, flaw
from exporter.hami.annotations.scalars import is_id, is_text, whole

KIND: Kind = "pod-devices"

_MIG_SUFFIX = re.compile(r"(?P<uuid>[^\[\]]+)\[(?P<template>[0-9]{1,4})-(?P<slot>[0-9]{1,4})\]", re.ASCII)
_SEGMENT_END = re.compile("[:;]")
_FIELDS = 4

MAX_SEGMENTS = 1_000
"""Far above any node's cards times a pod's containers; whoever may write a pod may write 256 KiB of them."""


@dataclass(frozen=True, slots=True)
class MigSlot:
    """The `[t-s]` suffix of HAMi ≤ 2.9: geometry template and slot in it."""

    template: int
    slot: int


@dataclass(frozen=True, slots=True)
class GrantedDevice:
    """One device of an entry.

    Attributes:
        uuid: The physical device, MIG suffix stripped.
        vendor: Family word (`NVIDIA`), not the model.
        memory_mib: Granted memory; percentages are already resolved by HAMi.
        core_percent: Percent of the card; 0 = none requested. (AWS writes a bit mask, AMD physical units.)
        mig: The slot, for MIG of HAMi ≤ 2.9.
        more: Fields after the fourth, as they stood.
    """

    uuid: str
    vendor: str
    memory_mib: int
    core_percent: int
    mig: MigSlot | None = None
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """What one container was given.

    Attributes:
        position: Its place among all entries, empty ones counted.
        devices: The readable ones.
        is_empty: Nothing but blanks stood there; an entry that only held unreadable devices is not empty,
            since HAMi wrote it for some container.
    """

    position: int
    devices: tuple[GrantedDevice, ...]
    is_empty: bool


@dataclass(frozen=True, slots=True)
class PodDevices:
    """A whole annotation.

    Attributes:
        entries: All, in order, empty ones too.
        errors: What could not be read.
    """

    entries: tuple[Entry, ...]
    errors: tuple[Flaw, ...]

    @property
    def filled(self) -> tuple[Entry, ...]:
        """The entries that HAMi wrote for some container."""
        return tuple(entry for entry in self.entries if not entry.is_empty)

    @property
    def all_consumed(self) -> bool:
        """Nothing is left to allocate (for `…-to-allocate`): `;`, `;;` and so on."""
        return not self.filled


def parse_pod_devices(text: str) -> PodDevices:
    """Read an allocation annotation; never raises."""
    errors: list[Flaw] = []
    items = _bounded(text.strip(), errors).split(";")
    if not items[-1].strip():
        items.pop()  # the terminator's empty rest; further empty items are real, empty entries
    entries = tuple(_entry(position, item, errors) for position, item in enumerate(items))
    return PodDevices(entries, tuple(errors))


def _bounded(text: str, errors: list[Flaw]) -> str:
    """The text up to the most segments that are read."""
    ends = _SEGMENT_END.finditer(text)
    last = next(islice(ends, MAX_SEGMENTS - 1, None), None)
    if last is None or last.end() == len(text):
        return text
    detail = f"there are more than {MAX_SEGMENTS} entries and devices; the rest is not read"
    errors.append(flaw(KIND, text[last.end() :], "too_many", detail))
    return text[: last.end()]


def _entry(position: int, item: str, errors: list[Flaw]) -> Entry:
    devices: list[GrantedDevice] = []
    is_empty = True
    for raw in item.split(":"):
        segment = raw.strip()
        fields = tuple(field.strip() for field in segment.split(","))
        if _is_blank(fields):
            continue
        is_empty = False
        device = _device(segment, fields, errors)
        if device is not None:
            devices.append(device)
    return Entry(position, tuple(devices), is_empty)


def _is_blank(fields: tuple[str, ...]) -> bool:
    """The blank device `,,0,0` of HAMi ≤ 2.5, or nothing at all."""
    return all(field in {"", "0"} for field in fields) and not fields[0]


def _device(segment: str, fields: tuple[str, ...], errors: list[Flaw]) -> GrantedDevice | None:
    if len(fields) < _FIELDS:
        detail = f"a device needs uuid,vendor,memory,cores; there are {len(fields)} fields"
        errors.append(flaw(KIND, segment, "field_count", detail))
        return None
    uuid, vendor = fields[0], fields[1]
    if not uuid:
        errors.append(flaw(KIND, segment, "missing_uuid", "a device without a uuid has an amount"))
        return None
    if not is_text(vendor):
        errors.append(flaw(KIND, segment, "bad_value", "the vendor is no short printable word"))
        return None
    memory_mib, core_percent = whole(fields[2]), whole(fields[3])
    if memory_mib is None or core_percent is None:
        which = f'memory "{fields[2][:20]}"' if memory_mib is None else f'cores "{fields[3][:20]}"'
        errors.append(flaw(KIND, segment, "bad_number", f"{which} is no whole number from 0 to 2147483647"))
        return None
    uuid, mig = _split_mig(segment, uuid, errors)
    if not is_id(uuid):
        errors.append(flaw(KIND, segment, "bad_uuid", "the uuid is not printable, or longer than 128"))
        return None
    return GrantedDevice(uuid, vendor, memory_mib, core_percent, mig, fields[_FIELDS:])


def _split_mig(segment: str, uuid: str, errors: list[Flaw]) -> tuple[str, MigSlot | None]:
    if "[" not in uuid:
        return uuid, None
    match = _MIG_SUFFIX.fullmatch(uuid)
    if match:
        return match["uuid"], MigSlot(int(match["template"]), int(match["slot"]))
    errors.append(flaw(KIND, segment, "bad_mig", "the MIG suffix is not [template-slot]; the card is kept"))
    return uuid.partition("[")[0], None
