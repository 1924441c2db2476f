"""A node for tests of attribution: a tree on disk, pods and cards given tick by tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from contract.ids import DeviceUuid
from exporter.hami.annotations.node_register import parse_node_register
from exporter.hami.annotations.tally import FlawTally
from exporter.hami.resources import ResourceNames
from exporter.kube.objects import Meta, Namespace, Pod
from exporter.kube.tenant import DEFAULT_TENANT_FROM, parse_tenant_rules
from exporter.kube.view import View
from exporter.node.attribution.joining import Sources
from exporter.node.attribution.owners import Attribution, Attributor
from exporter.node.attribution.residents import Residents
from exporter.node.sources.caches import CacheReader
from exporter.node.sources.liveness import Liveness
from exporter.node.sources.pods import PodBook
from exporter.node.sources.processes import ProcessTable
from exporter.node.tallies import Tallies
from exporter.nvidia.source import DeviceReading, ProcessMemory
from lab.workloads.region_writer import RegionFile

MIB = 1_048_576
A, B = "GPU-aaaaaaaa-0000-4000-8000-000000000000", "GPU-bbbbbbbb-0000-4000-8000-000000000000"
NAMESPACES = View(
    MappingProxyType(
        {"ns": Namespace(Meta(name="team", uid="ns", labels={"capsule.clastix.io/tenant": "t1"}))}
    ),
    listed=True,
    confirmed_at_ms=1,
)


def pod_of(
    name: str,
    devices: str,
    containers: Sequence[str] = ("main*",),
    *,
    init: Sequence[str] = (),
    env: Mapping[str, str] = MappingProxyType({}),
    phase: str = "Running",
    uid: str = "",
    ids: Mapping[str, str] = MappingProxyType({}),
    more: Mapping[str, str] = MappingProxyType({}),
) -> Pod:
    """A bound pod; containers with a star ask for a GPU, `ids` are what the kubelet told of them."""

    def container(text: str) -> dict[str, Any]:
        wants = text.endswith("*")
        return {
            "name": text.rstrip("*"),
            "resources": {"limits": {"nvidia.com/gpu": "1"} if wants else {}},
            "env": [{"name": key, "value": value} for key, value in env.items()],
        }

    annotations = {"hami.io/vgpu-node": "n", "hami.io/vgpu-devices-allocated": devices} if devices else {}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-10-01T00:00:00Z"}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": uid or f"uid-{name}",
                "annotations": {**annotations, **more},
            },
            "spec": {
                "nodeName": "n",
                "initContainers": [container(each) for each in init],
                "containers": [container(each) for each in containers],
            },
            "status": {
                "phase": phase,
                "conditions": [scheduled],
                "containerStatuses": [
                    {"name": container, "containerID": number} for container, number in ids.items()
                ],
            },
        },
        Pod,
    )


def card_of(uuid: str, processes: Mapping[int, int | None] | None, **fields: Any) -> DeviceReading:
    return DeviceReading(
        uuid=DeviceUuid(uuid),
        index=0,
        model="NVIDIA A100",
        memory_total_bytes=81_920 * MIB,
        processes=(
            None if processes is None else tuple(ProcessMemory(pid, used) for pid, used in processes.items())
        ),
        utilization=(),
        **fields,
    )


class Node:
    """A node whose tree is on disk and whose pods and cards are given tick by tick.

    Args:
        folder: HAMi's tree.
        proc_root: The host's processes; None = they cannot be seen.
    """

    def __init__(self, folder: Path, proc_root: Path | None = None) -> None:
        self.root = folder
        self.tallies = Tallies()
        self.flaws = FlawTally()
        self.sources: Sources | None = None
        self.caches = CacheReader([folder], self.tallies)
        self.book = PodBook(ResourceNames(), parse_tenant_rules(DEFAULT_TENANT_FROM), self.flaws)
        self.attributor = Attributor(Residents(ProcessTable(proc_root), Liveness()), self.tallies)
        self.registered = {
            each.uuid: each
            for each in parse_node_register(
                f"{A},10,81920,100,NVIDIA-A100,0,true:{B},10,81920,100,NVIDIA-A100,0,true:"
            ).devices
        }

    def region(self, pod: str, container: str, uuids: Sequence[str] = (A,), **fields: Any) -> RegionFile:
        folder = self.root / f"uid-{pod}_{container}"
        folder.mkdir(exist_ok=True)
        name = f"{len(list(folder.iterdir()))}.cache"
        limits = [4_000 * MIB] * len(uuids)
        return RegionFile(folder / name, uuids=uuids, limits_bytes=limits, **fields)

    def look(
        self, pods: Sequence[Pod], *cards: DeviceReading, looks: int = 0, at_ms: int = 1_000
    ) -> Attribution:
        view = View(
            MappingProxyType({pod.metadata.uid: pod for pod in pods}), listed=True, confirmed_at_ms=1_000
        )
        self.sources = Sources(
            at_ms=at_ms,
            sight=self.book.look(view, [], NAMESPACES, at_ms),
            registered=self.registered,
            readings={card.uuid: card for card in cards},
            survey=self.caches.survey(looks=looks, wait=lambda _seconds: None),
            had_readings=bool(cards),
        )
        return self.attributor.attribute(self.sources)
