"""The node role's check-up, in the order in which a page comes about.

Invariant: what one check could not read is said once; the checks after it say that they do not know.
"""

from __future__ import annotations

from exporter.checkup.accounting import CHECK as ACCOUNTING
from exporter.checkup.accounting import look_at_accounting
from exporter.checkup.annotations import devices_of, look_at_node, look_at_pods
from exporter.checkup.cards import MAPPING, NVML, look_at_mapping, look_at_nvml, look_at_registered
from exporter.checkup.clock import look_at_clock
from exporter.checkup.finding import Line, bounded, note
from exporter.checkup.host import (
    ROOTS,
    Tree,
    has_driver,
    look_at_mig_lock,
    look_at_processes,
    look_at_tree,
)
from exporter.checkup.kubernetes import Kept, look_at_api
from exporter.checkup.statefile import CHECK as STATE_FILE
from exporter.checkup.statefile import look_at_state_file
from exporter.kube.objects import Node
from exporter.kube.resources import namespaces, nodes, pods
from exporter.node.clock import system_clock
from exporter.nvidia.source import DeviceReading, DeviceSource
from exporter.settings import NodeSettings


def check_node(settings: NodeSettings, source: DeviceSource) -> list[Line]:
    """Look at everything that the node role needs.

    Args:
        settings: Those of `slicemeter exporter node`.
        source: The node's cards.
    """
    lines = [*bounded(STATE_FILE, lambda: look_at_state_file(settings.state_file), _DISK).lines]
    name = settings.node_name
    api, kept = look_at_api(settings.kube, [pods(name), nodes(name), namespaces()])
    found, node = look_at_node(name, kept.objects("nodes"))
    allocations, served = look_at_pods(kept.objects("pods"), settings.resources, _now_ms())
    lines += [*api, *found, allocations]
    is_real = has_driver(settings.proc_root)
    looked = bounded(
        ROOTS, lambda: look_at_tree(settings.container_roots, is_expected=is_real and bool(served)), _DISK
    )
    lines += [*looked.lines, *_without_directory(served, looked.found)]
    is_real = is_real or bool(looked.found and looked.found.caches)
    lines.append(look_at_processes(settings.proc_root, is_expected=is_real))
    lines += _cards(settings, source, kept, node, is_real=is_real)
    lines += bounded(
        ACCOUNTING,
        lambda: look_at_accounting(
            settings.accounting,
            cluster=settings.cluster,
            node_uid=node.metadata.uid if node is not None else None,
            kube_system_uid=kept.cluster_uid(),
            wall_ms=_now_ms,
        ),
        "check the network between this node and accounting",
    ).lines
    lines.append(look_at_clock(kept.metas(), _now_ms()))
    return lines


_DISK = "see whether the file system behind it hangs (dmesg)"


def _cards(
    settings: NodeSettings, source: DeviceSource, kept: Kept, node: Node | None, *, is_real: bool
) -> list[Line]:
    lock = look_at_mig_lock(settings.mig_lock_file)
    if settings.mig_lock_file.exists():
        return [lock, note(NVML, "not asked while HAMi's MIG lock is there"), note(MAPPING, "not known")]
    hangs = "the driver hangs: see dmesg; the exporter's page shows no figures of cards meanwhile"
    looked = bounded(NVML, lambda: look_at_nvml(source, is_expected=is_real, now_ms=_now_ms()), hangs)
    readings: tuple[DeviceReading, ...] | None = looked.found
    lines = [lock, *looked.lines]
    if readings is None:
        return [*lines, note(MAPPING, "not known without NVML")]
    devices = devices_of(node)
    if node is not None:
        lines.append(look_at_registered(devices, readings))
    mapped = bounded(MAPPING, lambda: look_at_mapping(settings, kept, devices, readings, _now_ms()), _DISK)
    return [*lines, *mapped.lines]


def _without_directory(served: frozenset[str], tree: Tree | None) -> list[Line]:
    without = served - tree.pod_uids if tree is not None else frozenset()
    if not without:
        return []
    told = f"{len(without)} of {len(served)} pods with slices have no directory in the container roots"
    way_out = "right for CUDA_DISABLE_CONTROL and whole cards; else see whether the roots are the host's"
    return [note("hami-core", told, way_out)]


def _now_ms() -> int:
    return system_clock().wall_ms
