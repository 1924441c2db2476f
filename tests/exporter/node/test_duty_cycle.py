"""The mean of a duty-cycled slice, from its counter, as a real Prometheus computes it.

The load is exact arithmetic; the driver's samples of it go through the mock NVML and pynvml, the real
role under an injected clock, its OpenMetrics page, and as history into Prometheus's own blocks at several
scrape intervals. `increase()` over at least 20 periods must be within one point of 30 %.
"""

from __future__ import annotations

import dataclasses
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from contract.ids import DeviceUuid
from exporter.nvidia.source import DeviceReading
from lab.scenarios.demo import HELD_SM_PERCENT
from tests.exporter.node.clocked import START_MS, ClockedStand, pod_at
from tests.exporter.node.program import Program
from tests.exporter.node.stand import CARD, MIB, Stand
from tests.exporter.nvidia.driver import Play, Step, build, environment, node, player
from tests.exporter.nvidia.duty import DutyCycle, Load, Trace, driver_lines
from tests.real_prometheus import ask, ask_over, make_blocks, prometheus, values, wait_up

PID = 4_711
SCRAPES_S = (1, 15, 30, 60)
SECOND_US, SIXTH_US = 1_000_000, 166_667
FAMILY = "slicemeter_slice_sm_seconds"
MEAN, ONE_POINT = 0.30, 0.01


@dataclasses.dataclass(frozen=True)
class Case:
    """A load, how it is sampled, and over how long a window its mean is asked for.

    Attributes:
        window_s: At least 20 periods beside what a scrape interval takes off at each end.
        scrapes_s: Scrape intervals.
    """

    load: Load
    sample_us: int
    window_s: int
    scrapes_s: tuple[int, ...] = SCRAPES_S

    @property
    def seconds(self) -> int:
        """How long it is metered: several windows, each a little later."""
        return self.window_s + 130


def cycle(period_us: int, sample_us: int) -> Case:
    return Case(DutyCycle(period_us), sample_us, max(300, 20 * period_us // 1_000_000 + 120))


CASES: Mapping[str, Case] = {
    f"{period_us / 1e6:g}s-{name}": cycle(period_us, sample_us)
    for period_us in (400_000, 1_700_000, 6_000_000, 13_000_000, 42_000_000)
    for name, sample_us in (("second", SECOND_US), ("sixth", SIXTH_US))
} | {
    # HAMi's limiter on a T4, as it was recorded: its mean is 30 over twelve seconds.
    "t4": Case(Trace(HELD_SM_PERCENT), SECOND_US, 180),
}


class Playback:
    """Readings that the real NVML source made of the mock driver's answers, one a tick."""

    name = "nvml"

    def __init__(self, readings: list[DeviceReading]) -> None:
        self._readings = iter(readings)

    def open(self) -> None:
        pass

    def read(self) -> tuple[DeviceReading, ...]:
        return (next(self._readings),)

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    folder = tmp_path_factory.mktemp("nvml")
    return player(build(folder), folder / "answers")


def ticks_ms(seconds: int) -> list[int]:
    """Times of ticks: a second apart, and late by up to a tenth."""
    late = random.Random(seconds)
    return [1_000 * second + late.randrange(100) for second in range(1, seconds + 1)]


def through_the_driver(play: Play, at_ms: list[int], answers: Callable[[int], Step]) -> list[DeviceReading]:
    """What the NVML source reads at each tick; `answers` gives the driver's at a Unix time in µs."""
    steps: list[Step] = [answers(START_MS * 1_000), ("clock", START_MS / 1_000), ("open",)]
    for after_ms in at_ms:
        now_ms = START_MS + after_ms
        steps += [answers(now_ms * 1_000), ("clock", now_ms / 1_000), ("read",)]
    given = [each["readings"][0] for each in play(*steps) if "readings" in each]
    return [
        dataclasses.replace(msgspec.convert(each, DeviceReading), uuid=DeviceUuid(CARD)) for each in given
    ]


def metered(folder: Path, readings: list[DeviceReading], at_ms: list[int]) -> list[str]:
    """The exporter's OpenMetrics page after each tick."""
    folder.mkdir()
    pages = []
    with (
        pytest.MonkeyPatch.context() as patch,
        ClockedStand(folder, patch, Playback(readings)) as stand,
        stand.region("held") as region,
    ):
        stand.double.create("Pod", pod_at("held", START_MS - 60_000))
        region.attach(7, PID).set_memory(0, data_bytes=64 * MIB)
        stand.start()
        for after_ms in at_ms:
            stand.tick(START_MS + after_ms - stand.at_ms)
            pages.append(stand.openmetrics())
    return pages


def found_on(page: str, family: str, labels: str = "") -> float:
    """The value of a family's only series whose labels hold these words."""
    [value] = re.findall(rf"^{family}\{{[^}}]*{labels}[^}}]*\}} (\S+)$", page, re.MULTILINE)
    return float(value)


@pytest.fixture(scope="module")
def history(
    play: Play, tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str, str], str]
) -> Iterator[str]:
    """The address of a Prometheus that scraped every case at every interval."""
    promtool, program = need_tool("promtool", "prometheus"), need_tool("prometheus", "prometheus")
    folder = tmp_path_factory.mktemp("history")
    lines = [f"# TYPE {FAMILY} counter"]
    for name, case in CASES.items():
        at_ms = ticks_ms(case.seconds)

        def answers(now_us: int, case: Case = case) -> Step:
            return node(*driver_lines(case.load, PID, case.sample_us, now_us, START_MS * 1_000))

        pages = metered(folder / name, through_the_driver(play, at_ms, answers), at_ms)
        for scrape_s in case.scrapes_s:
            for number in range(scrape_s // 2, len(pages), scrape_s):
                # Scraped some time after the tick, before the next.
                at_s = (START_MS + at_ms[number] + 400) / 1_000
                labels = f'{{case="{name}",scrape="{scrape_s}"}}'
                lines.append(
                    f"{FAMILY}_total{labels} {found_on(pages[number], FAMILY + '_total')} {at_s:.3f}"
                )
    make_blocks(promtool, folder, "\n".join([*lines, "# EOF", ""]))
    with prometheus(program, folder) as address:
        wait_up(address)
        yield address


@pytest.mark.slow
@pytest.mark.promtool
@pytest.mark.parametrize("scrape_s", SCRAPES_S)
@pytest.mark.parametrize("name", CASES)
def test_the_mean_of_a_duty_cycled_slice_is_right_within_a_point_at_every_scrape_interval(
    history: str, name: str, scrape_s: int
) -> None:
    window_s = CASES[name].window_s
    counter = f'{FAMILY}_total{{case="{name}",scrape="{scrape_s}"}}'
    first_s = START_MS / 1_000 + window_s + 61
    [series] = ask_over(history, f"increase({counter}[{window_s}s]) / {window_s}", first_s, first_s + 65, 5)
    means = values(series["values"])
    assert len(means) == 14
    assert [mean for mean in means if abs(mean - MEAN) > ONE_POINT] == []


@pytest.mark.timed
@pytest.mark.promtool
def test_the_mean_is_right_within_a_point_live_on_a_prometheus_that_scrapes_each_second(
    stand: Stand, tmp_path: Path, need_tool: Callable[[str, str], str]
) -> None:
    program = need_tool("prometheus", "prometheus")
    folder = tmp_path / "live"
    (folder / "nvml").mkdir(parents=True)
    card = LiveCard(folder / "answers", DutyCycle(700_000))
    stand.double.create("Pod", pod_at("held", int(time.time() - 60) * 1_000))
    exporter = Program(tmp_path, stand.double, environ=environment(build(folder / "nvml"), card.answers))
    with stand.region("held") as region, card, exporter:
        region.attach(7, PID).set_memory(0, data_bytes=64 * MIB)
        exporter.wait_for(lambda page: (page.one("slice_sm_seconds_total") or 0) > 0)
        with prometheus(program, folder, (exporter.port, "/metrics")) as address:
            wait_up(address)
            counter = f"{FAMILY}_total[{LIVE_WINDOW_S}s]"
            deadline = time.monotonic() + 3 * LIVE_WINDOW_S
            # Once the window is full of samples; the counter was there before it began.
            while not ask(address, f"{FAMILY}_total offset {LIVE_WINDOW_S}s"):
                assert time.monotonic() < deadline
                threading.Event().wait(0.5)
            [found] = ask(address, f"increase({counter}) / {LIVE_WINDOW_S}")
    assert abs(float(found["value"][1]) - MEAN) < ONE_POINT


LIVE_WINDOW_S = 90


class LiveCard:
    """The mock driver's answers in real time: a load sampled each sixth of a second."""

    def __init__(self, answers: Path, load: Load) -> None:
        self.answers = answers
        self._load = load
        self._zero_us = (time.time_ns() // 1_000_000_000 - 60) * 1_000_000
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._play)
        self._say()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _play(self) -> None:
        while not self._stop.wait(0.1):
            self._say()

    def _say(self) -> None:
        """Replaced as a whole, for the driver reads while we write."""
        now_us = time.time_ns() // 1_000
        uuid = f"0 nvmlDeviceGetUUID 0 {CARD}"
        _, text = node(uuid, *driver_lines(self._load, PID, SIXTH_US, now_us, self._zero_us))
        draft = self.answers.with_suffix(".new")
        draft.write_text(str(text))
        draft.replace(self.answers)


IDLE = "0 nvmlDeviceGetProcessesUtilizationInfo"
BUSY_S, TROUBLE_S = 5, 7


def with_trouble(code: int) -> Callable[[int], Step]:
    """A steady 40 %, but for seven seconds in which the call for processes answers with a code."""

    def answers(now_us: int) -> Step:
        after_s = (now_us // 1_000_000) - START_MS // 1_000
        running = f"0 nvmlDeviceGetComputeRunningProcesses_v3 0 {PID} 104857600"
        if BUSY_S < after_s <= BUSY_S + TROUBLE_S:
            return node(running, f"{IDLE} {code}")
        return node(running, f"{IDLE} 0 {PID} {now_us} 40")

    return answers


def after_trouble(play: Play, folder: Path, code: int) -> tuple[float, float, str]:
    """SM seconds, unknown seconds and the page after 5 s of work, 7 s of trouble and 3 s of work."""
    at_ms = [1_000 * second for second in range(16)]
    pages = metered(folder, through_the_driver(play, at_ms, with_trouble(code)), at_ms)
    last = pages[-1]
    unknown_s = sum(
        map(float, re.findall(r"^slicemeter_slice_unknown_seconds_total\S+ (\S+)$", last, re.MULTILINE))
    )
    return found_on(last, f"{FAMILY}_total"), unknown_s, last


NOT_FOUND, UNKNOWN_ERROR, TIMEOUT = 6, 999, 10


def test_not_found_from_a_healthy_call_adds_zero_and_no_unknown_time(play: Play, tmp_path: Path) -> None:
    sm_s, unknown_s, _ = after_trouble(play, tmp_path / "node", NOT_FOUND)
    # Eight seconds of 40 %; the seven between were idle.
    assert sm_s == pytest.approx(3.2)
    assert unknown_s == 0


@pytest.mark.parametrize("code", [UNKNOWN_ERROR, TIMEOUT])
def test_a_failed_call_adds_unknown_seconds_by_reason_and_moves_no_counter(
    play: Play, tmp_path: Path, code: int
) -> None:
    sm_s, unknown_s, page = after_trouble(play, tmp_path / "node", code)
    # The first record after the trouble only sets the anchor anew: a second of it may be unknown too.
    assert unknown_s == found_on(page, "slicemeter_slice_unknown_seconds_total", 'reason="source_failed"')
    assert TROUBLE_S <= unknown_s <= TROUBLE_S + 1
    assert 2.8 - 1e-6 <= sm_s <= 3.2 + 1e-6
