"""The footprint: numbers out of a /proc whose files a test wrote."""

from __future__ import annotations

import os
from pathlib import Path

from lab.footprint import FootprintMeter

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


def process(root: Path, pid: int, pages: int, user_ticks: int, system_ticks: int) -> None:
    folder = root / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "statm").write_text(f"9999 {pages} 1 1 0 1 0\n")
    # state is field 3; user and system time are fields 14 and 15.
    (folder / "stat").write_text(f"{pid} (a (b) c) S {'0 ' * 10}{user_ticks} {system_ticks} 0 0\n")


def test_memory_is_the_sum_of_resident_sets_and_cores_the_time_spent_since_the_last_reading(
    tmp_path: Path,
) -> None:
    meter = FootprintMeter(tmp_path)
    process(tmp_path, 1, 100, 0, 0)
    process(tmp_path, 2, 50, 10 * TICKS, 0)
    first = meter.read([1, 2], at_s=0.0)
    process(tmp_path, 1, 80, TICKS, TICKS // 2)
    process(tmp_path, 2, 50, 10 * TICKS, TICKS // 2)

    second = meter.read([1, 2], at_s=4.0)

    assert (first.memory_bytes, first.cores) == (150 * PAGE, 0.0)
    assert (second.memory_bytes, second.cores) == (130 * PAGE, 0.5)
    assert (meter.peak.memory_bytes, meter.peak.cores) == (150 * PAGE, 0.5)


def test_a_process_that_has_ended_counts_for_nothing(tmp_path: Path) -> None:
    assert FootprintMeter(tmp_path).read([7], at_s=0.0).memory_bytes == 0
