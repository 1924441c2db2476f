"""The integrator: from readings at moments to counters and hour books, exact in whole units.

Invariants, per device and closed window: Σ slices + unallocated + unattributed = busy SM time; and, ever
since the counters began: Σ energy of slices (active + idle) + unallocated + unattributed = the device's
energy. What could not be measured is counted as unknown time and never as 0.
Rules: `reference/metering.md §7, §8`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from contract.facts import UsageFact
from contract.ids import DeviceUuid
from exporter.node.checks import power_bound_mw
from exporter.node.clock import Instant, Interval, place
from exporter.node.metering.counters import DeviceCounters, OwnerCounters, OwnerKey, TenantCounters
from exporter.node.metering.crediting import (
    credit_active_energy,
    credit_idle_energy,
    credit_memory,
    credit_sm,
)
from exporter.node.metering.energy import Shares, split
from exporter.node.metering.hours import HourBooks, Origin, Piece, pieces, shares
from exporter.node.metering.inputs import DeviceInput, OwnerInput
from exporter.node.metering.seating import Seat, drop_ended, end_missing, seated, tenant_of
from exporter.node.metering.settling import (
    PPM_PER_PERCENT,
    Close,
    Conserved,
    close_window,
    conserve,
    unmeasured,
)
from exporter.node.metering.timeline import Timeline
from exporter.node.tallies import Tallies

GAP_MS = 10_000
"""No interpolation over more than this, or three sampling periods, whichever is more."""

DISAGREEMENTS = "disagreements_total"


class Rate(msgspec.Struct, frozen=True, gc=False):
    """SM use in the last closed window: share of the card in ppm, and the rung that said so."""

    ppm: int
    source: str


@dataclass(slots=True)
class _Live:
    """What is known of a device only while the process runs.

    Attributes:
        seats: Its owners at the last tick.
        has_news: Something of an owner is new since `pid_owners` were noted.
    """

    timeline: Timeline = field(default_factory=Timeline)
    seats: dict[OwnerKey, Seat] = field(default_factory=dict)
    has_news: bool = True
    pid_owners: dict[int, OwnerKey] = field(default_factory=dict)
    rates: dict[OwnerKey, Rate] = field(default_factory=dict)
    energy_mj: int = 0
    idle_mj: int = 0
    had_no_process: bool = False


class Meter:
    """Integrates one node's devices; mutable state, no input or output.

    Args:
        origin: What its facts carry.
        period_ms: The sampling period.
        ended_keep_ms: How long an ended slice's counters stay.
        ended_most: How many ended slices stay at most, the biggest first.
        tallies: Counters of disagreements and refused values.
    """

    def __init__(
        self,
        origin: Origin,
        *,
        period_ms: int = 1_000,
        ended_keep_ms: int = 120_000,
        ended_most: int = 1_000,
        tallies: Tallies | None = None,
    ) -> None:
        self.origin = origin
        self.tallies = Tallies() if tallies is None else tallies
        self.owners: dict[OwnerKey, OwnerCounters] = {}
        self.devices: dict[DeviceUuid, DeviceCounters] = {}
        self.tenants: dict[tuple[str, str], TenantCounters] = {}
        self.books = HourBooks()
        self.last: Instant | None = None
        self.placed_ms = 0
        self.was_restored = False
        self._live: dict[DeviceUuid, _Live] = {}
        self._gap_ms = max(GAP_MS, 3 * period_ms)
        self._ended_keep_ms = ended_keep_ms
        self._ended_most = ended_most
        self._just_ended: set[OwnerKey] = set()

    # Reading

    def rate(self, key: OwnerKey) -> Rate | None:
        """SM use of an owner in the device's last window; None when it is unknown."""
        live = self._live.get(key.device_uuid)
        return None if live is None else live.rates.get(key)

    def known_pids(self, device_uuid: DeviceUuid) -> frozenset[int]:
        """Host pids that had an owner on the device at the last tick."""
        live = self._live.get(device_uuid)
        return frozenset(live.pid_owners) if live is not None else frozenset()

    def take_facts(self, *, everything: bool = False) -> list[UsageFact]:
        """Usage facts that are due; see `HourBooks.take_facts`."""
        ended, self._just_ended = self._just_ended, set()
        return self.books.take_facts(self.origin, self.placed_ms, everything=everything, ended=ended)

    def begin_epoch(self, origin: Origin) -> list[UsageFact]:
        """Close the books of the epoch so far, and go on under a new one; the last facts of the old."""
        facts = self.books.take_facts(self.origin, self.placed_ms, everything=True)
        self.books = HourBooks()
        self.origin = origin
        return facts

    # Integrating

    def tick(self, now: Instant, devices: Sequence[DeviceInput]) -> Interval | None:
        """Take in one tick; every device and owner that is held must be in it.

        Returns:
            The interval it closed; None for the first tick, which only sets anchors. When its
            `stepped_back` is set nothing was counted: begin a new epoch.
        """
        interval = self._place(now)
        for device in devices:
            self._register(device, now)
            if interval is None or interval.is_gap or interval.stepped_back:
                self._reset(device, interval, now)
            else:
                self._device(device, interval, now)
            counters, live = self.devices[device.device_uuid], self._live[device.device_uuid]
            counters.open_ms, counters.open_energy_mj = live.timeline.pending_ms, live.energy_mj
        held = {owner.key for device in devices for owner in device.owners}
        self._just_ended |= end_missing(self.owners, held, now.boot_ms)
        drop_ended(self.owners, now.boot_ms - self._ended_keep_ms, self._ended_most)
        return interval

    def _place(self, now: Instant) -> Interval | None:
        previous, self.last = self.last, now
        if previous is None:
            self.placed_ms = now.wall_ms
            return None
        interval = place(
            previous, self.placed_ms, now, gap_limit_ms=-1 if self.was_restored else self._gap_ms
        )
        self.was_restored = False
        self.placed_ms = interval.to_ms
        return interval

    def _register(self, device: DeviceInput, now: Instant) -> None:
        counters = self.devices.get(device.device_uuid)
        if counters is None:
            counters = self.devices[device.device_uuid] = DeviceCounters(
                device_uuid=device.device_uuid, created_ms=now.wall_ms
            )
        live = self._live.get(device.device_uuid)
        if live is None:
            live = self._live[device.device_uuid] = _Live()
        counters.is_measured = counters.is_measured or device.reading is not None
        can_measure_sm = device.reading is not None and device.reading.mode != "mig"
        counters.is_sm_measured = counters.is_sm_measured or can_measure_sm
        seats = seated(device, live.seats, self.owners, self.tenants, now.wall_ms)
        are_still = len(seats) == len(live.seats) and all(
            map(operator.is_, seats.values(), live.seats.values())
        )
        live.seats = seats
        if not are_still:
            live.has_news = True
            counters.is_measured = counters.is_measured or any(given.has_source for given in device.owners)
            counters.is_sm_measured = counters.is_sm_measured or any(
                seat.owner.is_sm_measured for seat in seats.values()
            )

    def _reset(self, device: DeviceInput, interval: Interval | None, now: Instant) -> None:
        """Take this tick as a new anchor; what lies before it is unknown, its energy nobody's."""
        live, counters = self._live[device.device_uuid], self.devices[device.device_uuid]
        span_ms = live.timeline.restart(device.reading, now.wall_ms * 1_000)
        live.pid_owners, live.has_news, live.had_no_process = _pid_owners(device.owners), False, False
        live.rates.clear()
        cut: list[Piece] = []
        if interval is not None:
            span_ms += interval.elapsed_ms
            if not interval.stepped_back:
                cut = pieces(interval.to_ms - span_ms, interval.to_ms)
        self._lose_energy(device, counters, live, cut, self._board_delta(device, counters, now) or 0)
        if interval is not None:
            self._add_sm(device, unmeasured(device, span_ms, "gap"), {}, cut)

    def _device(self, device: DeviceInput, interval: Interval, now: Instant) -> None:
        if not interval.elapsed_ms:
            return
        live, counters = self._live[device.device_uuid], self.devices[device.device_uuid]
        cut = pieces(interval.from_ms, interval.to_ms)
        for seat in live.seats.values():
            if seat.given.used_bytes is not None or seat.given.is_blocked:
                credit_memory(self.books, seat, cut, interval.elapsed_ms)
        self._use_energy(device, live, interval, now, cut)
        recent = live.pid_owners
        if live.has_news:
            live.has_news = False
            live.pid_owners = _pid_owners(device.owners)
            recent = {pid: key for pid, key in recent.items() if key in self.owners} | live.pid_owners
        close = close_window(device, live.timeline, recent, interval.elapsed_ms, now)
        if close is not None:
            self._settle(device, counters, live, close, interval.to_ms)

    # Energy

    def _board_delta(self, device: DeviceInput, counters: DeviceCounters, now: Instant) -> int | None:
        reading = device.reading
        if reading is None or reading.energy_mj is None:
            return None
        counters.has_energy = True
        bound_mw = power_bound_mw(reading.power_limit_mw)
        return counters.board.take(reading.energy_mj, now.boot_ms, bound_mw, self.tallies)

    def _use_energy(
        self, device: DeviceInput, live: _Live, interval: Interval, now: Instant, cut: list[Piece]
    ) -> None:
        counters = self.devices[device.device_uuid]
        is_contiguous = counters.board.boot_ms == now.boot_ms - interval.elapsed_ms
        delta_mj = self._board_delta(device, counters, now)
        has_no_process = device.reading is not None and device.reading.processes == ()
        was_idle, live.had_no_process = live.had_no_process and has_no_process, has_no_process
        if delta_mj is None:
            return
        if not is_contiguous:
            self._lose_energy(device, counters, live, cut, delta_mj)
            return
        if was_idle:
            counters.idle_power.learn(delta_mj, interval.elapsed_ms)
        live.energy_mj += delta_mj
        live.idle_mj += counters.idle_power.idle_part_mj(delta_mj, interval.elapsed_ms, device.idle_power_mw)

    def _lose_energy(
        self,
        device: DeviceInput,
        counters: DeviceCounters,
        live: _Live,
        cut: list[Piece],
        delta_mj: int,
    ) -> None:
        """Energy of a gap: the device used it, nobody can be charged with it."""
        lost_mj, live.energy_mj, live.idle_mj = delta_mj + live.energy_mj, 0, 0
        counters.energy_mj += lost_mj
        counters.energy_unattributed_mj += lost_mj
        for piece, part in zip(cut, shares(lost_mj, cut), strict=True) if lost_mj else ():
            book = self.books.device(device.device_uuid, piece)
            book.energy_mj += part
            book.energy_unattributed_mj += part

    # SM time

    def _settle(
        self, device: DeviceInput, counters: DeviceCounters, live: _Live, close: Close, to_ms: int
    ) -> None:
        result = conserve(close)
        if result.was_scaled:
            self.tallies.count(DISAGREEMENTS, "sm_scaled")
        counters.busy_ppm_ms += result.busy_ppm_ms
        counters.sm_unattributed_ppm_ms += result.unattributed_ppm_ms
        cut = pieces(to_ms - close.span_ms, to_ms)
        self._add_sm(device, close, result.owners_ppm_ms, cut)
        live.rates = _rates(device, close)
        self._settle_energy(device, counters, live, result, cut)
        if close.rung == "none" or not counters.is_measured:
            return
        busy, unattributed = shares(result.busy_ppm_ms, cut), shares(result.unattributed_ppm_ms, cut)
        for index, piece in enumerate(cut):
            book = self.books.device(device.device_uuid, piece)
            book.covered_ms += piece.to_ms - piece.from_ms
            book.busy_ppm_ms += busy[index]
            book.sm_unattributed_ppm_ms += unattributed[index]

    def _add_sm(
        self, device: DeviceInput, close: Close, used_ppm_ms: Mapping[OwnerKey, int], cut: list[Piece]
    ) -> None:
        """Credit a window to its owners; those that just ended may still have a part in it.

        Args:
            device: The tick's input.
            close: The window.
            used_ppm_ms: Its SM time by owner, made to add up.
            cut: It, cut at hours.
        """
        seats, books, is_down = self._live[device.device_uuid].seats, self.books, device.is_down
        for key, seat in seats.items():
            credit_sm(books, seat, used_ppm_ms.get(key, 0), close, cut, is_down=is_down)
        for key in [key for key in used_ppm_ms if key not in seats]:
            credit_sm(books, self._unseated(key), used_ppm_ms[key], close, cut, is_down=is_down)

    def _unseated(self, key: OwnerKey) -> Seat:
        """The counters of an owner that has just ended."""
        owner = self.owners[key]
        given = OwnerInput(key, owner.labels)
        return Seat(given, owner, tenant_of(owner, self.tenants, self.placed_ms))

    def _settle_energy(
        self,
        device: DeviceInput,
        counters: DeviceCounters,
        live: _Live,
        result: Conserved,
        cut: list[Piece],
    ) -> None:
        if not live.energy_mj:
            return
        slices = [owner for owner in device.owners if owner.key.is_slice]
        users = list(result.owners_ppm_ms)
        parts = split(
            live.energy_mj,
            live.idle_mj,
            Shares(
                sm_ppm_ms=list(result.owners_ppm_ms.values()),
                sm_unattributed_ppm_ms=result.unowned_ppm_ms,
                allocated_mib=[owner.allocated_mib for owner in slices],
                registered_mib=device.registered_mib,
            ),
        )
        for key, part in zip(users, parts.active_mj, strict=True):
            if part:
                credit_active_energy(self.books, live.seats.get(key) or self._unseated(key), part, cut)
        for given, part in zip(slices, parts.idle_mj, strict=True):
            credit_idle_energy(live.seats[given.key], part)
        counters.energy_mj += live.energy_mj
        counters.energy_unattributed_mj += parts.active_unattributed_mj + parts.idle_unattributed_mj
        self._book_energy(device.device_uuid, live, parts.active_unattributed_mj, cut)
        live.energy_mj = live.idle_mj = 0

    def _book_energy(
        self, device_uuid: DeviceUuid, live: _Live, unattributed_mj: int, cut: list[Piece]
    ) -> None:
        whole, idle = shares(live.energy_mj, cut), shares(live.idle_mj, cut)
        unattributed = shares(unattributed_mj, cut)
        for index, piece in enumerate(cut):
            book = self.books.device(device_uuid, piece)
            book.energy_mj += whole[index]
            book.energy_idle_mj += idle[index]
            book.energy_unattributed_mj += unattributed[index]


def _pid_owners(owners: Sequence[OwnerInput]) -> dict[int, OwnerKey]:
    return {pid: owner.key for owner in owners for pid in owner.pids}


def _rates(device: DeviceInput, close: Close) -> dict[OwnerKey, Rate]:
    """The newest sample of each owner whose use is known; one without a sample is idle."""
    percent, unknown, rung = close.percent, close.unknown, close.rung
    return {
        key: Rate(percent.get(key, 0) * PPM_PER_PERCENT, rung)
        for key in [owner.key for owner in device.owners]
        if key not in unknown
    }
