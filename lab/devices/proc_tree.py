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


class ProcTree:
    """Folders of living processes below a root."""

    def __init__(self, root: Path) -> None:
        self._root = root
        boot = root / "sys/kernel/random"
        boot.mkdir(parents=True)
        (boot / "boot_id").write_text(f"{uuid.uuid4()}\n", "utf-8")

    def add(self, process: GpuProcess) -> None:
        """The process has started."""
        pid = process.host_pid
        draft = self._root / f".{pid}"
        draft.mkdir()
        (draft / "cgroup").write_text(f"0::{_cgroup(process)}\n", "utf-8")
        status = f"Name:\tpython\nPid:\t{pid}\nNSpid:\t{pid}\t{CONTAINER_PID}\n"
        (draft / "status").write_text(status, "utf-8")
        # Field 22 is the start time in ticks; the others do not matter to a reader of identity.
        fields = ["S", "1", *["0"] * 17, str(100_000 + process.begins_ms // 10), *["0"] * 30]
        (draft / "stat").write_text(f"{pid} (python) {' '.join(fields)}\n", "utf-8")
        draft.replace(self._root / str(pid))

    def remove(self, process: GpuProcess) -> None:
        """The process has exited."""
        grave = self._root / f".{process.host_pid}"
        (self._root / str(process.host_pid)).replace(grave)
        shutil.rmtree(grave)

    def pids(self) -> list[int]:
        """Who lives."""
        return sorted(int(name) for name in os.listdir(self._root) if name.isdigit())  # noqa: PTH208


def _cgroup(process: GpuProcess) -> str:
    """The path under systemd's driver and containerd."""
    uid = process.pod_uid.replace("-", "_")
    return (
        "/kubepods.slice/kubepods-besteffort.slice/"
        f"kubepods-besteffort-pod{uid}.slice/cri-containerd-{process.container_id}.scope"
    )
