"""One question to the driver, and what it means when it fails.

Invariant: every failed call is told apart into one of four meanings (idle, cannot, this card is gone,
the whole source is gone) or else means "unknown": its value is None, never 0. What a card cannot is
asked once. Source: `reference/metering.md §2`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from contract.ids import DeviceUuid
from exporter.nvidia.source import SourceDownError, XidEvent

_log = logging.getLogger(__name__)

# nvmlReturn_t, the same numbers since NVML has them.
_SUCCESS: Final = 0
_INVALID_ARGUMENT: Final = 2
_NOT_FOUND: Final = 6
_INSUFFICIENT_SIZE: Final = 7
_CANNOT: Final = {3, 13, 25}
"""Not supported, function not found, argument version mismatch: stable until the driver changes."""
_GONE: Final = {15: "gpu_is_lost", 16: "reset_required"}
DOWN: Final = {
    1: ("uninitialized", "NVML was shut down"),
    9: ("driver_not_loaded", "no NVIDIA driver is loaded"),
    12: ("library_not_found", "libnvidia-ml.so.1 is not on the library path; mount the driver's libraries"),
    18: ("lib_rm_version_mismatch", "library and kernel driver differ; the driver was updated, reboot"),
}
"""Codes by which the whole source is gone: our word, and the way out."""

_VALUE_FIELDS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""nvmlValue_t's member by nvmlValueType_t."""


class CardGoneError(Exception):
    """This card cannot be asked any more; the others can."""


@dataclass(frozen=True, slots=True)
class ListedInstance:
    """A MIG instance, its handle, and what stays the same for as long as it lives."""

    handle: Any
    uuid: str
    profile: str
    gpu_instance_id: int
    compute_instance_id: int
    memory_total_bytes: int | None


@dataclass(slots=True)
class MigListing:
    """A card's MIG instances and when they were listed, on the monotonic clock; None = not yet."""

    instances: tuple[ListedInstance, ...] = ()
    listed_at_s: float | None = None


@dataclass(slots=True)
class Card:
    """What is remembered of a card from tick to tick.

    Attributes:
        name: What its readings are called by: its UUID, made unique on the node.
        handle: NVML's handle; that of a lost card is not used.
        mig: Its MIG instances as they were listed last.
        events: Its event set; None while there is none.
        xids: Errors taken from the set and not handed out yet.
        is_mig: MIG was on at the last read.
        worked: Calls that it has answered.
        cannot: Calls that this card or driver does not support.
        failing: Calls that failed at the last read, so that each is logged once.
        utilization_us: Newest stamp of the process records.
        counted: Records that were handed out at that stamp, for NVML repeats them.
        busy_us: Newest stamp of the busy samples.
        lost: Why it cannot be asked; None = it can.
    """

    name: DeviceUuid
    uuid: str
    pci_address: str
    index: int
    model: str
    handle: Any
    utilization_us: int
    busy_us: int
    counted: set[tuple[int, int]] = field(default_factory=set)
    worked: set[str] = field(default_factory=set)
    cannot: set[str] = field(default_factory=set)
    failing: set[str] = field(default_factory=set)
    mig: MigListing = field(default_factory=MigListing)
    is_mig: bool = False
    events: Any = None
    xids: list[XidEvent] = field(default_factory=list)
    lost: str | None = None


class Asker:
    """Asks one card at a time.

    Attributes:
        nvml: pynvml.
        card: Whom it asks.
        failed: Calls that failed so far, neither idle nor impossible.
        has_doubts: A handle that used to work does not: cards must be listed anew.
    """

    def __init__(self, nvml: ModuleType, card: Card) -> None:
        self.nvml = nvml
        self.card = card
        self.failed: list[str] = []
        self.has_doubts = False

    def ask(self, what: str, call: Callable[[], Any], idle: Any = None) -> Any:
        """What `call` gives; None = unknown this time, or never known on this card.

        Args:
            what: Under which name to remember that the card cannot answer.
            call: The question.
            idle: The answer when a healthy call found nothing.

        Raises:
            CardGoneError: The card was lost or needs a reset.
            SourceDownError: The whole source is gone.
        """
        if what in self.card.cannot:
            return None
        code = _INSUFFICIENT_SIZE
        for _ in range(2):
            try:
                answer = call()
            except self.nvml.NVMLError as error:
                code = error.value
                if code != _INSUFFICIENT_SIZE:
                    break
                # A process appeared between the question for the size and the one for the records.
            else:
                self.card.worked.add(what)
                return answer
        if code in {_SUCCESS, _NOT_FOUND} and idle is not None:
            return idle
        self._judge(code, what)
        return None

    def lacks(self, what: str) -> bool:
        """Whether the card cannot answer this at all."""
        return what in self.card.cannot

    def _judge(self, code: int, what: str) -> None:
        card = self.card
        if code in _CANNOT:
            card.cannot.add(what)
            _log.info("nvml: %s (%s) has no %s; not asked again", card.name, card.model, what)
            return
        if code in DOWN:
            raise down(code, f"{what} of {card.name} failed")
        if code in _GONE:
            raise CardGoneError(_GONE[code])
        self.failed.append(what)
        if what not in card.failing:
            _log.warning("nvml: %s of %s failed with code %d; unknown until it works", what, card.name, code)
        if what in card.worked and code in {_INVALID_ARGUMENT, _NOT_FOUND}:
            # The handle used to work: MIG was sliced again, or the card came back under another one.
            self.has_doubts = True


def number_of(kind: int, value: Any) -> int | None:
    """The number in an nvmlValue_t; None for a kind that nobody knows, and for what is no number."""
    if kind >= len(_VALUE_FIELDS):
        return None
    number = getattr(value, _VALUE_FIELDS[kind])
    return round(number) if math.isfinite(number) else None


def down(code: int, what: str) -> SourceDownError:
    """The error that says the whole source is gone."""
    reason, way_out = DOWN.get(code, ("nvml_error", f"NVML answered {code}; see the driver's log (dmesg)"))
    return SourceDownError(reason, f"nvml: {what}: {way_out}")
