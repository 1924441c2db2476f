"""In what state a card is: ECC errors, row remapping, what holds its clocks down, power, XID errors.

Invariant: a figure that the card does not have is None for good, one that failed is None this time.
Each card has an event set of its own, so that a lost one keeps no other's errors back.
Source: `reference/metering.md §2`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from contract.catalogue import THROTTLE_REASONS
from exporter.nvidia.asking import Asker, Card, number_of
from exporter.nvidia.source import XidEvent

_CORRECTED, _UNCORRECTED = 0, 1
_SINCE_DRIVER_LOAD: Final = 0
_IS_PENDING: Final = 2

_POWER_AVERAGE: Final = 185
"""NVML_FI_DEV_POWER_AVERAGE: mean of one second, mW; Ampere and newer, without GA100."""
_THROTTLING: Final = dict(zip((74, 76, 269, 270, 271), THROTTLE_REASONS, strict=True))
"""NVML_FI_DEV_CLOCKS_EVENT_REASON_*: ns since the driver was loaded."""

_XID_CRITICAL_ERROR: Final = 8
_TIMEOUT: Final = 10
_MOST_EVENTS: Final = 1_000
"""A driver that reports without end must not hold up the tick; the rest comes at the next."""


@dataclass(frozen=True, slots=True)
class FieldValues:
    """What one question for several fields brought; a field that the card does not know is missing."""

    power_mw: int | None = None
    throttle_ns: tuple[tuple[str, int], ...] | None = None


def field_values(asker: Asker) -> FieldValues:
    """Mean power, and the time in which clocks were held down."""
    nvml, handle = asker.nvml, asker.card.handle
    wanted = [_POWER_AVERAGE, *_THROTTLING]
    found = asker.ask("field values", lambda: nvml.nvmlDeviceGetFieldValues(handle, wanted))
    if found is None:
        return FieldValues()
    values = {
        each.fieldId: number
        for each in found
        if each.nvmlReturn == 0 and (number := number_of(each.valueType, each.value)) is not None
    }
    throttle = tuple((reason, values[field]) for field, reason in _THROTTLING.items() if field in values)
    return FieldValues(values.get(_POWER_AVERAGE), throttle or None)


def ecc_errors(asker: Asker) -> tuple[int | None, int | None]:
    """Corrected and uncorrected errors since the driver was loaded."""
    nvml, handle = asker.nvml, asker.card.handle

    def of(kind: int) -> int | None:
        count: int | None = asker.ask(
            "ECC errors", lambda: nvml.nvmlDeviceGetTotalEccErrors(handle, kind, _SINCE_DRIVER_LOAD)
        )
        return count

    return of(_CORRECTED), of(_UNCORRECTED)


def has_remapped_rows_pending(asker: Asker) -> bool | None:
    """Whether a row remapping waits for a reset."""
    nvml, handle = asker.nvml, asker.card.handle
    rows = asker.ask("remapped rows", lambda: nvml.nvmlDeviceGetRemappedRows(handle))
    return None if rows is None else bool(rows[_IS_PENDING])


def fetch_xids(asker: Asker, now_ms: int) -> None:
    """Take the XID errors that came since the last read into the card's list, without waiting for one.

    Args:
        asker: Asks the card.
        now_ms: Unix milliseconds: NVML gives its events no time.
    """
    nvml, card = asker.nvml, asker.card
    if card.events is None:
        card.events = asker.ask("XID events", lambda: _watch(nvml, card.handle))
    if card.events is None:
        return
    for _ in range(_MOST_EVENTS):
        event = asker.ask("next XID event", lambda: _next(nvml, card.events))
        if not event:
            return
        card.xids.append(XidEvent(int(event.eventData), now_ms))


def hand_out_xids(card: Card) -> tuple[XidEvent, ...] | None:
    """What was fetched, once; None when the card reports no errors."""
    if card.events is None and not card.xids:
        return None
    given, card.xids = tuple(card.xids), []
    return given


def unwatch(nvml: ModuleType, card: Card) -> None:
    """Let go of the card's event set."""
    events, card.events = card.events, None
    if events is not None:
        _free(nvml, events)


def _watch(nvml: ModuleType, handle: Any) -> Any:
    events = nvml.nvmlEventSetCreate()
    try:
        nvml.nvmlDeviceRegisterEvents(handle, _XID_CRITICAL_ERROR, events)
    except nvml.NVMLError:
        _free(nvml, events)
        raise
    return events


def _next(nvml: ModuleType, events: Any) -> Any:
    """The next event; False when none waits."""
    try:
        return nvml.nvmlEventSetWait_v2(events, 0)
    except nvml.NVMLError as error:
        if error.value == _TIMEOUT:
            return False
        raise


def _free(nvml: ModuleType, events: Any) -> None:
    try:
        nvml.nvmlEventSetFree(events)
    except nvml.NVMLError:
        # It goes with the driver then.
        return
