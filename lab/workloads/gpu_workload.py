"""The containers of a real node: their directories, their processes, and the regions those write.

What HAMi's device plugin and HAMi-core leave on the host, played as cues: a directory when a pod was
served, a region when its process attaches, memory and SM samples as they come, an orderly exit.
Invariant: region, /proc and the simulated cards tell of the same processes, from one plan.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from contract.units import MIB
from lab.devices.proc_tree import ProcTree
from lab.devices.processes import CONTAINER_PID, GpuProcess
from lab.scenarios.plan import ClusterPlan, PodPlan
from lab.scenarios.player import Cue
from lab.scenarios.timeline import ALLOCATE_TAKES_S
from lab.workloads.region_writer import ProcessSlot, RegionFile

WRITABLE_BY_ALL = 0o777
"""Mode of a container's directory: it is mounted into the tenant's container."""


@dataclass(slots=True)
class _Running:
    """A process that lives, and what it has written so far."""

    region: RegionFile
    slot: ProcessSlot
    data_bytes: int = field(default=0)


class Containers:
    """All containers of a cluster's one node.

    Args:
        cluster: The plan.
        processes: Its GPU processes.
        root: HAMi's tree of container directories; made here unless the node is a mock.
        proc: The node's /proc.
    """

    def __init__(
        self, cluster: ClusterPlan, processes: Sequence[GpuProcess], root: Path, proc: ProcTree
    ) -> None:
        self._cluster = cluster
        self._processes = processes
        self._root = root
        self._proc = proc
        self._running: dict[int, _Running] = {}
        self._regions: list[RegionFile] = []
        if not cluster.is_mock:
            root.mkdir(parents=True)

    def streams(self) -> Iterator[Iterator[Cue]]:
        """The cues of the device plugin, and those of each process."""
        if self._cluster.is_mock:
            return
        served = sorted(
            (pod.bound_s + ALLOCATE_TAKES_S / 2, pod.name, pod)
            for pod in self._cluster.pods
            if pod.holds_slice and pod.bound_s is not None and not pod.keeps_lock
        )
        yield (Cue(at_s, partial(self._serve, pod)) for at_s, _, pod in served)
        for process in self._processes:
            yield self._life(process)

    def close(self) -> None:
        """Let go of every region; the files stay."""
        for region in self._regions:
            region.close()
        self._regions.clear()

    def _folder(self, pod: PodPlan) -> Path:
        return self._root / f"{self._cluster.pod_uid(pod)}_{pod.container}"

    def _serve(self, pod: PodPlan) -> None:
        """What the device plugin leaves: a directory with the library's mount point."""
        folder = self._folder(pod)
        folder.mkdir()
        folder.chmod(WRITABLE_BY_ALL)
        (folder / "libvgpu.so").touch()

    def _life(self, process: GpuProcess) -> Iterator[Cue]:
        work, begins_s = process.work, process.work.begins_s
        name = f"{self._cluster.code}: {process.pod.name}"
        yield Cue(begins_s, partial(self._attach, process), f"{name} opens the GPU")
        for step in work.allocations:
            at_s = begins_s + step.after_ms / 1_000
            if step.refused:
                yield Cue(at_s, lambda: None, f"{name} is refused {step.mib} MiB more")
            else:
                yield Cue(at_s, partial(self._allocate, process, step.mib * MIB))
        if work.sm_percent:
            yield from self._samples(process)
        if work.ends_s is not None:
            yield Cue(work.ends_s, partial(self._exit, process))

    def _samples(self, process: GpuProcess) -> Iterator[Cue]:
        """What HAMi-core's watcher notes, second by second."""
        at_ms = process.begins_ms
        while process.ends_ms is None or at_ms < process.ends_ms:
            for end_ms, percent in process.samples(at_ms, at_ms + process.sample_ms):
                yield Cue(end_ms / 1_000, partial(self._note_sm, process, percent))
            at_ms += process.sample_ms

    def _attach(self, process: GpuProcess) -> None:
        pod = process.pod
        self._proc.add(process)
        region = RegionFile(
            self._folder(pod) / f"{uuid.uuid4()}.cache",
            uuids=[process.device_uuid],
            limits_bytes=[pod.memory_mib * MIB],
            sm_limit_percent=pod.core_percent,
        )
        self._regions.append(region)
        slot = region.attach(CONTAINER_PID, process.host_pid)
        slot.set_memory(0, context_bytes=process.work.context_mib * MIB)
        slot.set_monitorused(0, process.work.context_mib * MIB)
        self._running[process.host_pid] = _Running(region, slot)

    def _allocate(self, process: GpuProcess, size_bytes: int) -> None:
        running = self._running[process.host_pid]
        running.data_bytes += size_bytes
        running.slot.set_memory(0, data_bytes=running.data_bytes)
        running.slot.set_monitorused(0, process.work.context_mib * MIB + running.data_bytes)

    def _note_sm(self, process: GpuProcess, percent: int) -> None:
        running = self._running[process.host_pid]
        running.slot.set_sm(0, percent)
        if percent:
            running.region.record_kernel()

    def _exit(self, process: GpuProcess) -> None:
        self._running.pop(process.host_pid).slot.exit()
        self._proc.remove(process)
