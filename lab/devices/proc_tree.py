"""A `/proc` of the simulated node: just what tells a process's container and identity.

The exporter reads it through its setting `proc_root`, as it reads the host's /proc mounted in a
container. Formats: `reference/metering.md §5`. Invariant: a pid's folder appears and vanishes whole.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from lab.devices.processes import CONTAINER_PID, GpuProcess

KERNEL_PID = 2
"""The kernel's thread parent, by which a reader knows the host's own pid namespace."""


class ProcTree:
    """Folders of living processes below a root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        boot = root / "sys/kernel/random"
        boot.mkdir(parents=True)
        (boot / "boot_id").write_text(f"{uuid.uuid4()}\n", "utf-8")
        self._write(KERNEL_PID, "kthreadd", "/", f"{KERNEL_PID}", 0)

    def add(self, process: GpuProcess) -> None:
        """The process has started."""
        pid = process.host_pid
        start_ticks = 100_000 + process.begins_ms // 10
        self._write(pid, "python", _cgroup(process), f"{pid}\t{CONTAINER_PID}", start_ticks)

    def remove(self, process: GpuProcess) -> None:
        """The process has exited."""
        grave = self._root / f".{process.host_pid}"
        (self._root / str(process.host_pid)).replace(grave)
        shutil.rmtree(grave)

    def pids(self) -> list[int]:
        """Who lives, the kernel's own left out."""
        names = os.listdir(self._root)  # noqa: PTH208
        return sorted({int(name) for name in names if name.isdigit()} - {KERNEL_PID})

    def _write(self, pid: int, name: str, cgroup: str, inner_pids: str, start_ticks: int) -> None:
        draft = self._root / f".{pid}"
        draft.mkdir()
        (draft / "comm").write_text(f"{name}\n", "utf-8")
        (draft / "cgroup").write_text(f"0::{cgroup}\n", "utf-8")
        (draft / "status").write_text(f"Name:\t{name}\nPid:\t{pid}\nNSpid:\t{inner_pids}\n", "utf-8")
        # Field 22 is the start time in ticks; the others do not matter to a reader of identity.
        fields = ["S", "1", *["0"] * 17, str(start_ticks), *["0"] * 30]
        (draft / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n", "utf-8")
        draft.replace(self._root / str(pid))


def _cgroup(process: GpuProcess) -> str:
    """The path under systemd's driver and containerd."""
    uid = process.pod_uid.replace("-", "_")
    return (
        "/kubepods.slice/kubepods-besteffort.slice/"
        f"kubepods-besteffort-pod{uid}.slice/cri-containerd-{process.container_id}.scope"
    )
