"""Pods that ask for a GPU past HAMi: no limit holds them and no allocation bills them.

Source: `reference/hami-kubernetes.md §3.10`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias

from exporter.cluster.nodes import NodeSight
from exporter.cluster.pods import PodRecord

Why: TypeAlias = Literal["scheduler", "no_allocation"]


def bypasses(record: PodRecord, nodes: NodeSight, schedulers: Collection[str]) -> Why | None:
    """Why a pod counts as bypassing HAMi; None when it does not.

    A whole card of a node on which HAMi registered nothing is another plugin's to give.
    """
    if not record.requests or record.is_terminal or not nodes.shapes:
        return None
    node = nodes.by_name.get(record.pod.spec.node_name or "")
    if node is not None and not node.is_gpu_node:
        return None
    if record.pod.spec.scheduler_name not in schedulers:
        return "scheduler"
    if not record.is_bound or any(held.grant.is_nvidia for held in record.holding.slices):
        return None
    # Plain init containers hold nothing while they do not run.
    return None if all(request.kind == "init" for request in record.requests) else "no_allocation"
