"""The frame of a page: one registry, one collector over the board, and our own native metrics.

A role makes one `Exposition` and registers its native counters and histograms in `exposition.registry`.
Invariants: a family stands on a page once (the registry refuses a native metric with the name of a
page family); collecting reads the board's newest page and touches no source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import (
    CollectorRegistry,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from contract.catalogue import BY_NAME, Emitter, Family, families_of
from exporter.exposition.board import Board
from exporter.exposition.page import NATIVE_FAMILIES, FamilySamples

# Those of the process begin with it; the page's own say since when they count.
disable_created_metrics()  # type: ignore[no-untyped-call]


class PageCollector(Collector):
    """The families of the board's newest page, as prometheus-client's own types.

    Emits, for each family that has samples, what the catalogue says of it:

        # HELP slicemeter_slice_memory_used_bytes Memory in use by the slice's living processes.
        # TYPE slicemeter_slice_memory_used_bytes gauge

    Args:
        board: Where the pages are.
        emitter: Whose.
        has_created: With the times since when counters count, as OpenMetrics shows them.
    """

    def __init__(self, board: Board, emitter: Emitter, *, has_created: bool = False) -> None:
        self._board = board
        self._emitter = emitter
        self._has_created = has_created

    def describe(self) -> Iterable[Metric]:
        """Every family the role's pages may have, without samples."""
        return [
            _empty_metric(family)
            for family in families_of(self._emitter)
            if family.name not in NATIVE_FAMILIES
        ]

    def collect(self) -> Iterable[Metric]:
        """The newest page; nothing before the first tick."""
        page = self._board.latest()
        if page is None:
            return []
        return [_metric(family, has_created=self._has_created) for family in page.families]


class DroppedSeries(Collector):
    """How much the budget has left out of pages.

    Emits:
        # HELP slicemeter_series_dropped_total Series left out because the page's budget was full.
        # TYPE slicemeter_series_dropped_total counter
    """

    def __init__(self, board: Board) -> None:
        self._board = board

    def describe(self) -> Iterable[Metric]:
        """The counter without its value."""
        return [_empty_metric(BY_NAME["series_dropped_total"])]

    def collect(self) -> Iterable[Metric]:
        """The counter, from 0 on."""
        metric = _empty_metric(BY_NAME["series_dropped_total"])
        metric.add_metric((), self._board.dropped_series)
        return [metric]


class Exposition:
    """Everything `/metrics` shows: the page first, then what the registry holds.

    Attributes:
        board: Where the sampler publishes its pages.
        registry: Process, platform, and the native metrics that a role registers here. The page's
            names are reserved in it, so a second family of one name is refused at registration.
        everything: Page and registry together: what the stock encoder renders as text.
        everything_openmetrics: The same for OpenMetrics.
    """

    def __init__(self, board: Board, emitter: Emitter) -> None:
        page = PageCollector(board, emitter)
        self.board = board
        self.registry = CollectorRegistry()
        self.registry.register(_Reserved(page))
        self.registry.register(DroppedSeries(board))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.everything: Collector = _Chain((page, self.registry))
        created = PageCollector(board, emitter, has_created=True)
        self.everything_openmetrics: Collector = _Chain((created, self.registry))


class _Reserved(Collector):
    """Takes the page's names in the registry and collects nothing there."""

    def __init__(self, page: PageCollector) -> None:
        self._page = page

    def describe(self) -> Iterable[Metric]:
        return self._page.describe()

    def collect(self) -> Iterable[Metric]:
        return ()


class _Chain(Collector):
    """Collectors one after the other."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterable[Metric]:
        for collector in self._collectors:
            yield from collector.collect()


def _empty_metric(family: Family) -> GaugeMetricFamily | CounterMetricFamily:
    if family.type == "counter":
        return CounterMetricFamily(family.full_name, family.help, labels=family.labels)
    return GaugeMetricFamily(family.full_name, family.help, labels=family.labels)


def _metric(family: FamilySamples, *, has_created: bool) -> Metric:
    metric = _empty_metric(family.family)
    if isinstance(metric, CounterMetricFamily):
        created_s = family.created_s if has_created else (None,) * len(family.values)
        for labels, value, since_s in zip(family.labels, family.values, created_s, strict=True):
            metric.add_metric(labels, value, created=since_s)
    else:
        for labels, value in zip(family.labels, family.values, strict=True):
            metric.add_metric(labels, value)
    return metric
