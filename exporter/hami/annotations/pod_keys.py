"""The short annotations on pods and nodes: bind phase, times, chosen node, cordon, vendors' keys.

Invariant: a value that cannot be read is None with a flaw beside it, so that a missing and a bad value are
told apart.

Source: `reference/hami-kubernetes.md §2.3, §3.6, §6, §12`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from exporter.hami.annotations.flaw import Flaw, Kind, flaw
from exporter.hami.annotations.scalars import is_id

KIND: Kind = "pod-keys"
CORDON_KIND: Kind = "device-cordon"

ALLOCATED_KEY = "hami.io/vgpu-devices-allocated"
VOLCANO_ALLOCATED_KEY = "volcano.sh/vgpu-ids-new"
CORDON_KEY = "hami.io/device-cordon"

BindPhase: TypeAlias = Literal["allocating", "success", "failed"]
BIND_PHASES = ("allocating", "success", "failed")

_VENDOR_KEY = re.compile(r"hami\.io/(?P<family>.+)-devices-allocated", re.ASCII)
_KUNLUN_KEY = "hami.io/kunlun-allocated"
_SECONDS = re.compile(r"[0-9]{1,11}", re.ASCII)
_NO_TIME = 2**64 - 1  # Volcano writes it into vgpu-time after the allocation


@dataclass(frozen=True, slots=True)
class PodKeys:
    """What HAMi noted on a pod besides the devices.

    Attributes:
        node: The node that Filter chose; it may be stale.
        filtered_at_ms: `vgpu-time`: the last successful Filter.
        bound_at_ms: `bind-time`: when Bind had the lock; may be older than `filtered_at_ms`.
        bind_phase: `allocating` for ever under a mock plugin.
        errors: What could not be read.
    """

    node: str | None
    filtered_at_ms: int | None
    bound_at_ms: int | None
    bind_phase: BindPhase | None
    errors: tuple[Flaw, ...]


def parse_pod_keys(annotations: Mapping[str, str]) -> PodKeys:
    """Read HAMi's short keys; Volcano's stand in where HAMi's are missing."""
    errors: list[Flaw] = []

    def value(name: str) -> str | None:
        return annotations.get(f"hami.io/{name}", annotations.get(f"volcano.sh/{name}"))

    def time_ms(name: str) -> int | None:
        text = value(name)
        if text is None or text == str(_NO_TIME):
            return None
        if _SECONDS.fullmatch(text):
            return int(text) * 1000
        errors.append(flaw(KIND, text, "bad_time", f"{name} is no time in Unix seconds"))
        return None

    phase = value("bind-phase")
    if phase is not None and phase not in BIND_PHASES:
        errors.append(flaw(KIND, phase, "bad_value", f"bind-phase is none of {', '.join(BIND_PHASES)}"))
        phase = None
    return PodKeys(
        node=value("vgpu-node") or None,
        filtered_at_ms=time_ms("vgpu-time"),
        bound_at_ms=time_ms("bind-time"),
        bind_phase=cast("BindPhase | None", phase),
        errors=tuple(errors),
    )


def parse_device_cordon(text: str) -> tuple[tuple[str, ...], tuple[Flaw, ...]]:
    """The cordoned uuids (a comma list; blanks are tolerated), and what is none."""
    uuids: list[str] = []
    errors: list[Flaw] = []
    for piece in (part.strip() for part in text.split(",")):
        if not piece:
            continue
        if is_id(piece):
            uuids.append(piece)
        else:
            errors.append(flaw(CORDON_KIND, piece, "bad_uuid", "a cordoned uuid is no short printable text"))
    return tuple(dict.fromkeys(uuids)), tuple(errors)


def allocation_keys(annotations: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The annotations that carry allocations, with their device family, NVIDIA's (`vgpu`) first."""
    families: dict[str, str] = {}
    for key in annotations:
        match = _VENDOR_KEY.fullmatch(key)
        if match or key == _KUNLUN_KEY:
            families[key] = match["family"] if match else "kunlun"
    if VOLCANO_ALLOCATED_KEY in annotations and ALLOCATED_KEY not in families:
        families[VOLCANO_ALLOCATED_KEY] = "vgpu"
    return tuple(sorted(families.items(), key=lambda item: (item[1] != "vgpu", item[0])))
