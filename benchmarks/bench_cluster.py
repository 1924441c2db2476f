"""What a large cluster costs both roles, over the API double: memory, bytes, the first complete page, churn.

Run: python benchmarks/bench_cluster.py [--nodes 100] [--pods-per-node 30] [--rounds 4] [--markdown]

Objects have the size of real ones (managed fields, volumes, tolerations). A third of the pods hold a slice
of one of their node's eight cards. Each role runs as a process of its own. The cluster role meets a cluster
of a tenth, and then the whole; the node role meets the same two clusters on the same node, and must not be
able to tell them apart. Then the cluster churns: in each round a tenth of the GPU pods are replaced
and every node's heartbeat changes; after each round memory and requests are read again. Seconds are of
the processor of the exporter's process alone, since the double takes its time, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.exporter_footprint import free_port
from lab.kube.double import ApiDouble

Role = Literal["cluster", "node"]

MIB = 1 << 20
PATIENCE_S = 900.0
LOOK_S = 0.1
NAMESPACES = 200
CARDS = 8
WATCHED = "gpu-0001"
"""The node whose exporter is measured."""

_FIELDS: dict[str, Any] = {
    f"f:field-{number}": {".": {}, "f:name": {}, "f:value": {}} for number in range(12)
}
MANAGED_FIELDS = [
    {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-11-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": _FIELDS, "f:spec": {"f:containers": {'k:{"name":"main"}': _FIELDS}}},
    }
    for manager in ("kube-controller-manager", "kubelet")
]


@dataclass(frozen=True, slots=True)
class Cluster:
    """How large a cluster is."""

    nodes: int
    pods_per_node: int

    @property
    def pods(self) -> int:
        """All of them."""
        return self.nodes * self.pods_per_node

    @property
    def slices(self) -> int:
        """Pods that hold one."""
        return self.nodes * len(gpu_numbers(self))


def gpu_numbers(cluster: Cluster) -> range:
    """Which of a node's pods hold a slice: every third."""
    return range(0, cluster.pods_per_node, 3)


def card(node: str, number: int) -> str:
    """A card's name, its own in the whole cluster."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}-{number}')}"


def node_object(name: str, beat: int) -> dict[str, Any]:
    """A node with eight cards; `beat` is its heartbeat."""
    register = "".join(
        f"{card(name, number)},10,81920,100,NVIDIA-NVIDIA A100-SXM4-80GB,0,true,{number},hami-core:"
        for number in range(CARDS)
    )
    at = f"2026-11-01T{beat // 60 % 24:02}:{beat % 60:02}:00Z"
    return {
        "metadata": {
            "name": name,
            "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
            "labels": {f"label.example/{number}": "true" for number in range(20)},
            "annotations": {"hami.io/node-nvidia-register": register},
            "managedFields": MANAGED_FIELDS,
        },
        "status": {
            "capacity": {"cpu": "128", "memory": "1056Gi", "nvidia.com/gpu": "80"},
            "allocatable": {"cpu": "127", "memory": "1050Gi", "nvidia.com/gpu": "80"},
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "lastHeartbeatTime": at,
                    "lastTransitionTime": "2026-11-01T00:00:00Z",
                }
            ],
            "images": [
                {"names": [f"registry.example/image-{number}@sha256:{number:064x}"], "sizeBytes": 1 << 30}
                for number in range(50)
            ],
        },
    }


def pod_object(node: str, number: int, generation: int = 0) -> dict[str, Any]:
    """A running pod; every third holds a tenth of a card."""
    name = f"{node}-pod-{number}-{generation}"
    is_gpu = number % 3 == 0
    limits = {"cpu": "4", "memory": "16Gi"}
    annotations = {"checksum/config": "0" * 64}
    if is_gpu:
        limits |= {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000", "nvidia.com/gpucores": "10"}
        annotations |= {
            "hami.io/vgpu-node": node,
            "hami.io/vgpu-time": "1793491200",
            "hami.io/bind-phase": "success",
            "hami.io/bind-time": "1793491200",
            "hami.io/vgpu-devices-allocated": f"{card(node, number // 3 % CARDS)},NVIDIA,8000,10:;",
            "hami.io/vgpu-devices-to-allocate": ";",
        }
    mounts = [{"name": f"volume-{each}", "mountPath": f"/mnt/volume-{each}"} for each in range(6)]
    container = {
        "name": "main",
        "image": f"registry.example/team/image@sha256:{number:064x}",
        "env": [{"name": f"VARIABLE_{each}", "value": f"the value of variable {each}"} for each in range(12)],
        "resources": {"limits": limits, "requests": limits},
        "volumeMounts": mounts,
    }
    stamp = "2026-11-01T00:00:00Z"
    return {
        "metadata": {
            "name": name,
            "namespace": f"team-{number % NAMESPACES}",
            "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
            "labels": {"app": "worker", "pod-template-hash": "7b9f6d5c4d"},
            "annotations": annotations,
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "worker", "uid": name}
            ],
            "managedFields": MANAGED_FIELDS,
        },
        "spec": {
            "nodeName": node,
            "schedulerName": "hami-scheduler" if is_gpu else "default-scheduler",
            "containers": [container],
            "volumes": [{"name": f"volume-{each}", "emptyDir": {}} for each in range(6)],
            "tolerations": [{"key": f"key-{each}", "operator": "Exists"} for each in range(4)],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": stamp}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "containerID": f"containerd://{number:064x}",
                    "image": "registry.example/team/image",
                    "state": {"running": {"startedAt": stamp}},
                }
            ],
        },
    }


def fill(double: ApiDouble, cluster: Cluster) -> None:
    """All objects of a cluster."""
    for name in ("kube-system", "default", *(f"team-{number}" for number in range(NAMESPACES))):
        double.store.create("Namespace", {"metadata": {"name": name, "managedFields": MANAGED_FIELDS}})
    for number in range(1, cluster.nodes + 1):
        node = f"gpu-{number:04}"
        double.store.create("Node", node_object(node, 0))
        for each in range(cluster.pods_per_node):
            double.store.create("Pod", pod_object(node, each))


def churn(double: ApiDouble, cluster: Cluster, generation: int) -> int:
    """Replace one GPU pod of each node and beat every heart; returns how many changes that is."""
    numbers = gpu_numbers(cluster)
    number = numbers[(generation - 1) % len(numbers)]
    before = (generation - 1) // len(numbers)
    for each in range(1, cluster.nodes + 1):
        node = f"gpu-{each:04}"
        old = pod_object(node, number, before)["metadata"]
        double.store.delete("Pod", old["namespace"], old["name"])
        double.store.create("Pod", pod_object(node, number, before + 1))
        double.store.apply("Node", node_object(node, generation))
    return 3 * cluster.nodes


@dataclass(frozen=True, slots=True)
class Cost:
    """What one exporter costs in one cluster.

    Attributes:
        ready_s: From the start of the process to a complete page.
        ready_cpu_s: The same in seconds of its processor.
        rss_mib: After the first page; `peak_mib`: the most until the end.
        list_bytes: Of all lists.
        rounds_mib: Resident memory after each round of churn.
        rounds_watch_bytes: Bytes of watches in each round.
        rounds_cpu_s: Its processor time in each round.
        lists: How often it listed, at the first page and at the end.
    """

    role: Role
    nodes: int
    pods: int
    ready_s: float
    ready_cpu_s: float
    rss_mib: float
    peak_mib: float
    list_bytes: int
    page_bytes: int
    rounds_mib: tuple[float, ...]
    rounds_watch_bytes: tuple[int, ...]
    rounds_cpu_s: tuple[float, ...]
    lists: tuple[int, int]


@contextmanager
def running(role: Role, double: ApiDouble, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """An exporter as users run it, and its port."""
    port = free_port()
    settings = {
        "--cluster": "bench",
        "--kube-api-url": double.url,
        "--kube-ca-file": str(double.ca_file),
        "--kube-token-file": str(double.token_file),
        "--state-file": str(folder / f"{role}-{port}.db"),
        "--listen-host": "127.0.0.1",
        "--listen-port": str(port),
        "--series-budget": "1000000",
    }
    if role == "node":
        settings |= {"--node-name": WATCHED, "--container-roots": str(folder / "none"), "--proc-root": ""}
    words = [word for setting in settings.items() for word in setting]
    with (folder / f"{role}.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "slicemeter", "exporter", role, *words], stderr=log)
    try:
        yield process, port
    finally:
        process.terminate()
        process.wait()


def get(port: int, path: str) -> tuple[int, bytes]:
    """Status and body; 0 while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except OSError:
        return 0, b""


def wait_until(process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
    """Look until it holds."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise SystemExit("bench_cluster: the exporter ended, or its page was never complete")
        threading.Event().wait(LOOK_S)


def memory_mib(pid: int, field: str) -> float:
    """`VmRSS` or `VmHWM` of a process."""
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith(field + ":"):
            return round(int(line.split()[1]) / 1024, 1)
    raise SystemExit(f"bench_cluster: /proc/{pid}/status has no {field}")


def cpu_s(pid: int) -> float:
    """Seconds of processor that a process has spent."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_complete(role: Role, cluster: Cluster, port: int) -> bool:
    """Whether the page counts every slice that this role is to see."""
    if get(port, "/readyz")[0] != 200:
        return False
    page = get(port, "/metrics")[1].decode()
    if role == "node":
        return page.count("\nslicemeter_slice_info{") == len(gpu_numbers(cluster))
    held = [
        float(line.rpartition(" ")[2])
        for line in page.splitlines()
        if line.startswith("slicemeter_node_gpu_slots{") and 'state="allocated"' in line
    ]
    return sum(held) == cluster.slices


def measure(role: Role, cluster: Cluster, rounds: int) -> Cost:
    """Run one role in one cluster."""
    with tempfile.TemporaryDirectory() as name, ApiDouble(Path(name) / "api") as double:
        folder = Path(name)
        fill(double, cluster)
        log = double.request_log
        begun_s = time.perf_counter()
        with running(role, double, folder) as (process, port):
            wait_until(process, lambda: is_complete(role, cluster, port))
            ready_s, ready_cpu_s = time.perf_counter() - begun_s, cpu_s(process.pid)
            rss, first_lists, list_bytes = (
                memory_mib(process.pid, "VmRSS"),
                log.count("list"),
                log.sent_bytes("list"),
            )
            page_bytes = len(get(port, "/metrics")[1])
            mibs, sent, spent = [], [], []
            for generation in range(1, rounds + 1):
                before, spent_before = log.sent_bytes("watch"), cpu_s(process.pid)
                churn(double, cluster, generation)
                wait_until(process, lambda: is_quiet(double))
                wait_until(process, lambda: is_complete(role, cluster, port))
                mibs.append(memory_mib(process.pid, "VmRSS"))
                sent.append(log.sent_bytes("watch") - before)
                spent.append(round(cpu_s(process.pid) - spent_before, 2))
            return Cost(
                role=role,
                nodes=cluster.nodes,
                pods=cluster.pods,
                ready_s=round(ready_s, 1),
                ready_cpu_s=round(ready_cpu_s, 1),
                rss_mib=rss,
                peak_mib=memory_mib(process.pid, "VmHWM"),
                list_bytes=list_bytes,
                page_bytes=page_bytes,
                rounds_mib=tuple(mibs),
                rounds_watch_bytes=tuple(sent),
                rounds_cpu_s=tuple(spent),
                lists=(first_lists, log.count("list")),
            )


def is_quiet(double: ApiDouble) -> bool:
    """Whether no watch has sent anything for a while."""
    before = double.request_log.sent_bytes("watch")
    threading.Event().wait(2.5)
    return double.request_log.sent_bytes("watch") == before


HEADS = (
    "role", "nodes", "pods", "page s", "CPU s", "RSS MiB", "peak MiB", "lists MB", "lists", "after churn MiB",
    "watch MB a round", "CPU s a round",
)  # fmt: skip


def row(cost: Cost) -> tuple[str, ...]:
    """One line of the table."""
    megabytes = [sent / 1e6 for sent in cost.rounds_watch_bytes]
    return (
        cost.role,
        f"{cost.nodes:,}",
        f"{cost.pods:,}",
        f"{cost.ready_s}",
        f"{cost.ready_cpu_s}",
        f"{cost.rss_mib}",
        f"{cost.peak_mib}",
        f"{cost.list_bytes / 1e6:.1f}",
        f"{cost.lists[0]} → {cost.lists[1]}",
        ", ".join(f"{mib:.0f}" for mib in cost.rounds_mib),
        f"{min(megabytes):.2f}–{max(megabytes):.2f}",
        f"{min(cost.rounds_cpu_s)}–{max(cost.rounds_cpu_s)}",
    )


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods-per-node", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--roles", nargs="+", choices=["node", "cluster"], default=["node", "cluster"])
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/sizing.md")
    options = parser.parse_args()
    whole = Cluster(options.nodes, options.pods_per_node)
    tenth = Cluster(max(1, options.nodes // 10), options.pods_per_node)
    roles: list[Role] = options.roles
    costs = [measure(role, size, options.rounds) for role in roles for size in (tenth, whole)]
    if options.markdown:
        print("| " + " | ".join(HEADS) + " |")
        print("|" + "---|" * len(HEADS))
        for cost in costs:
            print("| " + " | ".join(row(cost)) + " |")
    else:
        for cost in costs:
            print("; ".join(f"{head}: {value}" for head, value in zip(HEADS, row(cost), strict=True)))
    print(json.dumps({"benchmark": "cluster", "rows": [asdict(cost) for cost in costs]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
