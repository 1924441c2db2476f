"""Which container an entry belongs to, and whose a cache directory really is.

HAMi versions pad the entries in different ways (and 2.10.0 loses the padding), but the order of the
filled entries always equals the order of the containers that ask for the resource. Invariant: devices
whose container cannot be told are kept under the name None, never dropped.

Source: `reference/hami-kubernetes.md §3.3, §3.4, §3.5`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from contract.facts import ContainerKind
from exporter.hami.annotations.flaw import Flaw, flaw
from exporter.hami.annotations.pod_devices import KIND, Entry, GrantedDevice, PodDevices


@dataclass(frozen=True, slots=True)
class ContainerRole:
    """One container of the pod: its name, what it is, and whether it asks for the resource."""

    name: str
    kind: ContainerKind
    is_requester: bool


@dataclass(frozen=True, slots=True)
class PodLayout:
    """The pod's containers: init containers (sidecars among them) first, then app containers."""

    containers: tuple[ContainerRole, ...]

    @property
    def apps(self) -> tuple[ContainerRole, ...]:
        """`spec.containers`, which is what HAMi ≤ 2.8 counted over."""
        return tuple(container for container in self.containers if container.kind == "app")

    @property
    def requesters(self) -> tuple[ContainerRole, ...]:
        """Those that ask for the resource, in order."""
        return tuple(container for container in self.containers if container.is_requester)

    def kind_of(self, name: str) -> ContainerKind | None:
        """What the container of this name is; None when there is none."""
        return next((container.kind for container in self.containers if container.name == name), None)


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """What one container was given; `name` is None when the container cannot be told."""

    name: str | None
    position: int
    devices: tuple[GrantedDevice, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    """Filled entries with their containers, and what could not be told."""

    containers: tuple[ContainerDevices, ...]
    errors: tuple[Flaw, ...]


def map_entries(devices: PodDevices, layout: PodLayout) -> Mapping:
    """Give every filled entry its container.

    By order where the number of filled entries equals the number of requesters (first over all
    containers, then over app containers), else by position where the number of entries equals the number
    of containers, else the container is unknown. A requester left without an entry is an error.
    """
    filled = devices.filled
    if not devices.entries:
        return Mapping((), ())
    names, errors = _names(devices, layout)
    containers = tuple(
        ContainerDevices(names.get(entry.position), entry.position, entry.devices)
        for entry in filled
        if entry.devices
    )
    return Mapping(containers, tuple(errors))


def _names(devices: PodDevices, layout: PodLayout) -> tuple[dict[int, str], list[Flaw]]:
    filled = devices.filled
    in_order = _requesters_in_order(len(filled), layout)
    if filled and in_order is not None:
        pairs = zip(filled, in_order, strict=True)
        return {entry.position: container.name for entry, container in pairs}, []
    by_position = _positional(len(devices.entries), layout)
    if by_position is not None:
        names = {entry.position: by_position[entry.position].name for entry in filled}
        return names, _without_entry(names, by_position)
    if not filled:
        return {}, _without_entry({}, layout.requesters)
    return {}, [_unmapped(entry, len(filled), layout) for entry in filled]


def _requesters_in_order(filled: int, layout: PodLayout) -> tuple[ContainerRole, ...] | None:
    requesters = layout.requesters
    app_requesters = tuple(container for container in requesters if container.kind == "app")
    return next((found for found in (requesters, app_requesters) if len(found) == filled), None)


def _positional(entries: int, layout: PodLayout) -> tuple[ContainerRole, ...] | None:
    return next((found for found in (layout.containers, layout.apps) if len(found) == entries), None)


def _without_entry(names: dict[int, str], containers: Collection[ContainerRole]) -> list[Flaw]:
    given = set(names.values())
    return [
        flaw(KIND, "", "no_entry", f'container "{container.name}" asks for a device but has no entry')
        for container in containers
        if container.is_requester and container.name not in given
    ]


def _unmapped(entry: Entry, filled: int, layout: PodLayout) -> Flaw:
    segment = ":".join(device.uuid for device in entry.devices)
    detail = (
        f"entry {entry.position}: {filled} filled entries fit neither the {len(layout.requesters)} "
        f"requesters nor the {len(layout.containers)} containers; the container is unknown"
    )
    return flaw(KIND, segment, "unmapped", detail)


def container_of_directory(
    name: str, siblings: Collection[str], devices: PodDevices, layout: PodLayout
) -> str | None:
    """The container that a cache directory `<podUID>_<name>` really belongs to.

    HAMi names the directory by a positional look-up of its own: after 2.9 over all containers (wrong where
    2.10.0 lost the padding), before always `containers[0]`.

    Args:
        name: The name after the first `_`.
        siblings: The names of all directories of this pod. One that is no requester's proves that HAMi's
            positions are shifted, so that a name that looks right is the next container's.
        devices: The pod's allocation.
        layout: The pod's containers.

    Returns:
        The container's name, or None when it cannot be told: keep the sample, the container is unknown.
    """
    requesters = [container.name for container in layout.requesters]
    if len(requesters) == 1:
        return requesters[0]
    all_named = {name, *siblings}
    if name in requesters and all_named <= set(requesters):
        return name
    filled = devices.filled
    apps = layout.apps
    if len(filled) != len(requesters) or (apps and all_named == {apps[0].name}):
        return None  # the second is HAMi ≤ 2.8, where all directories fall into the one of containers[0]
    written = [
        layout.containers[entry.position].name if entry.position < len(layout.containers) else None
        for entry in filled
    ]
    return requesters[written.index(name)] if name in written else None
