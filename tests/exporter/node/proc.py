"""A tiny `/proc` that tests fill and empty: only what tells a process's identity and container."""

from __future__ import annotations

import shutil
from pathlib import Path


def systemd_path(pod_uid: str, container_id: str) -> str:
    """A container's cgroup under systemd's driver and containerd."""
    pod = pod_uid.replace("-", "_")
    return f"/kubepods.slice/kubepods-pod{pod}.slice/cri-containerd-{container_id}.scope"


class FakeProc:
    """The host's processes; pid 2 is the kernel's, as on every host."""

    def __init__(self, root: Path, *, is_hosts: bool = True) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        if is_hosts:
            self.add(2, cgroup="/", name="kthreadd")

    def add(
        self,
        pid: int,
        inner_pid: int | None = None,
        *,
        cgroup: str = "/",
        start: int = 1_000,
        name: str = "python",
    ) -> None:
        folder = self.root / str(pid)
        folder.mkdir()
        numbers = f"{pid}" if inner_pid is None else f"{pid}\t{inner_pid}"
        (folder / "comm").write_text(f"{name}\n")
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        (folder / "status").write_text(f"Name:\t{name}\nPid:\t{pid}\nNSpid:\t{numbers}\nThreads:\t1\n")
        (folder / "stat").write_text(
            f"{pid} ({name}) S {' '.join(['0'] * 18)} {start} {' '.join(['0'] * 30)}\n"
        )

    def remove(self, pid: int) -> None:
        shutil.rmtree(self.root / str(pid))
