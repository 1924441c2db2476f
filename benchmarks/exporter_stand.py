"""A node full of slices for benchmarks: HAMi's tree, a small copy of `/proc`, pods, and scripted cards.

Ten slices share a card, each with two living processes. What is written by `work` is what containers
write within a second: SM figures and the last kernel's time in all, memory in a tenth of the slots.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from contract.ids import DeviceUuid
from exporter.nvidia.source import BusySample, DeviceReading, ProcessMemory, UtilizationSample
from lab.workloads.region_writer import ProcessSlot, RegionFile

MIB = 1 << 20
SLICES_A_CARD = 10
NODE = "node-1"
FIRST_PID = 100_000


class Cards:
    """Scripted cards; without samples the cache is the only one to measure SM time."""

    name = "nvml"

    def __init__(
        self, processes: Sequence[Sequence[int]], clock_ms: Callable[[], int], *, has_samples: bool
    ) -> None:
        self._processes = processes
        self._clock_ms = clock_ms
        self._has_samples = has_samples

    def open(self) -> None:
        """Nothing to open."""

    def read(self) -> tuple[DeviceReading, ...]:
        """All cards now."""
        now_ms = self._clock_ms()
        return tuple(self._card(index, pids, now_ms) for index, pids in enumerate(self._processes))

    def close(self) -> None:
        """Nothing to let go of."""

    def _card(self, index: int, pids: Sequence[int], now_ms: int) -> DeviceReading:
        stamp_us = now_ms * 1_000
        return DeviceReading(
            uuid=card_uuid(index),
            index=index,
            model="NVIDIA A100-SXM4-80GB",
            driver_version="550.163.01",
            memory_total_bytes=81_920 * MIB,
            memory_free_bytes=40_000 * MIB,
            memory_used_bytes=41_000 * MIB,
            memory_reserved_bytes=600 * MIB,
            utilization_percent=80,
            processes=tuple(ProcessMemory(pid, 1_100 * MIB) for pid in pids),
            utilization=tuple(UtilizationSample(pid, stamp_us, 4) for pid in pids)
            if self._has_samples
            else None,
            busy=(BusySample(stamp_us, 80),) if self._has_samples else None,
            energy_mj=now_ms * 300,
            power_mw=300_000,
            power_limit_mw=400_000,
            temperature_celsius=60,
            sm_clock_hz=1_410_000_000,
            memory_clock_hz=1_593_000_000,
        )


class FullNode:
    """A node with so many slices on disk.

    Args:
        folder: Where `proc` and `containers` are made.
        slices: How many.
    """

    def __init__(self, folder: Path, slices: int) -> None:
        self.count = slices
        self.proc, self.tree = folder / "proc", folder / "containers"
        self._uids = [str(uuid.UUID(int=(1 << 124) + number)) for number in range(slices)]
        self._ids = [f"{number + 1:064x}" for number in range(slices)]
        self._regions: list[RegionFile] = []
        self._slots: list[ProcessSlot] = []
        self.proc.mkdir()
        self.tree.mkdir()
        self._write_process(2, 2, "/", "kthreadd")
        for number in range(slices):
            self._make_container(number)

    def work(self, tick: int) -> None:
        """What containers write within a second."""
        for number, slot in enumerate(self._slots):
            slot.set_sm(0, 4 + tick % 2)
            slot.set_monitorused(0, 550 * MIB)
            if number % 10 == tick % 10:
                slot.set_memory(0, context_bytes=105 * MIB, data_bytes=(400 + tick % 40) * MIB)
        for region in self._regions:
            region.record_kernel()

    def pods(self) -> list[dict[str, Any]]:
        """The pods, as the API server has them."""
        return [self._pod(number) for number in range(self.count)]

    def close(self) -> None:
        """Let go of the regions."""
        for region in self._regions:
            region.close()

    def _make_container(self, number: int) -> None:
        folder = self.tree / f"{self._uids[number]}_main"
        folder.mkdir()
        region = RegionFile(
            folder / "region.cache",
            uuids=[card_uuid(number // SLICES_A_CARD)],
            limits_bytes=[4_000 * MIB],
            sm_limit_percent=10,
        )
        self._regions.append(region)
        pids = pids_of(number)
        uid = self._uids[number].replace("-", "_")
        cgroup = f"/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{self._ids[number]}.scope"
        for inner, pid in enumerate(pids, 7):
            slot = region.attach(inner, pid)
            slot.set_memory(0, context_bytes=105 * MIB, data_bytes=445 * MIB)
            self._slots.append(slot)
            self._write_process(pid, inner, cgroup, "python")

    def _write_process(self, pid: int, inner_pid: int, cgroup: str, name: str) -> None:
        folder = self.proc / str(pid)
        folder.mkdir()
        (folder / "comm").write_text(f"{name}\n")
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        (folder / "status").write_text(f"Name:\t{name}\nNSpid:\t{pid}\t{inner_pid}\n")
        (folder / "stat").write_text(f"{pid} ({name}) S {'0 ' * 18}{pid} 0 0\n")

    def _pod(self, number: int) -> dict[str, Any]:
        card = card_uuid(number // SLICES_A_CARD)
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "10"}
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-01T00:00:00Z"}
        started = {"running": {"startedAt": "2026-11-01T00:00:05Z"}}
        return {
            "metadata": {
                "name": f"worker-{number}",
                "namespace": "team",
                "uid": self._uids[number],
                "annotations": {
                    "hami.io/vgpu-node": NODE,
                    "hami.io/vgpu-devices-allocated": f"{card},NVIDIA,4000,10:;",
                },
            },
            "spec": {
                "nodeName": NODE,
                "schedulerName": "hami-scheduler",
                "containers": [{"name": "main", "resources": {"limits": limits}}],
            },
            "status": {
                "phase": "Running",
                "conditions": [scheduled],
                "containerStatuses": [
                    {"name": "main", "containerID": f"containerd://{self._ids[number]}", "state": started}
                ],
            },
        }


def pids_of(number: int) -> list[int]:
    """Host pids of a slice's processes."""
    return [FIRST_PID + 2 * number, FIRST_PID + 1 + 2 * number]


def processes_of(slices: int) -> list[list[int]]:
    """Host pids by card."""
    cards: list[list[int]] = [[] for _ in range(cards_of(slices))]
    for number in range(slices):
        cards[number // SLICES_A_CARD] += pids_of(number)
    return cards


def cards_of(slices: int) -> int:
    """How many cards so many slices need."""
    return -(-slices // SLICES_A_CARD)


def node_object(slices: int) -> dict[str, Any]:
    """The Node, as the API server has it."""
    register = "".join(
        f"{card_uuid(index)},10,81920,100,NVIDIA-NVIDIA A100-SXM4-80GB,0,true,{index},hami-core:"
        for index in range(cards_of(slices))
    )
    return {
        "metadata": {
            "name": NODE,
            "uid": "node-uid",
            "annotations": {"hami.io/node-nvidia-register": register},
        }
    }


def card_uuid(index: int) -> DeviceUuid:
    """The name of a card."""
    return DeviceUuid(f"GPU-{index:08d}-0ba2-97b0-10b4-8b7185c55039")
