"""From a device's stamped samples to SM time: which span each record stands for.

A record is valid over (previous stamp, its stamp], but a read may come sooner than the driver samples,
bring a record twice, or follow a long idle time. Invariant: over any run of reads the time given out
for one process is at most the time that passed on our own clock plus one sample period, and a read that
brings nothing too early changes nothing. Source: `reference/metering.md §2, §7`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from exporter.nvidia.source import DeviceReading

SAMPLE_PERIOD_MS = 1_000
"""The driver's sample period where nobody says it."""

_IDLE_AFTER_MS = SAMPLE_PERIOD_MS * 9 // 10
"""An empty read closes its time as idle after this: a tick may come a little early."""

_DRY_AFTER_MS = 3 * SAMPLE_PERIOD_MS
"""The same on a card with samples of its own: those come while it idles too, until its buffer is dry."""

_RESET_US = 10_000_000
"""Stamps further back than this are a clock that was set back, not a repeated record."""

PPM_MS_PER_PERCENT_US = 10
"""1 % for 1 µs = 10,000 ppm × 0.001 ms."""


class Window(msgspec.Struct, frozen=True, gc=False):
    """SM use over a closed stretch of time.

    Attributes:
        span_ms: How long it was, on our clock.
        process_ppm_ms: SM time by host pid; a process that is not here used nothing.
        process_percent: The newest record's share by host pid.
        busy_ppm_ms: SM time of the whole device; None without a figure.
        busy_percent: The device's newest sample; None without one.
        limit_ppm_ms: One whole card over the stamps' width: no sum may exceed it.
        is_known: False: the stamps jumped, so nothing can be said about the time.
    """

    span_ms: int
    process_ppm_ms: dict[int, int] = msgspec.field(default_factory=dict)
    process_percent: dict[int, int] = msgspec.field(default_factory=dict)
    busy_ppm_ms: int | None = None
    busy_percent: int | None = None
    limit_ppm_ms: int = 0
    is_known: bool = True


@dataclass(slots=True)
class Timeline:
    """What one device's stamps have covered so far.

    Attributes:
        anchor_us: The newest stamp of any earlier read; None before the first.
        pending_ms: Time that passed since the last window was closed.
    """

    anchor_us: int | None = None
    pending_ms: int = 0
    _process_us: dict[int, int] = field(default_factory=dict)
    _newcomer_us: int = 0
    _busy_us: int | None = None
    _carry_us: int = 0

    def restart(self, reading: DeviceReading | None, now_us: int) -> int:
        """Begin anew at this read: its records only set the anchor. Returns the time left open, ms."""
        stamps = list(_stamps(reading)) if reading is not None else []
        self.anchor_us = max(stamps, default=now_us)
        self._process_us = {}
        self._newcomer_us = self.anchor_us
        self._busy_us = None
        # The next record also stands for the time between the last stamp and now.
        self._carry_us = min(max(0, now_us - self.anchor_us), SAMPLE_PERIOD_MS * 1_000)
        left_open, self.pending_ms = self.pending_ms, 0
        return left_open

    def advance(self, reading: DeviceReading, elapsed_ms: int, now_us: int) -> Window | None:
        """Take one healthy read; the window it closes, or None while nothing can be said yet."""
        if self.anchor_us is None:
            self.restart(reading, now_us)
            return None
        self.pending_ms += elapsed_ms
        newest = max(_stamps(reading), default=None)
        if newest is not None and newest < self.anchor_us - _RESET_US:
            return Window(self.restart(reading, now_us), is_known=False)
        processes, percents, widest = self._processes(reading)
        busy_ppm_ms, busy_width = self._busy(reading)
        widest = max(widest, busy_width)
        if not widest:
            return self._idle(reading)
        span_ms, self.pending_ms = self.pending_ms, 0
        spare_us = span_ms * 1_000 + self._carry_us - widest
        self._carry_us = min(max(0, spare_us), SAMPLE_PERIOD_MS * 1_000)
        self.anchor_us = max(self.anchor_us, newest or 0)
        # One that has no record near the newest stamp was idle at the end: it begins anew.
        near_us = self.anchor_us - SAMPLE_PERIOD_MS * 500
        self._process_us = {pid: stamp for pid, stamp in self._process_us.items() if stamp > near_us}
        self._newcomer_us = max(self._process_us.values(), default=self.anchor_us)
        limit_ppm_ms = widest * 100 * PPM_MS_PER_PERCENT_US
        if busy_width:
            # Process records and device samples end at slightly different stamps: compare shares.
            busy = busy_ppm_ms * widest // busy_width
            newest_busy = max(reading.busy or (), key=lambda sample: sample.stamp_us)
            return Window(span_ms, processes, percents, busy, newest_busy.busy_percent, limit_ppm_ms)
        return Window(span_ms, processes, percents, limit_ppm_ms=limit_ppm_ms)

    def _idle(self, reading: DeviceReading) -> Window | None:
        if self.pending_ms < (_IDLE_AFTER_MS if reading.busy is None else _DRY_AFTER_MS):
            return None
        span_ms, self.pending_ms = self.pending_ms, 0
        self._process_us = {}
        # The time is spent as idle, so a late record cannot claim it a second time.
        self._carry_us = 0
        return Window(span_ms, busy_ppm_ms=None if reading.busy is None else 0)

    def _processes(self, reading: DeviceReading) -> tuple[dict[int, int], dict[int, int], int]:
        """SM time and newest share by host pid, and the widest record."""
        records = reading.utilization or ()
        by_pid: dict[int, dict[int, int]] = {}
        if len({record.pid for record in records}) < len(records):
            for record in records:
                by_pid.setdefault(record.pid, {})[record.stamp_us] = record.sm_percent
        used: dict[int, int] = {}
        percents: dict[int, int] = {}
        seen: dict[int, int] = {}
        budget_us, widest = self.pending_ms * 1_000 + self._carry_us, 0
        before_us, newcomer_us = self._process_us, self._newcomer_us
        for record in () if by_pid else records:  # nearly always one of each process
            pid, stamp_us, percent = record.pid, record.stamp_us, record.sm_percent
            width = stamp_us - before_us.get(pid, newcomer_us)
            if width > budget_us:  # noqa: PLR1730 - hundreds a tick
                width = budget_us
            if width > 0:
                used[pid] = percent * PPM_MS_PER_PERCENT_US * width
                percents[pid], seen[pid] = percent, stamp_us
                if width > widest:  # noqa: PLR1730
                    widest = width
        for pid, stamped in by_pid.items():
            ppm_ms, width = _integrate(stamped, self._process_us.get(pid, self._newcomer_us), budget_us)
            if width:
                used[pid] = ppm_ms
                percents[pid], seen[pid] = stamped[max(stamped)], max(stamped)
                widest = max(widest, width)
        self._process_us = seen or self._process_us
        return used, percents, widest

    def _busy(self, reading: DeviceReading) -> tuple[int, int]:
        samples = {sample.stamp_us: sample.busy_percent for sample in reading.busy or ()}
        if not samples:
            return 0, 0
        since = self._newcomer_us if self._busy_us is None else self._busy_us
        ppm_ms, width = _integrate(samples, since, self.pending_ms * 1_000 + self._carry_us)
        if width:
            self._busy_us = max(samples)
        return ppm_ms, width


def _stamps(reading: DeviceReading) -> Iterable[int]:
    stamps = [record.stamp_us for record in reading.utilization or ()]
    stamps += [sample.stamp_us for sample in reading.busy or ()]
    return stamps


def _integrate(percents: dict[int, int], since_us: int, budget_us: int) -> tuple[int, int]:
    """SM time (ppm·ms) and width (µs) of stamped shares after `since_us`, newest first within budget."""
    if len(percents) == 1:  # nearly always, and asked of every process at every tick
        ((stamp, percent),) = percents.items()
        width = max(0, min(stamp - since_us, budget_us))
        return percent * PPM_MS_PER_PERCENT_US * width, width
    stamps = sorted(stamp for stamp in percents if stamp > since_us)
    begins = [since_us, *stamps[:-1]]
    ppm_ms, left = 0, budget_us
    for begin, stamp in zip(reversed(begins), reversed(stamps), strict=True):
        width = min(stamp - begin, left)
        ppm_ms += percents[stamp] * PPM_MS_PER_PERCENT_US * width
        left -= width
    return ppm_ms, budget_us - left
