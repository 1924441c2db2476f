"""What the exporters say of themselves: stale pages, failing sources, facts that do not get away."""

from __future__ import annotations

from dashboards import uids
from dashboards.names import SOURCE, ST, N, increase, metric, once, rate
from dashboards.rules.rule import Alert
from dashboards.thresholds import Thresholds

LINK = uids.alert_link(uids.PIPELINE, "cluster")
POD_LINK = uids.alert_link(uids.POD, "cluster", "node", "tenant", "namespace", "pod")
_SLICE = "{{ $labels.namespace }}/{{ $labels.pod }} ({{ $labels.container }})"
_SHARE = "{{ $value | humanizePercentage }}"
_PROGRAM = "Exporter {{ $labels.instance }} of cluster {{ $labels.cluster }}"


def _age(name: str) -> str:
    """How old a stamp was when it was scraped: what passed since then is Prometheus's own doing."""
    return f"max by ({SOURCE}) (timestamp({metric(name)}) - {metric(name)})"


def _source(name: str, expr: str, hold: str, summary: str, text: str) -> Alert:
    return Alert(name, expr, hold, "warning", summary, f"{_PROGRAM} {text}", LINK)


def collection_alerts(limits: Thresholds) -> tuple[Alert, ...]:
    """Sources that fail or fall silent while the page goes on answering."""
    restarts = ("counters_restarted_total", f"{SOURCE}, why", 'why="state_damaged"')
    unknown = rate("slice_unknown_seconds_total", f"{ST}, reason", "1h", 'reason!="no_source"')
    return (
        _source(
            "SlicemeterSnapshotStale",
            f"{_age('snapshot_timestamp_seconds')} > {limits.snapshot_age_seconds}",
            "5m",
            "An exporter answers with an old snapshot",
            "took its snapshot {{ $value | humanizeDuration }} ago: its sampler hangs.",
        ),
        _source(
            "SlicemeterCollectorFailing",
            f"min by ({SOURCE}, collector) ({metric('collector_success')}) == 0",
            "10m",
            "A source of an exporter fails",
            "gets nothing from its source {{ $labels.collector }}: what it feeds is absent.",
        ),
        _source(
            "SlicemeterCacheUndecodable",
            f"{increase('cache_errors_total', f'{SOURCE}, reason', '15m')} > 0",
            "15m",
            "Region files of HAMi-core cannot be read",
            "cannot read region files ({{ $labels.reason }}): those slices fall back to NVML.",
        ),
        Alert(
            name="SlicemeterUsageUnknown",
            expr=f"sum by ({ST}) ({unknown})\n> {limits.unknown_ratio}",
            hold="0s",
            severity="info",
            summary="A slice's use could not be measured for part of an hour",
            description=(f"The SM use of {_SLICE} is unknown for {_SHARE} of the last hour."),
            tenant_text=(
                f"The SM use of {_SLICE} is unknown for {_SHARE} of the last hour; it is not guessed."
            ),
            dashboard=POD_LINK,
        ),
        _source(
            "SlicemeterKubeViewStale",
            f"{_age('kube_view_timestamp_seconds')} > {limits.kube_view_age_seconds}",
            "5m",
            "An exporter has lost sight of the Kubernetes API",
            "last saw the Kubernetes API {{ $value | humanizeDuration }} ago: names and ends are of then.",
        ),
        _source(
            "SlicemeterSeriesDropped",
            f"{increase('series_dropped_total', SOURCE, '15m')} > 0",
            "0s",
            "An exporter leaves series out because its budget is full",
            "left series out of its page: raise its series budget, or look for what multiplies them.",
        ),
        _source(
            "SlicemeterCountersRestarted",
            f"({once(*restarts)} > 0)\nunless on ({SOURCE}, why)\n({once(*restarts, offset='6h')} > 0)",
            "0s",
            "An exporter lost its counters to a damaged state file",
            "began its counters at 0 again, because its state file was damaged: facts that had not left are "
            "lost.",
        ),
        Alert(
            # Both push every five minutes or oftener, and each turn of the two is one more proof.
            name="SlicemeterTwoExporters",
            expr=f"time() - {once('source_contested_timestamp_seconds', N)} < 1800",
            hold="0s",
            severity="warning",
            summary="Two exporters report for one node",
            description=(
                "Two exporters report for node {{ $labels.node }} of cluster {{ $labels.cluster }}: "
                "one of them counts. Stop the other."
            ),
            dashboard=LINK,
        ),
    )


def outbox_alerts(limits: Thresholds) -> tuple[Alert, ...]:
    """Facts that wait for accounting for too long, or are lost."""
    waiting = f"time() - min by ({SOURCE}) ({metric('outbox_oldest_timestamp_seconds')})"
    text = f"{_PROGRAM} has facts that have waited for accounting for {{{{ $value | humanizeDuration }}}}."
    return (
        Alert(
            name="SlicemeterOutboxBacklog",
            expr=f"{waiting} > {limits.outbox_late_seconds} <= {limits.outbox_lost_seconds}",
            hold="10m",
            severity="warning",
            summary="Facts wait for accounting",
            description=f"{text} Nothing is lost, but the bill is behind.",
            dashboard=LINK,
        ),
        Alert(
            name="SlicemeterOutboxBacklog",
            expr=f"{waiting} > {limits.outbox_lost_seconds}",
            hold="10m",
            severity="critical",
            summary="Facts have waited for accounting for over a day",
            description=f"{text} A full disk or a lost node would lose them.",
            dashboard=LINK,
        ),
        Alert(
            name="SlicemeterFactsLost",
            expr=f"{increase('facts_lost_total', f'{SOURCE}, reason', '1h')} > 0",
            hold="0s",
            severity="critical",
            summary="Facts were lost before accounting had them",
            description=(f"{_PROGRAM} lost facts in the last hour for good ({{{{ $labels.reason }}}})."),
            dashboard=LINK,
        ),
    )
