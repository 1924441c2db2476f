"""A node to test on: the real Kubernetes API double, real cache files, a scripted card, the real role."""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from contract.facts import Fact, decode_fact
from contract.ids import ClusterCode, DeviceUuid
from exporter.delivery.metrics import DeliveryMetrics
from exporter.delivery.state import StateFile, read_boot_id
from exporter.node.role import run
from exporter.nvidia.source import (
    BusySample,
    DeviceReading,
    MigInstance,
    ProcessMemory,
    SourceDownError,
    UtilizationSample,
    XidEvent,
)
from exporter.settings import AccountingAccess, NodeSettings
from lab.kube.double import ApiDouble
from lab.kube.json_object import JsonObject
from lab.workloads.region_writer import RegionFile

MIB = 1_048_576
CARD = "GPU-859b872c-0ba2-97b0-10b4-8b7185c55039"
NODE = "worker-1"
NODE_UID = "0d9ad4a1-9b58-4f66-8d0a-3f2c4b1e9a01"
DEADLINE_S = 20.0


class Card:
    """A scripted T4 behind the device source's interface; tests change its figures between ticks."""

    name = "nvml"

    def __init__(self) -> None:
        self.memory: dict[int, int] = {}
        self.shares: dict[int, int] = {}
        self.is_down = False
        self.failure: str | None = None
        self.instances: tuple[MigInstance, ...] | None = None
        self.instance_of: dict[int, int] = {}
        self.xids: list[int] = []
        self.has_samples = True
        self.opened = 0
        self.closed = 0
        self.reads = 0
        self.hang = threading.Event()
        self.release = threading.Event()

    def open(self) -> None:
        if self.is_down:
            raise SourceDownError("driver_not_loaded", "no driver")
        self.opened += 1

    def read(self) -> tuple[DeviceReading, ...]:
        if self.is_down:
            raise SourceDownError("driver_not_loaded", "no driver")
        if self.hang.is_set():
            self.release.wait(DEADLINE_S)
        self.reads += 1
        now_us = time.time_ns() // 1_000
        used = sum(self.memory.values())
        has_samples = self.has_samples and self.instances is None
        xids, self.xids = self.xids, []
        events = tuple(XidEvent(code, now_us // 1_000) for code in xids)
        if self.failure is not None:
            return (DeviceReading(DeviceUuid(CARD), 0, "Tesla T4", xids=events, failure=self.failure),)
        return (
            DeviceReading(
                uuid=DeviceUuid(CARD),
                index=0,
                model="Tesla T4",
                driver_version="550.163.01",
                memory_total_bytes=15_360 * MIB,
                memory_free_bytes=15_360 * MIB - 400 * MIB - used,
                memory_used_bytes=used,
                memory_reserved_bytes=400 * MIB,
                utilization_percent=(min(100, sum(self.shares.values())) if self.instances is None else None),
                processes=tuple(
                    ProcessMemory(pid, size, self.instance_of.get(pid)) for pid, size in self.memory.items()
                ),
                mode="hami-core" if self.instances is None else "mig",
                mig=self.instances,
                utilization=tuple(
                    UtilizationSample(pid, now_us, share) for pid, share in self.shares.items() if share
                )
                if has_samples
                else None,
                busy=(BusySample(now_us, min(100, sum(self.shares.values()))),) if has_samples else None,
                energy_mj=time.monotonic_ns() // 1_000_000 * 40,
                power_mw=40_000,
                power_limit_mw=70_000,
                temperature_celsius=41,
                xids=events,
            ),
        )

    def close(self) -> None:
        self.closed += 1


class Page:
    """A scraped page: values by name and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def find(self, name: str, **labels: str) -> list[float]:
        return [
            sample.value
            for sample in self.samples
            if sample.name == "slicemeter_" + name
            and all(sample.labels.get(key) == value for key, value in labels.items())
        ]

    def one(self, name: str, **labels: str) -> float | None:
        found = self.find(name, **labels)
        assert len(found) <= 1, f"{name}{labels}: {found}"
        return found[0] if found else None

    def labels(self, name: str, **labels: str) -> list[dict[str, str]]:
        return [
            sample.labels
            for sample in self.samples
            if sample.name == "slicemeter_" + name
            and all(sample.labels.get(key) == value for key, value in labels.items())
        ]


class Stand:
    """One node and its exporter."""

    def __init__(self, folder: Path, *, is_mock: bool = False) -> None:
        self.folder = folder
        self.root = folder / "containers"
        if not is_mock:
            self.root.mkdir()
        self.mig_lock = folder / "mig.lock"
        self.double = ApiDouble(folder / "kube", bookmark_interval_s=0.5)
        self.card = Card()
        self.source: Card | None = None if is_mock else self.card
        self._port = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.exit_code: int | None = None

    def open(self) -> None:
        self.double.create(
            "Namespace", {"metadata": {"name": "kube-system", "uid": "ks-uid"}, "kind": "Namespace"}
        )
        self.double.create(
            "Namespace",
            {
                "metadata": {
                    "name": "team",
                    "uid": "ns-uid",
                    "labels": {"capsule.clastix.io/tenant": "tenant-a"},
                },
                "kind": "Namespace",
            },
        )
        self.double.create(
            "Node",
            {
                "kind": "Node",
                "metadata": {
                    "name": NODE,
                    "uid": NODE_UID,
                    "annotations": {
                        "hami.io/node-nvidia-register": (
                            f"{CARD},10,15360,100,NVIDIA-Tesla T4,0,true,0,hami-core:"
                        )
                    },
                },
            },
        )
        self.double.start()

    def close(self) -> None:
        self.stop()
        self.double.stop()

    def settings(self, *, once: bool = False) -> NodeSettings:
        return NodeSettings(
            cluster=ClusterCode("c1"),
            kube=self.double.access,
            state_file=self.folder / "state.db",
            listen_host="127.0.0.1",
            listen_port=self._port,
            # Nobody listens there: facts wait in the outbox, where tests look at them.
            accounting=AccountingAccess("http://127.0.0.1:9", push_interval_seconds=1.0),
            node_name=NODE,
            container_roots=(self.root,),
            proc_root=None,
            sample_interval_seconds=0.2,
            mig_lock_file=self.mig_lock,
            once=once,
        )

    def start(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._port = int(server.getsockname()[1])
        self._stop = threading.Event()
        settings, source, stop = self.settings(), self.source, self._stop

        def serve() -> None:
            self.exit_code = run(settings, source, stop=stop)

        self._thread = threading.Thread(target=serve, name="role")
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self.card.release.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def page(self) -> Page:
        return Page(self.get("/metrics")[1])

    def wait_for(self, condition: Callable[[Page], bool]) -> Page:
        """The first page for which the condition holds."""
        deadline, page = time.monotonic() + DEADLINE_S, Page("")
        while time.monotonic() < deadline:
            page = self.page()
            if condition(page):
                return page
            threading.Event().wait(0.05)
        raise AssertionError("the condition never held; the last page:\n" + page.text)

    def wait_ready(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.get("/readyz")[0] != 200:
            assert time.monotonic() < deadline, self.get("/readyz")
            threading.Event().wait(0.05)

    def outbox(self) -> list[Fact]:
        """The facts that wait, read from the state file of an exporter that has ended."""
        path = self.folder / "state.db"
        state = StateFile.open(path, read_boot_id(), DeliveryMetrics(CollectorRegistry()))
        facts = [decode_fact(entry.line) for entry in state.batch(1_000).entries]
        state.close()
        return facts

    def region(self, pod: str, limit_mib: int = 4_000, sm_limit: int = 30) -> RegionFile:
        """The region that HAMi-core makes in a pod's container."""
        folder = self.root / f"uid-{pod}_main"
        folder.mkdir()
        return RegionFile(
            folder / "0b7f5c66-1111-4b5e-8f4b-000000000000.cache",
            uuids=[CARD],
            limits_bytes=[limit_mib * MIB],
            sm_limit_percent=sm_limit,
        )


def pod(
    name: str,
    *,
    memory_mib: int = 4_000,
    cores: int = 30,
    uid: str | None = None,
    env: Sequence[JsonObject] = (),
    allocated: bool = True,
) -> JsonObject:
    """A bound, running pod with one GPU container."""
    annotations = {
        "hami.io/vgpu-node": NODE,
        "hami.io/vgpu-devices-allocated": f"{CARD},NVIDIA,{memory_mib},{cores}:;",
    }
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory_mib)}
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 60)),
    }
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": uid or f"uid-{name}",
            "annotations": annotations if allocated else {},
        },
        "spec": {
            "nodeName": NODE,
            "schedulerName": "hami-scheduler",
            "containers": [
                {"name": "main", "resources": {"limits": limits if allocated else {}}, "env": list(env)}
            ],
        },
        "status": {"phase": "Running", "conditions": [scheduled]},
    }
