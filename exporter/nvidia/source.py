"""What a device source gives the sampler each tick: readings of every card, or a typed failure.

NVML (`exporter/nvidia/nvml.py`) and the lab's simulated cards stand behind this one interface, so the
meter never knows which it reads. Invariants: `None` means "not measured" (never 0); an empty tuple
means "measured, nothing there"; a source keeps its own last-seen stamps, so records come once.

Facts about the calls: `reference/metering.md §2`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec

from contract.ids import DeviceUuid
from exporter.errors import ExporterError

PROCESS_UTILIZATION = ("utilization of processes (newer call)", "utilization of processes")
"""What the calls for the records of processes go by in `failed_calls`."""


class SourceDownError(ExporterError):
    """The whole source is gone (no driver, no library); try `open` again later, with back-off."""


class ProcessMemory(msgspec.Struct, frozen=True, gc=False):
    """A process on a device: host pid and its memory in bytes (None: the driver does not say).

    Attributes:
        gpu_instance_id: The MIG instance it runs on; None without MIG.
        compute_instance_id: Its part of that instance.
    """

    pid: int
    used_bytes: int | None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


class UtilizationSample(msgspec.Struct, frozen=True, gc=False):
    """One process's SM use, valid over (previous stamp of the device, this stamp].

    Attributes:
        pid: Host pid.
        stamp_us: End of the sample, microseconds of the driver's clock (Unix epoch).
        sm_percent: Share of the whole card, 0-100 when plausible; the meter checks it.
    """

    pid: int
    stamp_us: int
    sm_percent: int


class BusySample(msgspec.Struct, frozen=True, gc=False):
    """The whole device's SM-busy share, valid over (previous stamp, this stamp]."""

    stamp_us: int
    busy_percent: int


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One XID error that the driver reported; `at_ms` = when it was fetched, Unix milliseconds."""

    code: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class MigInstance:
    """One MIG instance of a card.

    Attributes:
        profile: The driver's own word for its size (`1g.10gb`); empty where it has none.
        memory_used_bytes: 0 while no process runs on it; None = not known.
    """

    uuid: str
    profile: str
    gpu_instance_id: int
    compute_instance_id: int
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """One card at one tick. Every value but the identity may be None: not measured or not supported.

    Attributes:
        uuid: What the card is found by. Of two cards with one UUID the second has `UUID@PCI-ADDRESS`.
        has_repeated_uuid: It is such a second card.
        pci_address: Where it sits (`00000000:3B:00.0`); empty when the driver does not say.
        mode: `mig` while MIG is on, else `hami-core`.
        utilization: Records since the last read; empty = the call was healthy and nobody used the
            card; None = the call failed or is not supported, so SM time is unknown.
        busy: The same for the whole device; None = no busy figure (Σ processes is used instead).
        power_mw: Mean of the last second where the driver has it, else the board's plain figure.
        ecc_corrected: Errors since the driver was loaded.
        ecc_uncorrected: The same for those that could not be corrected.
        has_remapped_rows_pending: A row remapping waits for a reset.
        throttle_ns: Time in which clocks were held down since the driver was loaded, by reason; a reason
            that the card does not know is missing.
        xids: Errors reported since the last read; None = the card reports none.
        mig: Instances of a card in MIG mode; None = MIG is off, or it could not be asked.
        failed_calls: What failed this time although the card can do it; those values are unknown.
        failure: Why the device is not healthy (`gpu_is_lost`, …); None = healthy.
    """

    uuid: DeviceUuid
    index: int
    model: str
    driver_version: str = ""
    mode: str = "hami-core"
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    utilization_percent: int | None = None
    memory_utilization_percent: int | None = None
    processes: tuple[ProcessMemory, ...] | None = None
    utilization: tuple[UtilizationSample, ...] | None = None
    busy: tuple[BusySample, ...] | None = None
    energy_mj: int | None = None
    power_mw: int | None = None
    power_limit_mw: int | None = None
    temperature_celsius: int | None = None
    sm_clock_hz: int | None = None
    memory_clock_hz: int | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    has_remapped_rows_pending: bool | None = None
    throttle_ns: tuple[tuple[str, int], ...] | None = None
    xids: tuple[XidEvent, ...] | None = None
    mig: tuple[MigInstance, ...] | None = None
    pci_address: str = ""
    has_repeated_uuid: bool = False
    failed_calls: tuple[str, ...] = ()
    failure: str | None = None

    @property
    def has_lost_utilization(self) -> bool:
        """Whether the records of processes failed this time although the card can give them."""
        return any(call in PROCESS_UTILIZATION for call in self.failed_calls)


class DeviceSource(Protocol):
    """Where device readings come from."""

    @property
    def name(self) -> str:
        """The collector's name on the page (`nvml`)."""
        ...

    def open(self) -> None:
        """Make ready; raises `SourceDownError` when there is no driver."""
        ...

    def read(self) -> tuple[DeviceReading, ...]:
        """Read every card once; raises `SourceDownError` when the source as a whole failed."""
        ...

    def close(self) -> None:
        """Let go of every handle; `open` may follow."""
        ...
