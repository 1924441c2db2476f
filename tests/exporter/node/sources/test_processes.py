"""The host's processes, from a tiny /proc and from the real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.node.sources.processes import HostProcess, ProcessTable, inner_pid_of, start_ticks_of
from tests.exporter.node.proc import FakeProc, systemd_path

UID = "0d9ad4a1-9b58-4f66-8d0a-3f2c4b1e9a01"
ID, OTHER_ID = "5f0a" * 16, "9c3e" * 16


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


@pytest.fixture
def table(proc: FakeProc) -> ProcessTable:
    found = ProcessTable(proc.root)
    found.begin(None, 0)
    return found


def test_a_process_has_its_start_its_inner_pid_its_pod_and_its_container(
    proc: FakeProc, table: ProcessTable
) -> None:
    proc.add(4_100, 7, cgroup=systemd_path(UID, ID), start=123)
    assert table.look(4_100) == HostProcess(4_100, 123, 7, UID, ID)
    assert table.look(4_101) is None
    assert table.look(0) is None


def test_a_pid_that_is_used_again_is_another_process(proc: FakeProc, table: ProcessTable) -> None:
    proc.add(4_100, 7, cgroup=systemd_path(UID, ID), start=123)
    before = table.look(4_100)
    proc.remove(4_100)
    table.begin(None, 1_000)
    assert table.look(4_100) is None
    proc.add(4_100, 7, cgroup=systemd_path(UID, OTHER_ID), start=456)
    table.begin(None, 2_000)
    after = table.look(4_100)
    assert before is not None
    assert (before.start_ticks, before.container_id) == (123, ID)
    assert after == HostProcess(4_100, 456, 7, UID, OTHER_ID)


def test_a_known_process_is_not_read_again(proc: FakeProc, table: ProcessTable) -> None:
    proc.add(4_100, 7, cgroup=systemd_path(UID, ID))
    first = table.look(4_100)
    # Written in place, the folder stays the same one.
    (proc.root / "4100" / "cgroup").write_text("0::/\n")
    table.begin(None, 60_000)
    assert table.look(4_100) is first


def test_a_process_outside_of_pods_is_looked_at_again_after_a_few_seconds_only(
    proc: FakeProc, table: ProcessTable
) -> None:
    proc.add(4_100, 7)
    assert table.look(4_100) == HostProcess(4_100, 1_000, 7)
    (proc.root / "4100" / "cgroup").write_text(f"0::{systemd_path(UID, ID)}\n")
    table.begin(None, 4_000)
    assert table.look(4_100) == HostProcess(4_100, 1_000, 7)
    table.begin(None, 5_000)
    assert table.look(4_100) == HostProcess(4_100, 1_000, 7, UID, ID)


def test_a_process_whose_files_cannot_be_read_is_none(proc: FakeProc, table: ProcessTable) -> None:
    (proc.root / "4100").mkdir()
    assert table.look(4_100) is None


def test_a_proc_of_another_pid_namespace_is_not_the_hosts(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path / "proc", is_hosts=False)
    proc.add(2, name="python")
    table = ProcessTable(proc.root)
    table.begin([5_000, 5_001], 0)
    assert not table.sees_host


def test_one_listed_pid_that_exists_here_too_proves_nothing(tmp_path: Path) -> None:
    proc = FakeProc(tmp_path / "proc", is_hosts=False)
    proc.add(25)
    table = ProcessTable(proc.root)
    table.begin([25, 5_000], 0)
    assert not table.sees_host
    proc.add(5_000)
    table.begin([25, 5_000], 1_000)
    assert table.sees_host
    # While nothing is listed there is nothing to judge by.
    table.begin([], 2_000)
    assert table.sees_host


def test_without_a_proc_nothing_is_seen() -> None:
    table = ProcessTable(None)
    table.begin([os.getpid()], 0)
    assert not table.sees_host
    assert table.look(os.getpid()) is None


def test_processes_of_a_pod_are_found_by_their_inner_pid(proc: FakeProc, table: ProcessTable) -> None:
    proc.add(4_100, 7, cgroup=systemd_path(UID, ID))
    proc.add(4_101, 7, cgroup=systemd_path(UID, OTHER_ID))
    proc.add(4_102, 8, cgroup=systemd_path(UID, ID))
    proc.add(4_103, 7)
    found = table.inside(UID, 7, 0)
    assert found is not None
    assert {process.pid for process in found} == {4_100, 4_101}
    assert table.inside(UID, 9, 0) == []


def test_the_host_is_searched_again_only_after_a_while_and_then_finds_the_new(
    proc: FakeProc, table: ProcessTable
) -> None:
    assert table.inside(UID, 7, 0) == []
    proc.add(4_100, 7, cgroup=systemd_path(UID, ID))
    table.begin(None, 1_000)
    # An answer as of a second ago is there; a fresh one is not to be had yet.
    assert table.inside(UID, 7, 0) == []
    assert table.inside(UID, 7, 1_000) is None
    table.begin(None, 2_000)
    found = table.inside(UID, 7, 1_000)
    assert found is not None
    assert [process.pid for process in found] == [4_100]


def test_a_process_found_by_a_search_and_gone_since_is_not_given_again(
    proc: FakeProc, table: ProcessTable
) -> None:
    proc.add(4_100, 7, cgroup=systemd_path(UID, ID))
    assert table.inside(UID, 7, 0)
    proc.remove(4_100)
    table.begin(None, 100)
    assert table.inside(UID, 7, 0) == []


def test_a_containers_first_process_is_found_although_it_started_outside_of_its_cgroup(
    proc: FakeProc, table: ProcessTable
) -> None:
    proc.add(4_100, 1)
    assert table.inside(UID, 1, 0) == []
    (proc.root / "4100" / "cgroup").write_text(f"0::{systemd_path(UID, ID)}\n")
    table.begin(None, 2_000)
    found = table.inside(UID, 1, 2_000)
    assert found is not None
    assert [process.pid for process in found] == [4_100]


def test_our_own_process_is_read_from_the_real_proc() -> None:
    table = ProcessTable(Path("/proc"))
    table.begin([os.getpid()], 0)
    assert table.sees_host
    found = table.look(os.getpid())
    assert found is not None
    assert found.start_ticks > 0
    assert found.inner_pid is not None


@pytest.mark.parametrize(
    ("name", "ticks"), [("python", 42), ("a) S 1 2 3 (b", 42), (") ) )", 42), ("with space\nand line", 42)]
)
def test_the_start_time_is_counted_after_the_last_bracket(name: str, ticks: int) -> None:
    # state is field 3, so 18 fields lie between it and field 22.
    assert start_ticks_of(f"7 ({name}) S {' '.join(['9'] * 18)} {ticks} 0 0") == ticks


def test_the_inner_pid_is_the_last_of_the_namespaces() -> None:
    assert inner_pid_of("Name:\tx\nNSpid:\t41000\t812\t7\n") == 7
    assert inner_pid_of("Name:\tx\nNSpid:\t41000\n") == 41_000
    assert inner_pid_of("Name:\tx\nPid:\t41000\n") is None


@given(st.text(max_size=200))
def test_any_text_is_a_whole_number_or_none(text: str) -> None:
    for found in (inner_pid_of(f"NSpid:{text}"), start_ticks_of(text)):
        assert found is None or found >= 0
