"""Two thousand pods through one exporter process: memory, descriptors, threads and series come back.

What each slice did in an hour is kept until the hour is over, so an hour passes after each five hundred.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.exporter.node.program import Program
from tests.exporter.node.stand import CARD, MIB, Page, Stand, pod
from tests.exporter.nvidia.driver import build, environment, node

WAVE, WAVES, HOURS = 50, 10, 4
HOUR_MS = 3_600_000

CODE = """
import os, pathlib, sys
from exporter.node import role

hours = pathlib.Path(os.environ['HOURS_FILE'])
now = role.system_clock


def later():
    passed_ms = 3_600_000 * int(hours.read_text())
    at = now()
    return type(at)(at.wall_ms + passed_ms, at.monotonic_ms + passed_ms, at.boot_ms + passed_ms)


role.system_clock = later
from slicemeter.exporter import main
sys.exit(main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Footprint:
    """What a process holds."""

    rss_bytes: int
    descriptors: int
    threads: int


def footprint(pid: int) -> Footprint:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return Footprint(
        pages * os.sysconf("SC_PAGE_SIZE"),
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
        len(list(Path(f"/proc/{pid}/task").iterdir())),
    )


@pytest.fixture
def exporter(stand: Stand, tmp_path: Path) -> Iterator[Program]:
    """One process whose driver answers for one card, and which looks five times a second."""
    (tmp_path / "nvml").mkdir()
    answers = tmp_path / "answers"
    _, text = node(f"0 nvmlDeviceGetUUID 0 {CARD}", "0 nvmlDeviceGetTotalEnergyConsumption 0 5")
    answers.write_text(str(text))
    (tmp_path / "hours").write_text("0")
    environ = environment(build(tmp_path / "nvml"), answers) | {"HOURS_FILE": str(tmp_path / "hours")}
    flags = {"--sample-interval-seconds": "0.2", "--ended-keep-seconds": "0"}
    with Program(tmp_path, stand.double, environ=environ, flags=flags, code=CODE) as found:
        yield found


def wave(stand: Stand, exporter: Program, number: int) -> None:
    """Pods that come with their regions, are metered and shown, and go with them."""
    names = [f"job-{number}-{each}" for each in range(WAVE)]
    for name in names:
        with stand.region(name) as region:
            region.attach(7, 4_711).set_memory(0, data_bytes=64 * MIB)
        stand.double.create("Pod", pod(name, memory_mib=100, cores=0))
    exporter.wait_for(lambda page: len(page.find("slice_memory_used_bytes")) == WAVE)
    for name in names:
        stand.double.delete("Pod", "team", name)
        shutil.rmtree(stand.root / f"uid-{name}_main")
    exporter.wait_for(lambda page: not any(each.labels.get("pod") for each in page.samples))


def series(page: Page) -> set[str]:
    return {
        f"{each.name}{sorted(each.labels.items())}"
        for each in page.samples
        if each.name.startswith("slicemeter_")
    }


def at_rest(exporter: Program, path: Path, hour: int) -> tuple[Footprint, set[str]]:
    """What is held once the hour is over, and the series of the page then."""
    draft = path.with_suffix(".new")
    draft.write_text(str(hour))
    draft.replace(path)
    begun_s = time.time() + (hour - 0.5) * HOUR_MS / 1_000
    seen = exporter.wait_for(lambda page: (page.one("snapshot_timestamp_seconds") or 0) > begun_s)
    stamp = seen.one("snapshot_timestamp_seconds") or 0
    page = exporter.wait_for(lambda page: (page.one("snapshot_timestamp_seconds") or 0) > stamp + 1)
    return footprint(exporter.pid), series(page)


@pytest.mark.slow
def test_two_thousand_pods_leave_no_memory_no_descriptor_no_thread_and_no_series_behind(
    stand: Stand, exporter: Program, tmp_path: Path
) -> None:
    exporter.wait_for(lambda page: page.one("collector_success", collector="pods") == 1)
    held: list[Footprint] = []
    shown: list[set[str]] = []
    for hour in range(HOURS):
        for number in range(WAVES):
            wave(stand, exporter, hour * WAVES + number)
        found, page = at_rest(exporter, tmp_path / "hours", hour + 1)
        held.append(found)
        shown.append(page)

    first, last = held[0], held[-1]
    assert last.rss_bytes < 1.05 * first.rss_bytes, held
    # A connection of a scrape may still be closing.
    assert last.descriptors <= first.descriptors + 1
    assert last.threads <= first.threads + 1
    assert shown[-1] == shown[0]
