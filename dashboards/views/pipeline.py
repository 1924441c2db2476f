"""Dashboard "Pipeline health": can the other dashboards be believed, and do all facts arrive?"""

from __future__ import annotations

from collections.abc import Iterator

from grafanalib import core

from dashboards import uids
from dashboards.frame import CLUSTER, NODE, cluster_variable, node_variable, view
from dashboards.names import SOURCE, N, metric
from dashboards.panels import Column, Panel, Query, Step, Tile, falling, over_time, rising, table, tiles
from dashboards.queries import age, each, speed
from dashboards.thresholds import DEFAULT

_ALL_WELL = "nothing to report in range"
_PROGRAM = "{{cluster}} {{instance}}"
_RED_FROM_ONE = (Step(None, "green"), Step(1, "red"))


def _tiles() -> Iterator[core.Stat]:
    def oldest(name: str) -> str:
        return f"time() - min({metric(name)}{{{CLUSTER}}})"

    silent = (
        f"count(group by ({N}) ({metric('node_gpu_info')}{{{NODE}}})\n"
        f'unless on ({N}) {metric("build_info")}{{{NODE}, role="node"}}) or vector(0)'
    )
    yield from tiles(
        (
            Tile(
                "Exporters",
                "Programs that answer, both roles. Bad: fewer than nodes and clusters.",
                "short",
                f"count({metric('build_info')}{{{CLUSTER}}})",
            ),
            Tile(
                "GPU nodes without exporter",
                "Their use is unknown. Bad: any.",
                "short",
                silent,
                _RED_FROM_ONE,
            ),
            Tile(
                "Oldest snapshot",
                "Of any exporter. Bad: over a minute; its sampler hangs.",
                "s",
                oldest("snapshot_timestamp_seconds"),
                rising(DEFAULT.snapshot_age_seconds),
            ),
            Tile(
                "Oldest Kubernetes view",
                "Of any exporter. Bad: over 5 minutes; names are of then.",
                "s",
                oldest("kube_view_timestamp_seconds"),
                rising(DEFAULT.kube_view_age_seconds),
            ),
            Tile(
                "Oldest waiting fact",
                "In any outbox. Bad: over an hour; the bill is behind.",
                "s",
                oldest("outbox_oldest_timestamp_seconds"),
                rising(DEFAULT.outbox_late_seconds, DEFAULT.outbox_lost_seconds),
            ),
            Tile(
                "Coverage",
                "Confirmed share of device time. Bad: under 95 %.",
                "percentunit",
                f"min({metric('coverage_ratio')}{{{CLUSTER}}})",
                falling(DEFAULT.coverage_ratio),
            ),
        ),
        empty=_ALL_WELL,
    )


def _sources() -> Iterator[core.TimeSeries]:
    yield over_time(
        Panel(
            title="Failing sources",
            description="Sources of exporters that answer nothing. Bad: any for minutes.",
            unit="short",
            empty="every source answers",
            place=(0, 4, 12, 7),
            queries=each(
                f"count by ({SOURCE}, collector) ({metric('collector_success')}{{{CLUSTER}}} == 0)",
                f"{_PROGRAM} {{{{collector}}}}",
            ),
        )
    )
    yield over_time(
        Panel(
            title="Time a source takes",
            description="At each tick. Bad: near the interval, or growing.",
            unit="s",
            empty="no exporter in range",
            place=(12, 4, 12, 7),
            queries=each(
                f"max by (cluster, collector) ({metric('collector_duration_seconds')}{{{CLUSTER}}})",
                "{{cluster}} {{collector}}",
            ),
        )
    )
    yield over_time(
        Panel(
            title="Files and annotations that cannot be read",
            description="By reason, a second. Bad: anything that lasts.",
            unit="short",
            empty="everything can be read",
            place=(0, 11, 12, 7),
            queries=[
                Query(
                    speed("cache_errors_total", CLUSTER, "cluster, reason"), "{{cluster}} file: {{reason}}"
                ),
                Query(
                    speed("annotation_errors_total", CLUSTER, "cluster, kind, reason"),
                    "{{cluster}} {{kind}}: {{reason}}",
                ),
            ],
        )
    )
    yield over_time(
        Panel(
            title="Values refused, samples lost, disagreements",
            description="A second. Bad: more than a few; figures are missing.",
            unit="short",
            empty="no value was refused or lost",
            place=(12, 11, 12, 7),
            queries=[
                Query(speed("values_refused_total", CLUSTER, "cluster, quantity"), "refused: {{quantity}}"),
                Query(speed("samples_lost_total", CLUSTER, "cluster, source"), "lost: {{source}}"),
                Query(speed("disagreements_total", CLUSTER, "cluster, kind"), "disagree: {{kind}}"),
            ],
        )
    )


def _delivery() -> Iterator[core.TimeSeries]:
    yield over_time(
        Panel(
            title="Facts waiting",
            description="In the outboxes. Bad: a line that only rises.",
            unit="short",
            empty="no exporter in range",
            place=(0, 18, 12, 7),
            queries=each(f"sum by ({SOURCE}) ({metric('outbox_facts')}{{{CLUSTER}}})", _PROGRAM),
        )
    )
    yield over_time(
        Panel(
            title="Pushes by result",
            description="Batches a second. Bad: refused or unreachable.",
            unit="short",
            empty="nothing was pushed in range",
            place=(12, 18, 12, 7),
            queries=each(speed("push_total", CLUSTER, "cluster, result"), "{{cluster}} {{result}}"),
        ),
        stacked=True,
    )
    yield over_time(
        Panel(
            title="Facts taken in",
            description="By accounting, a second. Bad: rejected; they are in quarantine with a reason.",
            unit="short",
            empty="accounting is not scraped here",
            place=(0, 25, 12, 7),
            queries=each(speed("facts_total", CLUSTER, "result"), "{{result}}"),
        ),
        stacked=True,
    )
    yield over_time(
        Panel(
            title="Facts lost, series left out",
            description="In range so far. Bad: any.",
            unit="short",
            empty="nothing was lost",
            place=(12, 25, 12, 7),
            queries=[
                Query(speed("facts_lost_total", CLUSTER, "cluster, reason"), "{{cluster}} lost: {{reason}}"),
                Query(speed("series_dropped_total", CLUSTER, "cluster"), "{{cluster}} series left out"),
            ],
        )
    )


def _tables() -> Iterator[core.Table]:
    yield table(
        Panel(
            title="Exporters",
            description="Version, age of snapshot and Kubernetes view. Bad: an age over a minute.",
            unit="s",
            empty="no exporter answers",
            place=(0, 32, 12, 8),
            queries=[
                Query(f"count by ({SOURCE}, role, version) ({metric('build_info')}{{{CLUSTER}}})"),
                Query(age("snapshot_timestamp_seconds", CLUSTER, SOURCE)),
                Query(age("kube_view_timestamp_seconds", CLUSTER, SOURCE)),
                Query(f"max by ({SOURCE}) ({metric('unattributed_processes')}{{{CLUSTER}}})"),
            ],
        ),
        key=("cluster", "instance", "role", "version"),
        columns=(
            Column("A", "answers", "short"),
            Column("B", "snapshot age", "s"),
            Column("C", "Kubernetes view age", "s"),
            Column("D", "unattributed processes", "short"),
        ),
    )
    yield table(
        Panel(
            title="Last heard of",
            description="When accounting had each source's last batch. Bad: over a quarter of an hour.",
            unit="s",
            empty="accounting is not scraped here",
            place=(12, 32, 12, 8),
            queries=[Query(age("source_last_seen_timestamp_seconds", NODE, N))],
        ),
        key=("cluster", "node"),
        columns=(Column("A", "seconds ago", "s"),),
    )


dashboard = view(
    uid=uids.PIPELINE,
    title="Pipeline health",
    description="Can the other dashboards be believed, and do all facts arrive?",
    variables=(cluster_variable(), node_variable("node_gpu_info")),
    panels=[*_tiles(), *_sources(), *_delivery(), *_tables()],
    start="now-6h",
)
