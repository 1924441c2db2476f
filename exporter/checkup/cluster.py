"""The cluster role's check-up.

Invariant: it lists what the cluster role watches, and nothing else.
"""

from __future__ import annotations

from typing import Any

from exporter.checkup.accounting import CHECK as ACCOUNTING
from exporter.checkup.accounting import look_at_accounting
from exporter.checkup.annotations import look_at_pods, look_at_registers
from exporter.checkup.clock import look_at_clock
from exporter.checkup.finding import Line, bounded
from exporter.checkup.kubernetes import look_at_api
from exporter.checkup.statefile import CHECK as STATE_FILE
from exporter.checkup.statefile import look_at_state_file
from exporter.cluster.watching import Watched
from exporter.kube.resources import Resource
from exporter.kube.watch import wall_clock_ms
from exporter.settings import ClusterSettings


def check_cluster(settings: ClusterSettings) -> list[Line]:
    """Look at everything that the cluster role needs."""
    disk = "see whether the file system behind it hangs (dmesg)"
    lines = [*bounded(STATE_FILE, lambda: look_at_state_file(settings.state_file), disk).lines]
    watched = Watched.by(settings.resources)
    resources: list[Resource[Any]] = [
        watched.pods,
        watched.nodes,
        watched.namespaces,
        watched.events,
        watched.quotas,
    ]
    api, kept = look_at_api(settings.kube, resources)
    allocations, _ = look_at_pods(kept.objects("pods"), settings.resources, wall_clock_ms())
    lines += [*api, look_at_registers(kept.objects("nodes")), allocations]
    lines += bounded(
        ACCOUNTING,
        lambda: look_at_accounting(
            settings.accounting,
            cluster=settings.cluster,
            node_uid=None,
            kube_system_uid=kept.cluster_uid(),
            wall_ms=wall_clock_ms,
        ),
        "check the network between here and accounting",
    ).lines
    lines.append(look_at_clock(kept.metas(), wall_clock_ms()))
    return lines
