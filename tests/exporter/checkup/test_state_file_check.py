"""The check of the state file: what is wrong with the place, and that a running exporter never notices."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.checkup import statefile
from exporter.checkup.finding import Line
from exporter.checkup.statefile import look_at_state_file

HOLDER = """\
import sys
from pathlib import Path
from prometheus_client import CollectorRegistry
from exporter.delivery.metrics import DeliveryMetrics
from exporter.delivery.state import StateFile
state = StateFile.open(Path(sys.argv[1]), "boot-1", DeliveryMetrics(CollectorRegistry()))
state.commit(b"one", [])
print("holds", flush=True)
for line in sys.stdin:
    print(state.commit(line.encode(), []), flush=True)
state.close()
"""


def look(path: Path) -> Line:
    (line,) = look_at_state_file(path).lines
    return line


def hold(path: Path) -> subprocess.Popen[str]:
    """An exporter's state file in a process of its own: a process does not see its own locks."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "holds\n"
    return process


def test_a_file_that_a_running_exporter_holds_is_ok_and_the_exporter_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with hold(path) as process:
        before = sorted(each.name for each in tmp_path.iterdir())
        line = look(path)
        assert (line.verdict, line.detail) == (
            "ok", f"{path}: writable, in use by the exporter with pid {process.pid}",
        )  # fmt: skip
        assert sorted(each.name for each in tmp_path.iterdir()) == before
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("two\n")
        process.stdin.flush()
        assert process.stdout.readline() == "True\n"
        process.stdin.close()
        assert process.wait(30) == 0


def test_a_file_that_nobody_holds_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with hold(path) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
    before = path.read_bytes()
    line = look(path)
    assert (line.verdict, line.detail) == (
        "ok", f"{path}: writable, no exporter holds it, 0 facts wait in it",
    )  # fmt: skip
    assert [each.name for each in tmp_path.iterdir()] == ["state.db"]
    assert path.read_bytes() == before


def test_a_file_of_an_exporter_that_was_killed_is_left_for_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with hold(path) as process:
        process.kill()
        process.wait()
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert look(path).verdict == "note"
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_a_damaged_file_is_a_finding_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"no database at all" * 100)
    line = look(path)
    assert (line.verdict, "damaged" in line.detail) == ("finding", True)
    assert path.read_bytes() == b"no database at all" * 100


def test_a_file_of_another_version_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    line = look(path)
    assert (line.verdict, "another version (7)" in line.detail) == ("finding", True)


def test_a_file_that_can_be_made_is_ok_and_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.db"
    assert look(path).verdict == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_place_below_a_file_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = look(tmp_path / "file" / "state.db")
    assert (line.verdict, "--state-file" in line.way_out) == ("finding", True)


def test_a_folder_in_the_files_place_is_a_finding(tmp_path: Path) -> None:
    line = look(tmp_path)
    assert (line.verdict, "is no file" in line.detail) == ("finding", True)


def test_a_place_without_room_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statefile, "NEEDED_BYTES", 1 << 62)
    line = look(tmp_path / "state.db")
    assert (line.verdict, "MiB free" in line.detail) == ("finding", True)
