"""Does this machine's NVIDIA GPU tell us what we drove? Every NVML call of ours, SM time and joules.

Run: make gpu-check   (python benchmarks/gpu_check.py [--seconds 15])

Loads of known size (`gpu_load.py`: nobody, all of the card, a duty cycle of 30 %, two processes, one
killed) run on the first card that is free; the exporter's own source and meter watch them once a second.
Joules are compared with power that another process reads twenty times a second. Prints what the card and
its driver support. The exit code is 0 when everything agreed, or when no GPU is at hand; else 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from contract.ids import ClusterCode, DeviceUuid, NodeUid, PodUid, new_epoch
from exporter.node.checks import checked
from exporter.node.clock import system_clock
from exporter.node.metering.counters import Labels, OwnerKey
from exporter.node.metering.hours import Origin
from exporter.node.metering.inputs import DeviceInput, OwnerInput
from exporter.node.metering.meter import Meter
from exporter.nvidia.nvml import NvmlSource
from exporter.nvidia.source import DeviceReading, SourceDownError

LOAD = Path(__file__).with_name("gpu_load.py")
MIB = 1 << 20
MEMORY_MIB = 256
POWER_SPACING_S = 0.05
SETTLE_S = 3
"""The last samples of a process come a little after it."""

PATIENCE_S = 30


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure that was driven, and what we measured of it."""

    what: str
    driven: float
    measured: float
    tolerance: float
    unit: str

    @property
    def agrees(self) -> bool:
        """Whether the two differ by no more than the tolerance."""
        return abs(self.measured - self.driven) <= self.tolerance

    def __str__(self) -> str:
        verdict = "ok" if self.agrees else "DIFFERS"
        return (
            f"  {self.what:<44}{self.driven:>10.2f}{self.measured:>10.2f} ±{self.tolerance:<7.2f}"
            f"{self.unit:<4}{verdict}"
        )


def sm_time(what: str, driven_s: float, measured_s: float) -> Comparison:
    """SM seconds: within 5 %, and one sample of the driver (up to a second) at the edges."""
    return Comparison(what, driven_s, measured_s, 0.05 * driven_s + 1.0, "s")


def joules(what: str, driven_j: float, measured_j: float) -> Comparison:
    """Energy against integrated power: within 20 %, for on some boards the sensor sees only part of it."""
    return Comparison(what, driven_j, measured_j, 0.2 * driven_j, "J")


@dataclass
class Watch:
    """The exporter's own source and meter on one card, with processes in place of slices."""

    source: NvmlSource
    uuid: DeviceUuid
    pids: dict[str, frozenset[int]] = field(default_factory=dict)
    most_records: int = 0
    meter: Meter = field(
        default_factory=lambda: Meter(Origin(ClusterCode("gpu-check"), NodeUid("here"), new_epoch()))
    )

    def tick(self) -> DeviceReading:
        """Read the card once and integrate."""
        now = system_clock()
        known = frozenset[int]().union(*self.pids.values())
        (raw,) = (reading for reading in self.source.read() if reading.uuid == self.uuid)
        running = {process.pid for process in raw.processes or ()}
        reading = checked(
            raw,
            self.meter.tallies,
            now_us=now.wall_ms * 1_000,
            known_pids=None if raw.processes is None else known | running,
        )
        records = Counter(record.pid for record in reading.utilization or ())
        self.most_records = max([self.most_records, *records.values()])
        owners = tuple(
            OwnerInput(self._key(name), Labels("-", name, "-", "-", raw.model), pids=pids, has_source=True)
            for name, pids in self.pids.items()
        )
        self.meter.tick(now, [DeviceInput(self.uuid, reading, owners)])
        return reading

    def run(self, is_over: Callable[[], bool]) -> DeviceReading:
        """Tick once a second until it is over, and a little longer; the last reading."""
        left = SETTLE_S
        while left:
            reading = self.tick()
            time.sleep(1)
            left -= is_over()
        return reading

    def sm_s(self, name: str) -> float:
        """SM seconds of a process so far."""
        return self.meter.owners[self._key(name)].sm_ppm_ms / 1e9

    def busy_s(self) -> float:
        """SM seconds of the whole card so far."""
        return self.meter.devices[self.uuid].busy_ppm_ms / 1e9

    def energy_j(self) -> float:
        """Joules of the board so far."""
        return self.meter.devices[self.uuid].energy_mj / 1_000

    def _key(self, name: str) -> OwnerKey:
        return OwnerKey(PodUid(name), "-", self.uuid, is_slice=True)


class Load:
    """One process of `gpu_load.py`, whose size is known."""

    def __init__(
        self,
        uuid: str,
        *,
        on_ms: int,
        seconds: float,
        period_ms: int = 1_000,
        offset_ms: int = 0,
        kill_after_s: float | None = None,
    ) -> None:
        flags = {"--on-ms": on_ms, "--period-ms": period_ms, "--offset-ms": offset_ms, "--seconds": seconds}
        flags["--memory-mib"] = MEMORY_MIB
        self._words = [str(word) for flag in flags.items() for word in flag]
        self._environment = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid}
        self._kill_after_s = kill_after_s
        self._process: subprocess.Popen[str] | None = None
        self.busy_s = 0.0

    def start(self) -> None:
        """Start it, and wait until it holds the card."""
        self._process = subprocess.Popen(
            [sys.executable, str(LOAD), *self._words],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError("the load cannot use the GPU; its own message stands above")

    def go(self) -> None:
        """Let it begin."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        threading.Thread(target=self._listen, daemon=True).start()
        if self._kill_after_s is not None:
            threading.Timer(self._kill_after_s, self._process.kill).start()

    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._process is not None and self._process.poll() is not None

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.busy_s = float(line)


def phase(watch: Watch, loads: dict[str, Load]) -> Iterator[Comparison]:
    """Start loads, find their processes in NVML's list, let them run, compare."""
    for name, load in loads.items():
        before = {process.pid for process in watch.tick().processes or ()}
        load.start()
        watch.pids[name] = _newcomer(watch, before)
    busy_s = watch.busy_s()
    for load in loads.values():
        load.go()
    reading = watch.run(lambda: all(load.is_over() for load in loads.values()))
    for name, load in loads.items():
        yield sm_time(f"{name}: SM time of the process", load.busy_s, watch.sm_s(name))
    driven_s = sum(load.busy_s for load in loads.values())
    yield sm_time(f"{', '.join(loads)}: SM time of the card", driven_s, watch.busy_s() - busy_s)
    left = sum(bool(watch.pids[name] & {each.pid for each in reading.processes or ()}) for name in loads)
    yield Comparison(f"{', '.join(loads)}: processes left in NVML's list", 0, left, 0, "")


def killed(watch: Watch, seconds: float) -> Iterator[Comparison]:
    """One that is killed in the middle: what it used stays, and nothing is added."""
    load = Load(watch.uuid, on_ms=100, period_ms=100, seconds=4 * seconds, kill_after_s=seconds)
    yield from phase(watch, {"killed": load})
    used_s = watch.sm_s("killed")
    end_s = time.monotonic() + SETTLE_S
    watch.run(lambda: time.monotonic() >= end_s)
    # The driver's sample that was running at the kill may still come: one second of it, no more.
    yield Comparison("killed: SM time added afterwards", 0, watch.sm_s("killed") - used_s, 1.0, "s")


def idle(watch: Watch, seconds: float) -> Iterator[Comparison]:
    """Nobody: no SM time."""
    end_s = time.monotonic() + seconds
    before_s = watch.busy_s() if watch.meter.devices else 0.0
    watch.run(lambda: time.monotonic() >= end_s)
    yield Comparison("idle: SM time of the card", 0, watch.busy_s() - before_s, 1.0, "s")


def _newcomer(watch: Watch, before: set[int]) -> frozenset[int]:
    """NVML's pid of the process that has just come: it may live in another pid namespace than we."""
    for _ in range(PATIENCE_S):
        reading = watch.tick()
        found = {each.pid: each.used_bytes for each in reading.processes or () if each.pid not in before}
        if found:
            told = {pid: None if used is None else used // MIB for pid, used in found.items()}
            print(f"  process seen: {told} MiB ({MEMORY_MIB} MiB were asked for, and a context)")
            return frozenset(found)
        time.sleep(1)
    print("  NVML never listed the process: run this in the host's pid namespace")
    return frozenset()


# Power, from another process


@contextmanager
def independent_joules(uuid: str) -> Iterator[list[float]]:
    """Integrates the board's power in a process of its own; the list has the joules at the end."""
    result: list[float] = []
    with subprocess.Popen(
        [sys.executable, __file__, "--integrate-power", uuid],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield result
        told, _ = process.communicate("stop\n")
        result.append(float(told))


def integrate_power(uuid: str) -> int:
    """Trapezoids over NVML's plain power figure until a line comes in."""
    pynvml = importlib.import_module("pynvml")
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.partition("@")[0])
    stop = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    total_j, at_s, power_w = 0.0, time.monotonic(), pynvml.nvmlDeviceGetPowerUsage(handle) / 1_000
    print("ready", flush=True)
    while not stop.wait(POWER_SPACING_S):
        now_s, now_w = time.monotonic(), pynvml.nvmlDeviceGetPowerUsage(handle) / 1_000
        total_j += (now_s - at_s) * (power_w + now_w) / 2
        at_s, power_w = now_s, now_w
    print(f"{total_j:.3f}")
    return 0


# What there is


def describe(readings: Iterable[DeviceReading]) -> Iterator[str]:
    """What each card and its driver answer, field by field."""
    for reading in readings:
        yield f"card {reading.index}: {reading.model}, {reading.uuid}, driver {reading.driver_version}"
        for each in dataclasses.fields(reading):
            value = getattr(reading, each.name)
            if each.name == "failure" and value is None:
                continue
            told = "not supported, or not known now" if value is None else str(value)
            yield f"  {each.name:<28}{told if len(told) <= 84 else told[:81] + '...'}"


def free_card(readings: Iterable[DeviceReading]) -> DeviceReading | None:
    """The first card on which a load can be measured."""
    return next(
        (each for each in readings if not (each.failure or each.processes or each.mode == "mig")), None
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Check; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each load")
    parser.add_argument("--integrate-power", metavar="UUID", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.integrate_power:
        return integrate_power(args.integrate_power)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    source = NvmlSource()
    try:
        source.open()
    except SourceDownError as error:
        print(f"no NVIDIA GPU is at hand, so nothing was checked: {error.detail}")
        return 0
    try:
        readings = source.read()
        if not readings:
            print("no NVIDIA GPU is at hand, so nothing was checked: the driver lists no card")
            return 0
        time.sleep(1)
        print("\n".join(describe(source.read())))
        card = free_card(readings)
        if card is None:
            print("no card is free and out of MIG mode, so no load was driven")
            return 0
        return drive(Watch(source, card.uuid), args.seconds)
    finally:
        source.close()


def drive(watch: Watch, seconds: float) -> int:
    """Drive every load on one card and print what came of it."""
    uuid = watch.uuid
    watch.tick()
    found: list[Comparison] = []
    energy_j = watch.energy_j()
    with independent_joules(uuid) as told:
        found += idle(watch, seconds)
        found += phase(watch, {"full": Load(uuid, on_ms=100, period_ms=100, seconds=seconds)})
        found += phase(watch, {"duty 30 %": Load(uuid, on_ms=300, seconds=2 * seconds)})
        # They take turns, so that the one's kernels never wait for the other's.
        pair = {
            "first of two": Load(uuid, on_ms=400, seconds=2 * seconds),
            "second of two": Load(uuid, on_ms=250, seconds=2 * seconds, offset_ms=600),
        }
        found += phase(watch, pair)
        found += killed(watch, seconds)
        watch.tick()
        measured_j = watch.energy_j() - energy_j
    found.append(joules("everything: energy of the board", told[0], measured_j))
    print(f"  {'':<44}{'driven':>10}{'measured':>10}")
    print("\n".join(map(str, found)))
    # One is a mean since the last read; more would be samples of their own.
    print(f"  most records of one process in one read: {watch.most_records}")
    refused = watch.meter.tallies.by_family()
    print(f"  refused and scaled: {refused or 'nothing'}")
    return 0 if all(each.agrees for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
