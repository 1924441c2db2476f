"""The simulated /proc: the exporter's own readers must find container and identity in it."""

from __future__ import annotations

from pathlib import Path

from lab.devices.proc_tree import ProcTree
from lab.devices.processes import processes_of
from lab.scenarios.demo import demo


def test_a_process_appears_with_its_container_its_two_pids_and_a_start_time(tmp_path: Path) -> None:
    cluster = demo(ends=True).cluster("lab-c")
    process = processes_of(cluster)[0]
    tree = ProcTree(tmp_path)

    tree.add(process)

    folder = tmp_path / str(process.host_pid)
    pod = process.pod_uid.replace("-", "_")
    assert f"-pod{pod}.slice/cri-containerd-{process.container_id}.scope" in (folder / "cgroup").read_text()
    assert f"NSpid:\t{process.host_pid}\t7\n" in (folder / "status").read_text()
    # idle-1 attaches at second 4: 400 ticks after the tree's zero of 100,000.
    assert (folder / "stat").read_text().rpartition(")")[2].split()[19] == "100400"


def test_a_process_that_exited_leaves_nothing(tmp_path: Path) -> None:
    process = processes_of(demo(ends=True).cluster("lab-c"))[0]
    tree = ProcTree(tmp_path)
    tree.add(process)

    tree.remove(process)

    assert tree.pids() == []
