"""NVML through pynvml: the one module that imports it, inside `open`, because the import costs memory.

Invariants: a card that fails is its own trouble and hides no other; values are handed on as NVML gave
them, for the node role to check; of two cards with one UUID each has a name of its own. One thread owns
the source. Facts about the calls and their errors: `reference/metering.md §2, §3`.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from contract.ids import DeviceUuid
from exporter.nvidia.asking import DOWN, Asker, Card, CardGoneError, MigListing, down
from exporter.nvidia.condition import (
    ecc_errors,
    fetch_xids,
    field_values,
    hand_out_xids,
    has_remapped_rows_pending,
    unwatch,
)
from exporter.nvidia.mig import instances
from exporter.nvidia.source import DeviceReading, SourceDownError
from exporter.nvidia.usage import FIRST_LOOK_US, busy, memory_of, processes, utilization

_log = logging.getLogger(__name__)

_TEMPERATURE_GPU: Final = 0
_CLOCK_SM: Final = 1
_CLOCK_MEMORY: Final = 2
_HZ_PER_MHZ: Final = 1_000_000

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Found:
    """A card as the driver lists it."""

    index: int
    handle: Any
    uuid: str
    pci_address: str
    model: str


class NvmlSource:
    """Every NVIDIA card of the node, read through NVML."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` gives Unix time in seconds, the clock of NVML's stamps; `monotonic` paces lists."""
        self._clock = clock
        self._monotonic = monotonic
        self._nvml: ModuleType | None = None
        self._cards: dict[DeviceUuid, Card] = {}
        self._driver_version = ""
        self._has_doubts = False
        self._list_again_s = 0.0
        self._pause_s = _FIRST_PAUSE_S

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
            raise down(error.value, f"nvmlInit failed: {error}") from error
        self._nvml, self._pause_s, self._list_again_s = nvml, _FIRST_PAUSE_S, 0.0
        try:
            self._driver_version = str(nvml.nvmlSystemGetDriverVersion())
            self._find_cards(nvml)
        except nvml.NVMLError as error:
            self.close()
            raise down(error.value, f"cards cannot be listed: {error}") from error
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
        if self._has_doubts and self._monotonic() >= self._list_again_s:
            # A card that stays lost must not cost a list at every tick.
            self._list_again_s = self._monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            try:
                self._find_cards(nvml)
            except nvml.NVMLError as error:
                raise down(error.value, f"cards cannot be listed: {error}") from error
        readings = tuple(self._read_card(nvml, card) for card in self._cards.values())
        if not self._has_doubts:
            self._pause_s = _FIRST_PAUSE_S
        return readings

    def close(self) -> None:
        """Shut NVML down, so that MIG can be reconfigured; what was learned about cards is forgotten."""
        nvml, self._nvml = self._nvml, None
        cards, self._cards = self._cards, {}
        if nvml is None:
            return
        for card in cards.values():
            unwatch(nvml, card)
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError as error:
            _log.info("nvml: shutdown failed, which changes nothing: %s", error)

    # Cards

    def _find_cards(self, nvml: ModuleType) -> None:
        """List the cards; one known before keeps its name and stamps, one not found any more is lost."""
        found = list(_listed(nvml))
        before = {(card.pci_address, card.uuid): card for card in self._cards.values()}
        cards: dict[DeviceUuid, Card] = {}
        fresh = []
        for each in found:
            known = before.pop((each.pci_address, each.uuid), None)
            if known is None:
                fresh.append(each)
            else:
                _renew(nvml, known, each)
                cards[known.name] = known
        for each in fresh:
            name = DeviceUuid(each.uuid)
            if name in cards:
                name = DeviceUuid(f"{each.uuid}@{each.pci_address or each.index}")
                _log.warning(
                    "nvml: card %d repeats the UUID %s; it is called %s", each.index, each.uuid, name
                )
            cards[name] = self._new_card(name, each)
        for card in before.values():
            # Another card may have come in its place; the old one is history then.
            if card.name not in cards:
                card.lost = "gpu_is_lost"
                cards[card.name] = card
            unwatch(nvml, card)
        self._cards, self._has_doubts = cards, False

    def _new_card(self, name: DeviceUuid, found: _Found) -> Card:
        anchor_us = int(self._clock() * 1e6) - FIRST_LOOK_US
        return Card(
            name=name,
            uuid=found.uuid,
            pci_address=found.pci_address,
            index=found.index,
            model=found.model,
            handle=found.handle,
            utilization_us=anchor_us,
            busy_us=anchor_us,
        )

    # Readings

    def _read_card(self, nvml: ModuleType, card: Card) -> DeviceReading:
        asker = Asker(nvml, card)
        try:
            if card.lost is not None:
                raise CardGoneError(card.lost)  # noqa: TRY301 -- one place makes the reading of a lost card
            fetch_xids(asker, int(self._clock() * 1_000))
            return self._reading(asker)
        except CardGoneError as gone:
            # It may come back under another handle; until cards are listed again it is not asked.
            card.lost, asker.has_doubts = str(gone), True
            return DeviceReading(
                uuid=card.name,
                index=card.index,
                model=card.model,
                driver_version=self._driver_version,
                mode=_mode(card),
                pci_address=card.pci_address,
                has_repeated_uuid=card.name != card.uuid,
                xids=hand_out_xids(card),
                failure=str(gone),
            )
        finally:
            card.failing = set(asker.failed)
            self._has_doubts = self._has_doubts or asker.has_doubts

    def _reading(self, asker: Asker) -> DeviceReading:
        nvml, card, ask = asker.nvml, asker.card, asker.ask
        handle = card.handle
        mig = ask("MIG mode", lambda: nvml.nvmlDeviceGetMigMode(handle))
        card.is_mig = bool(mig[0]) if mig is not None else card.is_mig and not asker.lacks("MIG mode")
        memory = memory_of(asker, handle)
        limits = ask("power limits", lambda: nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle))
        fields = field_values(asker)
        power_mw = fields.power_mw
        if power_mw is None:
            power_mw = ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        running = processes(asker)
        # On MIG the driver measures no utilization, whatever its answer looks like.
        rates = None
        if not card.is_mig:
            rates = ask("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        latest_us = int(self._clock() * 1e6) + FIRST_LOOK_US
        corrected, uncorrected = ecc_errors(asker)
        return DeviceReading(
            uuid=card.name,
            index=card.index,
            model=card.model,
            driver_version=self._driver_version,
            mode=_mode(card),
            memory_total_bytes=getattr(memory, "total", None),
            memory_free_bytes=getattr(memory, "free", None),
            memory_used_bytes=getattr(memory, "used", None),
            memory_reserved_bytes=getattr(memory, "reserved", None),
            utilization_percent=getattr(rates, "gpu", None),
            memory_utilization_percent=getattr(rates, "memory", None),
            processes=running,
            utilization=None if card.is_mig else utilization(asker, latest_us),
            busy=None if card.is_mig else busy(asker, latest_us),
            energy_mj=ask("energy", lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle)),
            power_mw=power_mw,
            power_limit_mw=None if limits is None else limits[1],
            temperature_celsius=ask(
                "temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU)
            ),
            sm_clock_hz=_hertz(ask("SM clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_SM))),
            memory_clock_hz=_hertz(
                ask("memory clock", lambda: nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_MEMORY))
            ),
            ecc_corrected=corrected,
            ecc_uncorrected=uncorrected,
            has_remapped_rows_pending=has_remapped_rows_pending(asker),
            throttle_ns=fields.throttle_ns,
            xids=hand_out_xids(card),
            mig=instances(asker, running, self._monotonic()) if card.is_mig else None,
            pci_address=card.pci_address,
            has_repeated_uuid=card.name != card.uuid,
            failed_calls=tuple(asker.failed),
        )


def _listed(nvml: ModuleType) -> Iterator[_Found]:
    """The cards that can be asked for their names, in the driver's order."""
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid, model = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
        except nvml.NVMLError as error:
            if error.value in DOWN:
                raise
            _log.warning("nvml: card %d cannot be asked for its name: %s", index, error)
            continue
        yield _Found(index, handle, uuid, _pci_address(nvml, handle), model)


def _pci_address(nvml: ModuleType, handle: Any) -> str:
    try:
        return str(nvml.nvmlDeviceGetPciInfo(handle).busId)
    except nvml.NVMLError as error:
        if error.value in DOWN:
            raise
        return ""


def _renew(nvml: ModuleType, card: Card, found: _Found) -> None:
    """Take up a card that was listed again."""
    if card.lost is not None or _address(card.handle) != _address(found.handle):
        unwatch(nvml, card)
        card.cannot.clear()
    card.index, card.handle, card.lost, card.mig = found.index, found.handle, None, MigListing()


def _mode(card: Card) -> str:
    return "mig" if card.is_mig else "hami-core"


def _address(handle: Any) -> int | None:
    """What a handle points to: pynvml makes a new object for the same card at every call."""
    return ctypes.cast(handle, ctypes.c_void_p).value


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


def _hertz(value_mhz: int | None) -> int | None:
    return None if value_mhz is None else value_mhz * _HZ_PER_MHZ
