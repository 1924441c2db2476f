"""Dashboard "Fleet": how full, how busy and how healthy everything is, and what nobody can get."""

from __future__ import annotations

from collections.abc import Iterator

from grafanalib import core

from dashboards import uids
from dashboards.frame import CLUSTER, NODE, cluster_variable, node_variable, view
from dashboards.names import N, metric
from dashboards.panels import Column, Panel, Query, Step, Tile, over_time, rising, table, tiles
from dashboards.queries import each, part, speed, total
from dashboards.thresholds import DEFAULT

_TO_CARD = ("Who shares its cards", uids.panel_link(uids.CARD, "cluster", "node"))
_TO_TENANT = ("This tenant", uids.row_link(uids.TENANT, "cluster", "tenant", "namespace"))
_ANY = "no GPU node in range"


def _of_nodes(name: str, state: str) -> str:
    return f'{metric(name)}{{{NODE}, state="{state}"}}'


def _full(name: str) -> str:
    return f"sum({_of_nodes(name, 'allocated')}) / sum({_of_nodes(name, 'registered')})"


def _tiles() -> Iterator[core.Stat]:
    yield from tiles(
        (
            Tile(
                "GPU nodes",
                "Nodes that registered GPUs. Bad: fewer than you have.",
                "short",
                f"count(group by ({N}) ({metric('node_gpu_info')}{{{NODE}}}))",
            ),
            Tile(
                "Memory allocated",
                "Share of registered memory held by slices. Bad: full while pods wait.",
                "percentunit",
                _full("node_gpu_memory_bytes"),
                rising(DEFAULT.busy_ratio),
            ),
            Tile(
                "Cores allocated",
                "Share of registered cores held by slices. Bad: full while pods wait.",
                "percentunit",
                _full("node_gpu_cores_ratio"),
                rising(DEFAULT.busy_ratio),
            ),
            Tile(
                "SM time in use",
                "Mean share of the cards' SM time. Bad: low while everything is allocated.",
                "percentunit",
                f"avg(rate({metric('device_busy_seconds_total')}{{{NODE}}}[$__rate_interval]))",
            ),
            Tile(
                "Cards down",
                "Cards that are lost, failed or registered unhealthy. Bad: any.",
                "short",
                f"count({metric('device_health')}{{{NODE}}} == 0) or vector(0)",
                (Step(None, "green"), Step(1, "red")),
            ),
            Tile(
                "Pods waiting",
                "Unbound pods that want slices. Bad: above 0 for a quarter of an hour.",
                "short",
                f"sum({metric('pending_pods')}{{{CLUSTER}}}) or vector(0)",
                rising(1),
            ),
            Tile(
                "Stranded memory",
                "Free memory without cores or slots. Bad: a large part of what is free.",
                "bytes",
                f"sum({metric('stranded_memory_bytes')}{{{NODE}}}) or vector(0)",
                rising(1),
            ),
            Tile(
                "Reserved",
                "Memory promised to pods that are not bound. Bad: it does not go down.",
                "bytes",
                total("reservation_memory_bytes", NODE),
            ),
        ),
        empty=_ANY,
    )


def _curves() -> Iterator[core.TimeSeries]:
    yield over_time(
        Panel(
            title="SM time in use by node",
            description="Mean share of each node's cards. Bad: one node busy while others idle.",
            unit="percentunit",
            empty=_ANY,
            place=(0, 4, 12, 8),
            queries=each(
                f"avg by ({N}) (rate({metric('device_busy_seconds_total')}{{{NODE}}}[$__rate_interval]))",
                "{{cluster}} {{node}}",
            ),
            steps=rising(DEFAULT.busy_ratio),
            link=_TO_CARD,
        )
    )
    yield over_time(
        Panel(
            title="Memory allocated by node",
            description="Share of each node's registered memory. Bad: at 100 % while pods wait.",
            unit="percentunit",
            empty=_ANY,
            place=(12, 4, 12, 8),
            queries=each(
                part("device_memory_allocated_bytes", "device_memory_registered_bytes", NODE, N),
                "{{cluster}} {{node}}",
            ),
            steps=rising(DEFAULT.busy_ratio),
            link=_TO_CARD,
        )
    )
    yield over_time(
        Panel(
            title="Pods waiting by reason",
            description="HAMi's own reason. Bad: a reason that does not go away.",
            unit="short",
            empty="nobody waits",
            place=(0, 20, 12, 7),
            queries=each(total("pending_pods", CLUSTER, "cluster, reason"), "{{cluster}} {{reason}}"),
        ),
        stacked=True,
    )
    yield over_time(
        Panel(
            title="Stranded memory",
            description="Free memory whose card has no cores or slots left. Bad: it grows.",
            unit="bytes",
            empty="nothing is stranded",
            place=(12, 20, 12, 7),
            queries=each(
                total("stranded_memory_bytes", NODE, f"{N}, why"), "{{cluster}} {{node}}: no {{why}}"
            ),
        ),
        stacked=True,
    )


def _nodes() -> core.Table:
    by_model = f"sum by ({N}) ("
    return table(
        Panel(
            title="Nodes",
            description="What each node has, has given away and uses. Bad: a card down, or full and idle.",
            unit="short",
            empty=_ANY,
            place=(0, 12, 24, 8),
            queries=[
                Query(f"{by_model}{_of_nodes('node_gpu_memory_bytes', 'registered')})"),
                Query(f"{by_model}{_of_nodes('node_gpu_memory_bytes', 'allocated')})"),
                Query(f"{by_model}{_of_nodes('node_gpu_cores_ratio', 'registered')})"),
                Query(f"{by_model}{_of_nodes('node_gpu_cores_ratio', 'allocated')})"),
                Query(f"{by_model}{_of_nodes('node_gpu_slots', 'allocated')})"),
                Query(f"avg by ({N}) (rate({metric('device_busy_seconds_total')}{{{NODE}}}[$__range]))"),
                Query(f"count by ({N}) ({metric('device_health')}{{{NODE}}} == 0)"),
            ],
            link=("Who shares its cards", uids.row_link(uids.CARD, "cluster", "node")),
        ),
        key=("cluster", "node"),
        columns=(
            Column("A", "memory", "bytes"),
            Column("B", "memory allocated", "bytes"),
            Column("C", "cards", "short"),
            Column("D", "cores allocated", "short", decimals=2),
            Column("E", "slots taken", "short"),
            Column("F", "SM mean", "percentunit", cell="gauge"),
            Column("G", "cards down", "short"),
        ),
    )


def _refused() -> Iterator[core.Table]:
    yield table(
        Panel(
            title="Pods that can never fit",
            description="They ask for more than any node has. Bad: any; waiting does not help.",
            unit="short",
            empty="every waiting pod fits somewhere",
            place=(0, 27, 8, 7),
            queries=[Query(total("unschedulable_pods", CLUSTER, "cluster, tenant, namespace, why"))],
            link=_TO_TENANT,
        ),
        key=("cluster", "tenant", "namespace", "why"),
        columns=(Column("A", "pods", "short"),),
    )
    yield table(
        Panel(
            title="Pods past HAMi",
            description="They use or ask for a GPU without HAMi. Bad: any; no limit holds them.",
            unit="short",
            empty="nobody goes past HAMi",
            place=(8, 27, 8, 7),
            queries=[Query(total("bypassing_pods", CLUSTER, "cluster, tenant, namespace, why"))],
            link=_TO_TENANT,
        ),
        key=("cluster", "tenant", "namespace", "why"),
        columns=(Column("A", "pods", "short"),),
    )
    yield table(
        Panel(
            title="Quotas",
            description="GPU quota by namespace. Bad: used close to the limit.",
            unit="short",
            empty="no GPU quota is set",
            place=(16, 27, 8, 7),
            queries=[
                Query(total("quota_used", CLUSTER, "cluster, namespace, resource")),
                Query(total("quota_limit", CLUSTER, "cluster, namespace, resource")),
            ],
        ),
        key=("cluster", "namespace", "resource"),
        columns=(Column("A", "used", "short"), Column("B", "limit", "short")),
    )


def _grants() -> Iterator[core.TimeSeries]:
    buckets = f"{metric('grant_seconds')}_bucket{{{CLUSTER}}}"
    yield over_time(
        Panel(
            title="Time until a pod gets its slice",
            description="From creation to binding. Bad: the slow tenth is in minutes.",
            unit="s",
            empty="no pod was bound in range",
            place=(0, 34, 12, 7),
            queries=[
                Query(f"histogram_quantile(0.5, sum by (le) (rate({buckets}[$__rate_interval])))", "half"),
                Query(
                    f"histogram_quantile(0.9, sum by (le) (rate({buckets}[$__rate_interval])))", "nine of ten"
                ),
            ],
        )
    )
    yield over_time(
        Panel(
            title="Power by node",
            description="From the boards' energy counters. Bad: high while SM time is low.",
            unit="watt",
            empty="no board reports its energy",
            place=(12, 34, 12, 7),
            queries=each(speed("device_energy_joules_total", NODE, N), "{{cluster}} {{node}}"),
            link=("Where the power goes", uids.panel_link(uids.ENERGY, "cluster", "node")),
        ),
        stacked=True,
    )


dashboard = view(
    uid=uids.FLEET,
    title="Fleet",
    description="How full, how busy and how healthy all GPU nodes are, and what nobody can get.",
    variables=(cluster_variable("node_gpu_info"), node_variable("node_gpu_info")),
    panels=[*_tiles(), *_curves(), _nodes(), *_refused(), *_grants()],
    start="now-6h",
)
