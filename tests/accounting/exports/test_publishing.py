"""A file bears its name only when it is whole, and replaces nothing that it was not told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from accounting.errors import ConflictError, InvalidError
from accounting.exports.publishing import published


def test_a_file_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "october.csv"
    with published(target) as file:
        file.write(b"half")
        assert not target.exists()
        file.write(b" and half")
    assert target.read_bytes() == b"half and half"
    assert [path.name for path in tmp_path.iterdir()] == ["october.csv"]


def fail_half_way(target: Path, *, is_forced: bool = False) -> None:
    with published(target, is_forced=is_forced) as file:
        file.write(b"half")
        raise RuntimeError


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        fail_half_way(tmp_path / "october.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_refused_before_any_work_and_stays(tmp_path: Path) -> None:
    target = tmp_path / "october.csv"
    target.write_bytes(b"old")
    with pytest.raises(ConflictError, match="--force"), published(target):
        pytest.fail("it began to work")
    assert target.read_bytes() == b"old"


def test_a_file_that_comes_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "october.csv"
    with pytest.raises(ConflictError), published(target):
        target.write_bytes(b"theirs")
    assert target.read_bytes() == b"theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["october.csv"]


def test_a_link_that_points_nowhere_counts_as_there(tmp_path: Path) -> None:
    target = tmp_path / "october.csv"
    target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConflictError), published(target):
        pytest.fail("it began to work")


def test_force_replaces_it_at_once_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "october.csv"
    target.write_bytes(b"old")
    with pytest.raises(RuntimeError):
        fail_half_way(target, is_forced=True)
    assert target.read_bytes() == b"old"
    with published(target, is_forced=True) as file:
        file.write(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="nowhere"), published(tmp_path / "nowhere" / "october.csv"):
        pytest.fail("it began to work")


def test_what_is_no_file_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for target in (pipe, tmp_path):
        with pytest.raises(InvalidError, match="is no file"), published(target, is_forced=True):
            pytest.fail("it began to work")
    assert pipe.is_fifo()


def test_a_name_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="cannot write"), published(tmp_path / ("x" * 250)):
        pytest.fail("it began to work")


@pytest.mark.parametrize("is_forced", [False, True])
def test_a_killed_program_leaves_the_name_as_it_was(tmp_path: Path, *, is_forced: bool) -> None:
    target = tmp_path / "october.csv"
    if is_forced:
        target.write_bytes(b"old")
    program = (
        "import sys; from pathlib import Path; from accounting.exports.publishing import published\n"
        f"with published(Path({str(target)!r}), is_forced={is_forced}) as file:\n"
        "    file.write(b'half'); file.flush(); print('writing', flush=True); sys.stdin.read()\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with running:
        assert running.stdout is not None
        assert running.stdout.readline() == "writing\n"
        os.kill(running.pid, signal.SIGKILL)
    assert target.exists() == is_forced
    if is_forced:
        assert target.read_bytes() == b"old"
