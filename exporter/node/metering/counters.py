"""The running counters: what must survive the process, as structs that pack into one row.

Invariant: every number here only grows within one boot, whole units only (ppm·ms, bytes·ms, mJ, ms).
Labels of a slice are kept beside its counters, so that an ended slice can still be shown and closed
after a restart. All of it is written every second, so it is packed without the names of its fields.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from contract.catalogue import UNKNOWN_REASONS
from contract.ids import DeviceUuid, PodUid
from contract.units import MIB
from exporter.node.metering.energy import Board, IdlePower

_MIB_BITS = MIB.bit_length() - 1


class ByteTime(msgspec.Struct, array_like=True, gc=False):
    """An exact integral of bytes over ms; in two numbers, since 64 bits last only days on a big card."""

    mib_ms: int = 0
    rest_byte_ms: int = 0

    @property
    def byte_ms(self) -> int:
        """The whole integral."""
        return self.mib_ms * MIB + self.rest_byte_ms

    def add(self, byte_ms: int) -> None:
        """Grow by bytes × ms."""
        rest = self.rest_byte_ms + byte_ms
        self.mib_ms += rest >> _MIB_BITS
        self.rest_byte_ms = rest & (MIB - 1)


class Labels(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a page writes beside a slice's numbers, and what names it in facts."""

    namespace: str
    pod: str
    container: str
    tenant: str
    model: str
    vendor: str = "NVIDIA"


class OwnerKey(NamedTuple):
    """Who a process's use belongs to on one device; the cluster is the exporter's own."""

    pod_uid: PodUid
    container: str
    device_uuid: DeviceUuid
    is_slice: bool
    """False: a known pod without an allocation on the device (unallocated use)."""


class OwnerCounters(msgspec.Struct, kw_only=True, array_like=True):
    """Counters of one (pod, container, device): a slice, or a pod that uses the device past HAMi.

    Attributes:
        is_measured: A source that could measure it was there once; before that nothing was "used".
        is_sm_measured: The same for its SM time.
        allocated_until_ms: Up to where granted memory was integrated, Unix ms; None before binding.
        held_from_ms: From where granted memory was integrated on, Unix ms.
        created_ms: When the other counters began at 0, Unix ms.
        ended_boot_ms: When it was found to be held no more, on the boot clock; None while held.
    """

    pod_uid: PodUid
    container: str
    device_uuid: DeviceUuid
    labels: Labels
    is_slice: bool
    sm_ppm_ms: int = 0
    memory_used: ByteTime = msgspec.field(default_factory=ByteTime)
    memory_allocated: ByteTime = msgspec.field(default_factory=ByteTime)
    allocated_until_ms: int | None = None
    memory_peak_bytes: int = 0
    energy_active_mj: int = 0
    energy_idle_mj: int = 0
    blocked_ms: int = 0
    over_limit_ms: int = 0
    unknown_ms: dict[str, int] = msgspec.field(default_factory=lambda: dict.fromkeys(UNKNOWN_REASONS, 0))
    is_measured: bool = False
    is_sm_measured: bool = False
    ended_boot_ms: int | None = None
    held_from_ms: int | None = None
    created_ms: int = 0

    @property
    def key(self) -> OwnerKey:
        """What it is found by."""
        return OwnerKey(self.pod_uid, self.container, self.device_uuid, self.is_slice)


class DeviceCounters(msgspec.Struct, kw_only=True, array_like=True):
    """Counters of one device since `created_ms` (Unix time), and the anchor of its energy counter.

    Attributes:
        open_ms: Time of the window that is still open; what was used in it is not given out yet.
        open_energy_mj: The energy of that time.
    """

    device_uuid: DeviceUuid
    busy_ppm_ms: int = 0
    sm_unattributed_ppm_ms: int = 0
    energy_mj: int = 0
    energy_unattributed_mj: int = 0
    board: Board = msgspec.field(default_factory=Board)
    idle_power: IdlePower = msgspec.field(default_factory=IdlePower)
    is_measured: bool = False
    is_sm_measured: bool = False
    has_energy: bool = False
    created_ms: int = 0
    open_ms: int = 0
    open_energy_mj: int = 0


class TenantCounters(msgspec.Struct, kw_only=True, array_like=True):
    """What a tenant's slices used on the node since `created_ms` (Unix time), ended slices included."""

    tenant: str
    model: str
    sm_ppm_ms: int = 0
    energy_mj: int = 0
    is_measured: bool = False
    created_ms: int = 0
