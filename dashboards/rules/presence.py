"""Programs of ours that are not there, found by what is missing: nothing reports its own absence."""

from __future__ import annotations

from dashboards import uids
from dashboards.names import N, metric, once
from dashboards.rules.rule import Alert

_NODE_ROLE = 'role="node"'


def absence() -> tuple[Alert, ...]:
    """A GPU node without an exporter, and a cluster without its cluster role."""
    node_role = once("build_info", N, _NODE_ROLE)
    return (
        Alert(
            name="SlicemeterExporterDown",
            expr=f"{once('node_gpu_info', N)}\nunless on ({N}) {node_role}",
            hold="5m",
            severity="warning",
            summary="A node with GPUs has no exporter that answers",
            description=(
                "Node {{ $labels.node }} has GPUs registered with HAMi, and no Slicemeter exporter answers "
                "there: its slices are billed from the cluster's view, and their use is unknown."
            ),
            dashboard=uids.alert_link(uids.PIPELINE, "cluster"),
        ),
        Alert(
            name="SlicemeterClusterRoleAbsent",
            expr=(
                f"group by (cluster) ({metric('build_info')}{{{_NODE_ROLE}}})\n"
                f'unless on (cluster) group by (cluster) ({metric("build_info")}{{role="cluster"}})'
            ),
            hold="5m",
            severity="warning",
            summary="A cluster's exporters answer, but its cluster role does not",
            description=(
                "Cluster {{ $labels.cluster }} has node exporters and no cluster exporter: locks, pending "
                "pods, bypasses and dead exporters are not seen there."
            ),
            dashboard=uids.alert_link(uids.PIPELINE, "cluster"),
        ),
    )
