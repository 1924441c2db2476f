"""A node whose time passes only when a test says so: the real role, its page over HTTP, its state file.

The API double, the cache files and the device source are those of every other test; only the sampler's
thread is missing, so that an hour takes a second and every figure can be computed by hand.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from contract.ids import DeviceUuid
from exporter.exposition.encoder import PageEncoder
from exporter.kube import feed
from exporter.kube.feed import Timing
from exporter.kube.objects import Pod
from exporter.node import role
from exporter.node.clock import Instant
from exporter.node.snapshot import Snapshot
from exporter.nvidia.source import DeviceReading, DeviceSource, ProcessMemory, UtilizationSample
from exporter.settings import AccountingAccess, NodeSettings
from lab.kube.json_object import JsonObject
from tests.exporter.node.proc import FakeProc
from tests.exporter.node.stand import CARD, DEADLINE_S, MIB, NODE, Stand

START_MS = 1_790_000_000_000
"""2026-09-21 14:13:20 UTC."""

HOUR_MS = 3_600_000


class PlayedCard:
    """A T4 that says what the test sets, with the test's stamps."""

    name = "nvml"

    def __init__(self) -> None:
        self.memory: dict[int, int] = {}
        self.shares: dict[int, int] | None = {}
        self.energy_mj: int | None = None
        self.now_ms = 0

    def open(self) -> None:
        pass

    def read(self) -> tuple[DeviceReading, ...]:
        used, shares = sum(self.memory.values()), self.shares
        return (
            DeviceReading(
                uuid=DeviceUuid(CARD),
                index=0,
                model="Tesla T4",
                memory_total_bytes=15_360 * MIB,
                memory_free_bytes=15_360 * MIB - used,
                memory_used_bytes=used,
                memory_reserved_bytes=0,
                processes=tuple(ProcessMemory(pid, size) for pid, size in self.memory.items()),
                utilization=None
                if shares is None
                else tuple(UtilizationSample(pid, self.now_ms * 1_000, each) for pid, each in shares.items()),
                energy_mj=self.energy_mj,
                power_limit_mw=70_000,
            ),
        )

    def close(self) -> None:
        pass


class ClockedStand(Stand):
    """One node, ticked by hand.

    Args:
        folder: For everything on disk.
        patch: Puts our clock in the place of the system's.
        device_source: The node's cards; a `PlayedCard` is told the time.
        proc: The host's processes; None = they cannot be seen.
    """

    def __init__(
        self,
        folder: Path,
        patch: pytest.MonkeyPatch,
        device_source: DeviceSource | None,
        proc: FakeProc | None = None,
    ) -> None:
        super().__init__(folder)
        self.at_ms = START_MS
        self.device_source = device_source
        self.proc = proc
        self._role: role._Role | None = None
        self._encoder = PageEncoder()
        patch.setattr(role, "system_clock", self.now)
        # Patience is real time, of which there is little.
        patch.setattr(feed, "Timing", partial(Timing, first_wait_s=0.01, ceiling_s=0.05))

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now(self) -> Instant:
        """The same moment on all three clocks."""
        since_boot_ms = self.at_ms - START_MS + HOUR_MS
        return Instant(self.at_ms, since_boot_ms, since_boot_ms)

    def settings(self, *, once: bool = False) -> NodeSettings:
        proc_root = None if self.proc is None else self.proc.root
        return dataclasses.replace(
            super().settings(once=once),
            proc_root=proc_root,
            sample_interval_seconds=1.0,
            # Nobody listens there: facts wait in the outbox, where tests look at them.
            accounting=AccountingAccess("http://127.0.0.1:9", push_interval_seconds=300.0),
        )

    @property
    def sampler_role(self) -> role._Role:
        assert self._role is not None
        return self._role

    def start(self, without: Sequence[str] = ()) -> None:
        """Start the exporter, without its sampler's and its pusher's thread.

        Args:
            without: What stays missing.
        """
        self._role = made = role._Role(self.settings(), self.device_source, threading.Event())
        assert made._server is not None
        self._port = made._server.port
        made._parts.watches.start()
        made._server.start()
        deadline = time.monotonic() + DEADLINE_S
        while made._parts.watches.missing() != list(without):
            assert time.monotonic() < deadline, made._parts.watches.missing()
            threading.Event().wait(0.005)

    def tick(self, after_ms: int = 1_000) -> Snapshot:
        """Let time pass, then take one look."""
        self.at_ms += after_ms
        if isinstance(self.device_source, PlayedCard):
            self.device_source.now_ms = self.at_ms
        return self.sampler_role._sampler.tick(lambda _seconds: None)

    def openmetrics(self) -> str:
        """The page as Prometheus takes it, without the exporter's own process."""
        page = self.sampler_role._board.latest()
        assert page is not None
        return self._encoder.render(page, openmetrics=True).decode()

    def know_pods(self, names: Sequence[str]) -> None:
        """Wait until the watch knows exactly these pods."""
        deadline = time.monotonic() + DEADLINE_S
        while sorted(self._known()) != sorted(names):
            assert time.monotonic() < deadline, self._known()
            threading.Event().wait(0.005)

    def _known(self) -> list[str]:
        pods: list[Pod] = list(self.sampler_role._parts.watches.pods().objects.values())
        return [pod.metadata.name for pod in pods]

    def stop(self) -> None:
        """A clean end."""
        made, self._role = self._role, None
        if made is None:
            return
        made._sampler.finish()
        made._parts.watches.stop()
        assert made._server is not None
        made._server.stop()
        assert made._store is not None
        made._store.close()


def pod_at(
    name: str,
    bound_ms: int,
    *,
    uid: str | None = None,
    memory_mib: int = 4_000,
    cores: int = 30,
    container_id: str = "",
    allocated: bool = True,
) -> JsonObject:
    """A running pod with one GPU container, bound at a time."""
    bound = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(bound_ms // 1_000))
    annotations = {
        "hami.io/vgpu-node": NODE,
        "hami.io/vgpu-devices-allocated": f"{CARD},NVIDIA,{memory_mib},{cores}:;",
    }
    limits = {"nvidia.com/gpu": "1"} if allocated else {}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": uid or f"uid-{name}",
            "annotations": annotations if allocated else {},
        },
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}],
            "containerStatuses": (
                [{"name": "main", "containerID": f"containerd://{container_id}"}] if container_id else []
            ),
        },
    }
