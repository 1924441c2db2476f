"""The check on real hardware, against doubles of both driver libraries: its own arithmetic and its words.

The double of CUDA notes when its kernels ran; from these notes a thread writes what NVML would say.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.gpu_check import Comparison, sm_time
from benchmarks.gpu_load import beats
from tests.exporter.nvidia.driver import GCC, ROOT, build, environment, node

CHECK = ROOT / "benchmarks" / "gpu_check.py"
MOCK_CUDA = Path(__file__).with_name("mock_cuda.c")
MIB = 1_048_576
IDLE_MW, BUSY_MW = 40_000, 60_000


def _check(library: Path, answers: Path, *flags: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECK), *flags],
        env=environment(library, answers) | more,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with doubles of both libraries."""
    folder = build(tmp_path_factory.mktemp("gpu"))
    assert GCC is not None
    subprocess.run(
        [GCC, "-shared", "-fPIC", "-Wall", "-Werror", "-o", folder / "libcuda.so.1", MOCK_CUDA], check=True
    )
    return folder


def test_without_a_driver_it_says_so_and_nothing_failed(tmp_path: Path) -> None:
    done = _check(tmp_path, tmp_path / "answers")
    assert done.returncode == 0
    assert "no NVIDIA GPU is at hand, so nothing was checked" in done.stdout


def test_a_driver_without_cards_is_no_gpu_either(libraries: Path, tmp_path: Path) -> None:
    (tmp_path / "answers").write_text(str(node(cards=0)[1]))
    done = _check(libraries, tmp_path / "answers")
    assert (done.returncode, "lists no card" in done.stdout) == (0, True)


def test_a_card_that_others_use_is_described_and_left_alone(libraries: Path, tmp_path: Path) -> None:
    (tmp_path / "answers").write_text(
        str(
            node("0 nvmlDeviceGetComputeRunningProcesses_v3 0 4001 4096", "0 nvmlDeviceGetTemperature 0 41")[
                1
            ]
        )
    )
    done = _check(libraries, tmp_path / "answers")
    assert done.returncode == 0
    assert "card 0: Tesla T4, GPU-0, driver 550.54.15" in done.stdout
    lines = {
        line.split(maxsplit=1)[0]: line.split(maxsplit=1)[1]
        for line in done.stdout.splitlines()
        if line[:2] == "  "
    }
    assert lines["temperature_celsius"] == "41"
    assert lines["energy_mj"] == "not supported, or not known now"
    assert "no load was driven" in done.stdout


class Card:
    """What NVML says of a card on which the double of CUDA runs its kernels."""

    def __init__(self, folder: Path, *, shares: float = 1.0) -> None:
        self.notes, self.answers = folder / "notes", folder / "answers"
        self.notes.touch()
        self._begun_us = time.time_ns() // 1_000
        self._shares = shares
        self.say()

    def say(self) -> None:
        """Bring the answers up to this moment."""
        now_us = time.time_ns() // 1_000
        runs: dict[int, list[tuple[int, int]]] = {}
        for line in self.notes.read_text().splitlines():
            pid, *span = line.split()
            mine = runs.setdefault(int(pid), [])
            if len(span) == 2:
                mine.append((int(span[0]), int(span[1])))
        living = [pid for pid in runs if _lives(pid)]
        # One record a process and second, its mean over that second, for the last ten seconds.
        spacing_us = 1_000_000
        newest = now_us // spacing_us
        stamps = [stamp * spacing_us for stamp in range(newest - 9, newest + 1)]
        records, samples = [], []
        for stamp_us in stamps:
            percents = {
                pid: round(100 * _overlap(spans, stamp_us - spacing_us, stamp_us) / spacing_us)
                for pid, spans in runs.items()
            }
            records += [
                f"{pid} {stamp_us} {round(share * self._shares)}" for pid, share in percents.items() if share
            ]
            samples.append(f"{stamp_us} {min(100, sum(percents.values()))}")
        busy_us = sum(_overlap(spans, 0, now_us) for spans in runs.values())
        energy_mj = (IDLE_MW * (now_us - self._begun_us) + BUSY_MW * busy_us) // 1_000_000
        is_busy = any(_overlap(spans, now_us - 200_000, now_us) > 100_000 for spans in runs.values())
        listed = " ".join(f"{pid} {400 * MIB}" for pid in living)
        _, text = node(
            f"0 nvmlDeviceGetComputeRunningProcesses_v3 0 {listed}",
            f"0 nvmlDeviceGetProcessesUtilizationInfo 0 {' '.join(records)}",
            f"0 nvmlDeviceGetSamples 0 {' '.join(samples)}",
            f"0 nvmlDeviceGetTotalEnergyConsumption 0 {energy_mj}",
            f"0 nvmlDeviceGetPowerUsage 0 {IDLE_MW + BUSY_MW * is_busy}",
        )
        draft = self.answers.with_suffix(".new")
        draft.write_text(str(text))
        draft.replace(self.answers)

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Goes on to say it ten times a second."""
        stop = threading.Event()

        def speak() -> None:
            while not stop.wait(0.1):
                self.say()

        thread = threading.Thread(target=speak)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _overlap(spans: list[tuple[int, int]], from_us: int, to_us: int) -> int:
    return sum(max(0, min(end, to_us) - max(begin, from_us)) for begin, end in spans)


@pytest.mark.timed
@pytest.mark.parametrize(
    ("shares", "code"), [(1.0, 0), (0.5, 1)], ids=["a true driver", "one that says half"]
)
def test_what_was_driven_is_what_is_measured_unless_the_driver_lies(
    libraries: Path, tmp_path: Path, shares: float, code: int
) -> None:
    card = Card(tmp_path, shares=shares)
    with card.speaking():
        done = _check(libraries, card.answers, "--seconds", "8", MOCK_CUDA=str(card.notes))
    assert done.returncode == code, done.stdout + done.stderr
    verdicts = [line.split()[-1] for line in done.stdout.splitlines() if " ±" in line]
    # Nobody 1, full and duty cycle 3 each, two processes 4, killed 4, and the energy of it all.
    assert len(verdicts) == 16
    assert ("DIFFERS" in verdicts) == bool(code)


def test_one_sample_at_the_edges_and_five_percent_are_allowed() -> None:
    assert sm_time("x", 20.0, 22.0).agrees
    assert not sm_time("x", 20.0, 22.1).agrees
    assert not sm_time("x", 20.0, 17.9).agrees
    assert str(Comparison("x", 1, 3, 0, "s")).endswith("DIFFERS")


def test_a_duty_cycle_follows_the_wall_clock_and_leaves_no_period_out() -> None:
    now, begun = [100.3], []

    def wait(seconds: float) -> None:
        now[0] += seconds

    for _ in beats(4.0, 1_000, 500, now_s=lambda: now[0], wait=wait):
        begun.append(round(now[0], 3))
        now[0] += 0.3
    assert begun == [100.5, 101.5, 102.5, 103.5]


def test_a_load_without_a_pause_goes_on_though_each_period_ends_a_little_late() -> None:
    now, count = [100.0], 0

    def wait(seconds: float) -> None:
        now[0] += seconds

    for _ in beats(10.0, 100, 0, now_s=lambda: now[0], wait=wait):
        now[0] += 0.101
        count += 1
    assert 98 <= count <= 100


def test_without_cuda_the_load_ends_with_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(CHECK.with_name("gpu_load.py"))],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("gpu_load: libcuda.so.1 cannot be loaded")
    assert done.stderr.count("\n") == 1
