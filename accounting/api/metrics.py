"""The service's own page for Prometheus: counters of this process, and what the database knows.

Invariant: nothing is shown that a tenant's token would be needed for; names of clusters and nodes are
the operator's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from accounting.api.coverage import Coverage
from accounting.api.money import Money
from accounting.store.database import Database
from accounting.store.models import ExporterSource
from contract.catalogue import BY_NAME
from contract.units import MS_PER_SECOND

# A `_created` series for each counter is in no catalogue.
disable_created_metrics()  # type: ignore[no-untyped-call]


class _Sources(Collector):
    """When each exporter was heard last, and when two were heard that report for one node.

    # HELP slicemeter_source_last_seen_timestamp_seconds Last batch of an exporter.
    # TYPE slicemeter_source_last_seen_timestamp_seconds gauge
    # HELP slicemeter_source_contested_timestamp_seconds When two exporters last reported for one node.
    # TYPE slicemeter_source_contested_timestamp_seconds gauge
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def describe(self) -> Iterator[Metric]:
        yield from self._families()

    def collect(self) -> Iterator[Metric]:
        seen, contested = self._families()
        query = select(
            ExporterSource.cluster,
            ExporterSource.node,
            func.max(ExporterSource.last_seen_ms),
            func.max(ExporterSource.contested_ms),
        ).group_by(ExporterSource.cluster, ExporterSource.node)
        with self._database.reading() as session:
            for cluster, node, seen_ms, contested_ms in session.execute(query):
                seen.add_metric([cluster, node], seen_ms / MS_PER_SECOND)
                if contested_ms is not None:
                    contested.add_metric([cluster, node], contested_ms / MS_PER_SECOND)
        yield seen
        yield contested

    @staticmethod
    def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        seen, contested = (BY_NAME[f"source_{what}_timestamp_seconds"] for what in ("last_seen", "contested"))
        return (
            GaugeMetricFamily(seen.full_name, seen.help, labels=seen.labels),
            GaugeMetricFamily(contested.full_name, contested.help, labels=contested.labels),
        )


class ServiceMetrics:
    """The registry of one application."""

    def __init__(self, database: Database, money: Money) -> None:
        self.registry = CollectorRegistry()
        family = BY_NAME["facts_total"]
        self._facts = Counter(
            family.full_name.removesuffix("_total"), family.help, family.labels, registry=self.registry
        )
        for result in family.closed:
            self._facts.labels(result)
        self.registry.register(_Sources(database))
        self.registry.register(Coverage(database))
        self.registry.register(money)

    def count_facts(self, *, stored: int, duplicate: int, rejected: int) -> None:
        """Count one batch."""
        for result, count in (("stored", stored), ("duplicate", duplicate), ("rejected", rejected)):
            self._facts.labels(result).inc(count)

    def page(self, accept: str | None) -> tuple[bytes, str]:
        """The page in the form that a scraper accepts, and its content type."""
        encode, content_type = choose_encoder(accept or "")
        return encode(self.registry), content_type
