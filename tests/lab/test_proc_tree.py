"""The simulated /proc: the exporter's own readers must find container and identity in it."""

from __future__ import annotations

from pathlib import Path

from exporter.node.sources.processes import HostProcess, ProcessTable
from lab.devices.proc_tree import ProcTree
from lab.devices.processes import processes_of
from lab.scenarios.demo import demo


def test_a_process_appears_with_its_container_its_two_pids_and_a_start_time(tmp_path: Path) -> None:
    cluster = demo(ends=True).cluster("lab-c")
    process = processes_of(cluster)[0]
    tree = ProcTree(tmp_path)

    tree.add(process)

    table = ProcessTable(tmp_path)
    table.begin([process.host_pid], 0)
    assert table.sees_host
    # idle-1 attaches at second 4: 400 ticks after the tree's zero of 100,000.
    assert table.look(process.host_pid) == HostProcess(
        process.host_pid, 100_400, 7, process.pod_uid, process.container_id
    )


def test_a_process_that_exited_leaves_nothing(tmp_path: Path) -> None:
    process = processes_of(demo(ends=True).cluster("lab-c"))[0]
    tree = ProcTree(tmp_path)
    tree.add(process)

    tree.remove(process)

    assert tree.pids() == []
