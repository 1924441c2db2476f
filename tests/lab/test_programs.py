"""Programs of the demo: started, killed, stopped, and named with their log's end when they die."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lab.processes import Household, LabError, Program


def sleeper(folder: Path, name: str = "node lab-a") -> Program:
    return Program(name, [sys.executable, "-c", "import time; time.sleep(600)"], folder / "log")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_program_that_dies_is_named_with_its_exit_code_and_the_end_of_its_log(tmp_path: Path) -> None:
    code = "import sys; print('port 9476 is taken'); sys.exit(3)"
    household = Household()
    program = household.add(Program("cluster lab-b", [sys.executable, "-c", code], tmp_path / "log"))
    program.wait(30)

    with pytest.raises(LabError, match=r"cluster lab-b ended by itself with exit code 3(.|\n)*port 9476"):
        household.check()


def test_a_killed_program_is_no_failure_and_can_be_started_again(tmp_path: Path) -> None:
    household = Household()
    program = household.add(sleeper(tmp_path))
    first = program.pid

    program.kill()
    household.check()
    program.start()

    assert program.pid not in {None, first}
    household.stop()
    assert household.pids() == []


def test_stopping_ends_every_program_even_one_that_ignores_the_polite_signal(tmp_path: Path) -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print(1, flush=True); time.sleep(600)"
    )
    household = Household()
    program = household.add(Program("deaf", [sys.executable, "-c", deaf], tmp_path / "log"))
    household.add(sleeper(tmp_path, "other"))
    while not program.tail().strip().endswith("1"):
        program.check()
    pids = household.pids()

    household.stop(within_s=0.2)

    assert len(pids) == 2
    assert not any(is_alive(pid) for pid in pids)
