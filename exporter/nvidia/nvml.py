"""NVML through pynvml: the one module that imports it, inside `open`, because the import costs memory.

Invariant: every failed call is told apart into one of four meanings (idle, cannot, this card is gone,
the whole source is gone) or else means "unknown": its value is None, never 0. Values are handed on as
NVML gave them; the meter checks them. One thread owns the source.
Facts about the calls and their errors: `reference/metering.md` sections 2 and 3.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, Final

from contract.ids import DeviceUuid
from exporter.nvidia.source import (
    BusySample,
    DeviceReading,
    ProcessMemory,
    SourceDownError,
    UtilizationSample,
)

_log = logging.getLogger(__name__)

# nvmlReturn_t, the same numbers since NVML has them.
_SUCCESS: Final = 0
_INVALID_ARGUMENT: Final = 2
_NOT_FOUND: Final = 6
_INSUFFICIENT_SIZE: Final = 7
_CANNOT: Final = {3, 13, 25}
"""Not supported, function not found, argument version mismatch: stable until the driver changes."""
_GONE: Final = {15: "gpu_is_lost", 16: "reset_required"}
_DOWN: Final = {
    1: ("uninitialized", "NVML was shut down"),
    9: ("driver_not_loaded", "no NVIDIA driver is loaded"),
    12: ("library_not_found", "libnvidia-ml.so.1 is not on the library path; mount the driver's libraries"),
    18: ("lib_rm_version_mismatch", "library and kernel driver differ; the driver was updated, reboot"),
}

_MEMORY_V2: Final = 0x02000028
_GPU_UTILIZATION_SAMPLES: Final = 1
_TEMPERATURE_GPU: Final = 0
_CLOCK_SM: Final = 1
_CLOCK_MEMORY: Final = 2
_HZ_PER_MHZ: Final = 1_000_000
_VALUE_FIELDS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""nvmlValue_t's member by nvmlValueType_t."""
_FIRST_LOOK_US: Final = 1_000_000
"""Asking from 0 would average over the driver's whole buffer; one second back is one sample period."""
_PROCESS_LISTS: Final = (
    ("compute processes", "nvmlDeviceGetComputeRunningProcesses_v3"),
    ("graphics processes", "nvmlDeviceGetGraphicsRunningProcesses_v3"),
    ("MPS processes", "nvmlDeviceGetMPSComputeRunningProcesses_v3"),
)
_UTILIZATION_NEWER: Final = "utilization of processes (newer call)"


class _CardGoneError(Exception):
    """This card cannot be asked any more; the others can."""


@dataclass(slots=True)
class _Card:
    """What is remembered of a card from tick to tick.

    Attributes:
        handle: NVML's handle, None once the card fell off the bus.
        cannot: Calls that this card or driver does not support.
        utilization_us: Newest stamp of the process records.
        counted: Records that were handed out at that stamp, for NVML repeats them.
        busy_us: Newest stamp of the busy samples.
    """

    uuid: DeviceUuid
    index: int
    model: str
    handle: Any
    utilization_us: int
    busy_us: int
    counted: set[tuple[int, int]] = field(default_factory=set)
    cannot: set[str] = field(default_factory=set)
    lost: str | None = None


class NvmlSource:
    """Every NVIDIA card of the node, read through NVML."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives Unix time in seconds, the clock of NVML's stamps."""
        self._clock = clock
        self._nvml: ModuleType | None = None
        self._cards: dict[DeviceUuid, _Card] = {}
        self._driver_version = ""
        self._handles_are_stale = False

    @property
    def name(self) -> str:
        """The collector's name on the page."""
        return "nvml"

    def open(self) -> None:
        """Initialise NVML and find the cards.

        Raises:
            SourceDownError: No pynvml, no driver, or NVML does not start.
        """
        nvml = _import_pynvml()
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise _down(error.value, f"nvmlInit failed: {error}") from error
        self._nvml = nvml
        try:
            self._driver_version = str(nvml.nvmlSystemGetDriverVersion())
            self._find_cards(nvml)
        except nvml.NVMLError as error:
            self.close()
            raise _down(error.value, f"cards cannot be listed: {error}") from error
        except SourceDownError:
            self.close()
            raise

    def read(self) -> tuple[DeviceReading, ...]:
        """Read every card once; one that is gone has a `failure` and no values.

        Raises:
            SourceDownError: NVML as a whole is gone, or `open` was not called.
        """
        nvml = self._nvml
        if nvml is None:
            raise SourceDownError("uninitialized", "nvml: not open")
        if self._handles_are_stale:
            try:
                self._find_cards(nvml)
            except nvml.NVMLError as error:
                raise _down(error.value, f"cards cannot be listed: {error}") from error
        return tuple(self._read_card(nvml, card) for card in self._cards.values())

    def close(self) -> None:
        """Shut NVML down, so that MIG can be reconfigured; what was learned about cards is forgotten."""
        nvml, self._nvml = self._nvml, None
        self._cards = {}
        if nvml is not None:
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError as error:
                _log.info("nvml: shutdown failed, which changes nothing: %s", error)

    def _find_cards(self, nvml: ModuleType) -> None:
        """Enumerate; a card known before keeps its stamps, one that is not found any more is lost."""
        now_us = int(self._clock() * 1e6)
        found: set[DeviceUuid] = set()
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid, model = DeviceUuid(nvml.nvmlDeviceGetUUID(handle)), nvml.nvmlDeviceGetName(handle)
            except nvml.NVMLError as error:
                if error.value in _DOWN:
                    raise
                _log.warning("nvml: card %d cannot be asked for its name: %s", index, error)
                continue
            if uuid in found:
                _log.warning("nvml: card %d repeats the UUID %s and is left out", index, uuid)
                continue
            found.add(uuid)
            anchor_us = now_us - _FIRST_LOOK_US
            known = self._cards.setdefault(uuid, _Card(uuid, index, model, handle, anchor_us, anchor_us))
            known.index, known.handle, known.lost = index, handle, None
        for uuid in self._cards.keys() - found:
            self._cards[uuid].lost = "gpu_is_lost"
        self._handles_are_stale = False

    def _read_card(self, nvml: ModuleType, card: _Card) -> DeviceReading:
        try:
            if card.lost is not None:
                raise _CardGoneError(card.lost)  # noqa: TRY301 -- one place makes the reading of a lost card
            return self._reading(nvml, card)
        except _CardGoneError as gone:
            # It may come back under another handle.
            self._handles_are_stale = True
            return DeviceReading(
                uuid=card.uuid,
                index=card.index,
                model=card.model,
                driver_version=self._driver_version,
                failure=str(gone),
            )

    def _reading(self, nvml: ModuleType, card: _Card) -> DeviceReading:
        def ask(what: str, call: Callable[[], Any]) -> Any:
            return self._ask(nvml, card, what, call)

        handle = card.handle
        memory = ask("memory v2", lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=_MEMORY_V2))
        if memory is None and "memory v2" in card.cannot:
            memory = ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        rates = ask("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        limits = ask("power limits", lambda: nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle))
        mig = ask("MIG mode", lambda: nvml.nvmlDeviceGetMigMode(handle))
        return DeviceReading(
            uuid=card.uuid,
            index=card.index,
            model=card.model,
            driver_version=self._driver_version,
            mode="mig" if mig is not None and mig[0] else "hami-core",
            memory_total_bytes=getattr(memory, "total", None),
            memory_free_bytes=getattr(memory, "free", None),
            memory_used_bytes=getattr(memory, "used", None),
            memory_reserved_bytes=getattr(memory, "reserved", None),
            utilization_percent=getattr(rates, "gpu", None),
            processes=self._processes(nvml, card),
            utilization=self._utilization(nvml, card),
            busy=self._busy(nvml, card),
            energy_mj=ask("energy", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle)),
            power_mw=ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle)),
            power_limit_mw=None if limits is None else limits[1],
            temperature_celsius=ask(
                "temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU)
            ),
            sm_clock_hz=_hertz(ask("SM clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_SM))),
            memory_clock_hz=_hertz(
                ask("memory clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_MEMORY))
            ),
        )

    def _processes(self, nvml: ModuleType, card: _Card) -> tuple[ProcessMemory, ...] | None:
        """Compute, graphics and MPS processes; one on several lists has the largest figure of them."""
        used: dict[int, int | None] = {}
        supported = False
        for what, name in _PROCESS_LISTS:
            records = self._ask(nvml, card, what, partial(getattr(nvml, name), card.handle), idle=())
            if records is None:
                if what not in card.cannot:
                    return None
                continue
            supported = True
            for record in records:
                known = used.get(record.pid)
                figures = [each for each in (known, record.usedGpuMemory) if each is not None]
                used[record.pid] = max(figures, default=None)
        return tuple(ProcessMemory(pid, used[pid]) for pid in sorted(used)) if supported else None

    def _utilization(self, nvml: ModuleType, card: _Card) -> tuple[UtilizationSample, ...] | None:
        """Records since the last read. One stamp is asked for again, so that none between is lost."""
        since_us, handle = card.utilization_us - 1, card.handle
        # The newer call is the only one that answers on some Blackwell cards; older drivers lack it.
        records = self._ask(
            nvml,
            card,
            _UTILIZATION_NEWER,
            lambda: nvml.nvmlDeviceGetProcessesUtilizationInfo(handle, since_us),
            idle=(),
        )
        if records is None and _UTILIZATION_NEWER in card.cannot:
            records = self._ask(
                nvml,
                card,
                "utilization of processes",
                lambda: nvml.nvmlDeviceGetProcessUtilization(handle, since_us),
                idle=(),
            )
        if records is None:
            return None
        fresh = {
            (record.pid, record.timeStamp): UtilizationSample(record.pid, record.timeStamp, record.smUtil)
            for record in records
            if record.timeStamp > since_us and (record.pid, record.timeStamp) not in card.counted
        }
        newest_us = self._newest(card.utilization_us, (stamp_us for _, stamp_us in fresh))
        if newest_us > card.utilization_us:
            card.counted.clear()
        card.counted |= {key for key in fresh if key[1] >= newest_us}
        card.utilization_us = newest_us
        return tuple(sorted(fresh.values(), key=lambda sample: (sample.stamp_us, sample.pid)))

    def _busy(self, nvml: ModuleType, card: _Card) -> tuple[BusySample, ...] | None:
        """Samples of the whole card since the last read; an idle card can run the buffer dry."""
        found = self._ask(
            nvml,
            card,
            "utilization samples",
            lambda: nvml.nvmlDeviceGetSamples(card.handle, _GPU_UTILIZATION_SAMPLES, card.busy_us),
            idle=(0, ()),
        )
        if found is None:
            return None
        kind, samples = found
        if kind >= len(_VALUE_FIELDS):
            return None
        stamped = {}
        for sample in samples:
            value = getattr(sample.sampleValue, _VALUE_FIELDS[kind])
            if sample.timeStamp > card.busy_us and math.isfinite(value):
                stamped[sample.timeStamp] = BusySample(sample.timeStamp, round(value))
        card.busy_us = self._newest(card.busy_us, stamped)
        return tuple(stamped[stamp_us] for stamp_us in sorted(stamped))

    def _newest(self, known_us: int, stamps_us: Iterable[int]) -> int:
        """The newest stamp that is not in the future: one absurd record must not silence the next ones."""
        latest_us = int(self._clock() * 1e6) + _FIRST_LOOK_US
        return max([known_us, *(stamp_us for stamp_us in stamps_us if stamp_us <= latest_us)])

    def _ask(
        self, nvml: ModuleType, card: _Card, what: str, call: Callable[[], Any], idle: Any = None
    ) -> Any:
        """What `call` gives; None = unknown this time, or never known on this card.

        Args:
            nvml: pynvml.
            card: Whom `call` asks.
            what: Under which name to remember that the card cannot answer.
            call: The question.
            idle: The answer when a healthy call found that nobody used the card.
        """
        if what in card.cannot:
            return None
        code = _INSUFFICIENT_SIZE
        for _ in range(2):
            try:
                return call()
            except nvml.NVMLError as error:
                code = error.value
                if code != _INSUFFICIENT_SIZE:
                    break
                # A process appeared between the question for the size and the one for the records.
        if code in {_SUCCESS, _NOT_FOUND} and idle is not None:
            return idle
        if code in _CANNOT:
            card.cannot.add(what)
            _log.info("nvml: %s (%s) has no %s; not asked again", card.uuid, card.model, what)
        elif code in _DOWN:
            raise _down(code, f"{what} of {card.uuid} failed")
        elif code in _GONE:
            raise _CardGoneError(_GONE[code])
        elif code in {_INVALID_ARGUMENT, _NOT_FOUND}:
            # A handle that used to work: MIG was re-sliced, or the card came back.
            self._handles_are_stale = True
        return None


def _import_pynvml() -> ModuleType:
    """Import pynvml and give back what the import took and does not need any more."""
    try:
        nvml = importlib.import_module("pynvml")
    except ModuleNotFoundError as error:
        raise SourceDownError(
            "pynvml_missing", 'nvml: pynvml is not installed; pip install "slicemeter[exporter]"'
        ) from error
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc alone has it
        trim(0)
    return nvml


def _down(code: int, what: str) -> SourceDownError:
    reason, way_out = _DOWN.get(code, ("nvml_error", f"NVML answered {code}; see the driver's log (dmesg)"))
    return SourceDownError(reason, f"nvml: {what}: {way_out}")


def _hertz(value_mhz: int | None) -> int | None:
    return None if value_mhz is None else value_mhz * _HZ_PER_MHZ
