"""Which pod and container a process runs in, from the text of its `/proc/<pid>/cgroup`. Pure.

Every runtime and driver writes the pod's UID and the container's id into the path, each in its own way.
Invariant: a container's id is given only together with its pod, and only for the container itself: the
monitor process of CRI-O is none. Forms: `reference/metering.md §5`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MOST_CHARACTERS = 65_536
"""Longer texts are no cgroup files of a container host; what is beyond is not looked at."""

_POD = re.compile(
    r"(?:^|-)pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?::|$)"
)
_CONTAINER = re.compile(r"(?:.*[-:])?(?P<id>[0-9a-f]{64})(?:\.scope)?")
_MONITOR = "conmon"
_DELETED = " (deleted)"


class CgroupContainer(NamedTuple):
    """Where a process runs.

    Attributes:
        pod_uid: The pod's UID as the kubelet knows it; of a static pod that is its config hash.
        container_id: Without the runtime's name; None = in the pod, but in no container of it.
    """

    pod_uid: str
    container_id: str | None


def container_of(text: str) -> CgroupContainer | None:
    """The pod and container that a cgroup file names; None for a process outside of pods.

    Args:
        text: The file: one line `0::PATH` in v2, one for each controller in v1, both in hybrid.
    """
    for line in text[:MOST_CHARACTERS].splitlines():
        path = line.split(":", 2)[-1]
        if "pod" in path and (found := _in_path(path.removesuffix(_DELETED))) is not None:
            return found
    return None


def _in_path(path: str) -> CgroupContainer | None:
    """The innermost pod of one path: a cluster may itself run in a pod's container."""
    parts = path.split("/")
    for number in range(len(parts) - 1, -1, -1):
        match = _POD.search(parts[number])
        if match is not None:
            # The kubelet under systemd with containerd under cgroupfs puts both into one component.
            rest = parts[number][match.end() :]
            return CgroupContainer(
                match["uid"].replace("_", "-"), _container_id([rest, *parts[number + 1 :]])
            )
    return None


def _container_id(parts: list[str]) -> str | None:
    for part in parts:
        match = _CONTAINER.fullmatch(part)
        if match is not None:
            return None if _MONITOR in part else match["id"]
    return None
