"""What a pod asks HAMi for: the resource names, which are configurable, and the quantities behind them.

Invariant: limits are read first, then requests, as HAMi does; a quantity that is no whole number asks for
nothing.

Source: `reference/hami-kubernetes.md §4, §6`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from contract.facts import ContainerKind
from exporter.hami.annotations.containers import ContainerRole, PodLayout
from exporter.kube.objects import Container, Pod

_QUANTITY = re.compile(r"(?P<number>[0-9]{1,15})(?P<suffix>|[kMGTP]|[KMGTP]i|e[0-9])", re.ASCII)
_FACTORS = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("kMGTP", 1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTP", 1)},
    **{f"e{power}": 10**power for power in range(10)},
}

_DOMAINS = {
    "cambricon": "cambricon.com",
    "dcu": "hygon.com",
    "iluvatar": "iluvatar.ai",
    "mr": "iluvatar.ai",
    "bi": "iluvatar.ai",
    "enflame": "enflame.com",
    "metax": "metax-tech.com",
    "kunlun": "kunlunxin.com",
    "xpu": "kunlunxin.com",
    "mthreads": "mthreads.com",
    "amd": "amd.com",
    "aws": "aws.amazon.com",
}
_NATIVE_DOMAINS = ("kubernetes.io", "k8s.io")


@dataclass(frozen=True, slots=True)
class ResourceNames:
    """Names under which HAMi's resources go in this cluster, and HAMi's factor of memory.

    Attributes:
        count: Number of GPUs of a container.
        memory_mib: MiB per GPU, times `memory_factor`.
        memory_percent: Percent of the registered memory.
        core_percent: Percent of a card per GPU.
        memory_factor: The device config's `memoryFactor`.
    """

    count: str = "nvidia.com/gpu"
    memory_mib: str = "nvidia.com/gpumem"
    memory_percent: str = "nvidia.com/gpumem-percentage"
    core_percent: str = "nvidia.com/gpucores"
    memory_factor: int = 1


@dataclass(frozen=True, slots=True)
class Request:
    """What one container asks for, per GPU.

    Attributes:
        count: Number of GPUs, each on a card of its own.
        memory_mib: None: not given; without a percentage too, HAMi gives the whole card.
        memory_percent: None: not given, or `memory_mib` is (it wins).
        core_percent: 0: none requested.
    """

    container: str
    kind: ContainerKind
    count: int
    memory_mib: int | None
    memory_percent: int | None
    core_percent: int


def whole_quantity(value: str | int | None) -> int | None:
    """A Kubernetes quantity as a whole number; None for none, fractions and nonsense."""
    if isinstance(value, int):
        return value if value >= 0 else None
    match = _QUANTITY.fullmatch(value) if value else None
    return int(match["number"]) * _FACTORS[match["suffix"]] if match else None


def quantity_of(container: Container, resource: str) -> int | None:
    """What a container asks for of one resource; None when it does not name it."""
    resources = container.resources
    value = resources.limits.get(resource, resources.requests.get(resource))
    return whole_quantity(value)


def kinds_of(pod: Pod) -> tuple[tuple[Container, ContainerKind], ...]:
    """All containers in order, init containers first; one that restarts always is a sidecar."""
    init: list[tuple[Container, ContainerKind]] = [
        (container, "sidecar" if container.restart_policy == "Always" else "init")
        for container in pod.spec.init_containers
    ]
    return (*init, *((container, "app") for container in pod.spec.containers))


def requests_of(pod: Pod, names: ResourceNames) -> tuple[Request, ...]:
    """The pod's requests for slices; empty for a pod that wants none."""
    requests = []
    for container, kind in kinds_of(pod):
        count = quantity_of(container, names.count)
        if not count:
            continue
        memory = quantity_of(container, names.memory_mib)
        percent = quantity_of(container, names.memory_percent)
        request = Request(
            container=container.name,
            kind=kind,
            count=count,
            memory_mib=memory * names.memory_factor if memory else None,
            memory_percent=percent if percent and not memory else None,
            core_percent=min(quantity_of(container, names.core_percent) or 0, 100),
        )
        requests.append(request)
    return tuple(requests)


def layout_of(pod: Pod, names: ResourceNames, family: str = "vgpu") -> PodLayout:
    """The pod's containers, and which of them ask for a device family (`vgpu` is NVIDIA's)."""
    return PodLayout(
        tuple(
            ContainerRole(container.name, kind, _asks(container, names, family))
            for container, kind in kinds_of(pod)
        )
    )


def _asks(container: Container, names: ResourceNames, family: str) -> bool:
    if family == "vgpu":
        return bool(quantity_of(container, names.count) or quantity_of(container, "volcano.sh/vgpu-number"))
    word = family.lower().partition("-")[0]
    domain = "huawei.com" if word.startswith("ascend") else _DOMAINS.get(word)
    resources = {**container.resources.requests, **container.resources.limits}
    for name, value in resources.items():
        host, separator, _ = name.partition("/")
        if not separator or not whole_quantity(value) or host.endswith(_NATIVE_DOMAINS):
            continue
        if host == domain or (domain is None and not names.count.startswith(f"{host}/")):
            return True
    return False
