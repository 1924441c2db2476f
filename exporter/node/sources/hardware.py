"""What happened to each card so far: ECC and XID errors, throttled time, and whether a fatal error stands.

Invariants: a counter never goes back, whatever the driver's own does, and is stored with the others; a
fatal XID stands until the card was seen to be reset. Source: `reference/metering.md §2, §3`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from contract.ids import DeviceUuid
from contract.xid import is_fatal
from exporter.node.checks import possible
from exporter.node.clock import Instant
from exporter.node.tallies import Tallies
from exporter.nvidia.source import DeviceReading, XidEvent

MOST_ERRORS_AT_ONCE = 1_000_000_000
HIGHEST_XID = 9_999
THROTTLE_SLACK_MS = 1_000
"""The driver brings its counters up to date about once a second."""

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class HardwareView:
    """One card's history as it is now.

    Attributes:
        ecc_errors: By kind; a kind that the card does not count is missing.
        throttle_ns: By reason, likewise.
        xids: How often each code came, and when last (Unix ms).
        fatal_xid: The first one that stands; None = none does.
        created_ms: Since when it is followed, Unix time.
    """

    ecc_errors: Mapping[str, int] = field(default_factory=dict)
    throttle_ns: Mapping[str, int] = field(default_factory=dict)
    xids: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    fatal_xid: int | None = None
    created_ms: int = 0


class Grown(msgspec.Struct):
    """How far a counter of the driver's has grown since it was first seen.

    Attributes:
        anchor: Its value at the last look; None before the first.
        boot_ms: When, on the boot clock.
    """

    total: int = 0
    anchor: int | None = None
    boot_ms: int = 0

    def take(self, quantity: str, value: int, boot_ms: int, most: int, tallies: Tallies) -> None:
        """Take in its value now; a step back, or one above `most`, only sets a new anchor."""
        before, self.anchor, self.boot_ms = self.anchor, value, boot_ms
        if before is not None:
            self.total += possible(quantity, value - before, 0, most, tallies) or 0


class XidCount(msgspec.Struct):
    """How often one code came, and when last."""

    count: int = 0
    last_ms: int = 0


class CardHistory(msgspec.Struct, kw_only=True):
    """What happened to one card.

    Attributes:
        energy_mj: The board's energy counter at the last look: a reset sets it back.
        has_fallen: It was below that at the last look; once may be a slip of the driver.
        was_lost: It could not be asked at the last look.
        created_ms: Since when it is followed, Unix time.
    """

    device_uuid: DeviceUuid
    ecc: dict[str, Grown] = msgspec.field(default_factory=dict)
    throttle_ns: dict[str, Grown] = msgspec.field(default_factory=dict)
    xids: dict[int, XidCount] = msgspec.field(default_factory=dict)
    fatal_xid: int | None = None
    energy_mj: int | None = None
    has_fallen: bool = False
    was_lost: bool = False
    created_ms: int = 0

    def take(self, reading: DeviceReading, now: Instant, tallies: Tallies) -> None:
        """Take in one checked reading."""
        if self._was_reset(reading):
            self.fatal_xid = None
        kinds = {"corrected": reading.ecc_corrected, "uncorrected": reading.ecc_uncorrected}
        for kind, count in kinds.items():
            if count is not None:
                grown = self.ecc.setdefault(kind, Grown())
                grown.take("ecc", count, now.boot_ms, MOST_ERRORS_AT_ONCE, tallies)
        for reason, time_ns in reading.throttle_ns or ():
            grown = self.throttle_ns.setdefault(reason, Grown())
            most_ms = now.boot_ms - grown.boot_ms + THROTTLE_SLACK_MS
            grown.take("throttle", time_ns, now.boot_ms, most_ms * _NS_PER_MS, tallies)
        self._take_xids(reading.xids or (), tallies)

    def view(self) -> HardwareView:
        """As it is now."""
        return HardwareView(
            ecc_errors=MappingProxyType({kind: grown.total for kind, grown in self.ecc.items()}),
            throttle_ns=MappingProxyType({why: grown.total for why, grown in self.throttle_ns.items()}),
            xids=MappingProxyType({code: (each.count, each.last_ms) for code, each in self.xids.items()}),
            fatal_xid=self.fatal_xid,
            created_ms=self.created_ms,
        )

    def _take_xids(self, events: Iterable[XidEvent], tallies: Tallies) -> None:
        for event in events:
            code = possible("xid", event.code, 1, HIGHEST_XID, tallies)
            if code is None:
                continue
            seen = self.xids.setdefault(code, XidCount())
            seen.count += 1
            seen.last_ms = max(seen.last_ms, event.at_ms)
            if self.fatal_xid is None and is_fatal(code):
                self.fatal_xid = code

    def _was_reset(self, reading: DeviceReading) -> bool:
        """Whether the card came back from being lost, or its energy began anew.

        Both happen when the card is reset or the driver loaded again.
        """
        if reading.failure is not None:
            self.was_lost = True
            return False
        was_lost, self.was_lost = self.was_lost, False
        if reading.energy_mj is None:
            return was_lost
        if self.energy_mj is None or reading.energy_mj >= self.energy_mj:
            self.energy_mj, self.has_fallen = reading.energy_mj, False
            return was_lost
        if not self.has_fallen:
            self.has_fallen = True
            return was_lost
        self.energy_mj, self.has_fallen = reading.energy_mj, False
        return True


class Hardware:
    """The history of every card of the node.

    Args:
        tallies: Where impossible values are counted.
        histories: What an earlier run of the same boot left.
    """

    def __init__(self, tallies: Tallies, histories: Iterable[CardHistory] = ()) -> None:
        self._tallies = tallies
        self._histories = {history.device_uuid: history for history in histories}

    def take(self, readings: Iterable[DeviceReading], now: Instant) -> None:
        """Take in one tick's readings, checked."""
        for reading in readings:
            history = self._histories.get(reading.uuid)
            if history is None:
                history = self._histories[reading.uuid] = CardHistory(
                    device_uuid=reading.uuid, created_ms=now.wall_ms
                )
            history.take(reading, now, self._tallies)

    def views(self) -> dict[str, HardwareView]:
        """Every card's history, those of absent cards too."""
        return {uuid: history.view() for uuid, history in self._histories.items()}

    def dump(self) -> list[CardHistory]:
        """What must survive the process."""
        return list(self._histories.values())
