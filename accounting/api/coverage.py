"""The metric of how much of the clusters' device time was confirmed.

Invariant: the database sums a day of all cards once for each rating, however often it is scraped.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from accounting.reports.quality import coverage_since
from accounting.store.database import Database
from accounting.store.models import RatingState
from contract.catalogue import BY_NAME
from contract.units import MS_PER_HOUR

_WINDOW_MS = 24 * MS_PER_HOUR


class Coverage(Collector):
    """How much of the clusters' device time was confirmed, up to the instant of the last rating.

    # HELP slicemeter_coverage_ratio Confirmed share of present device time, over the last 24 hours rated.
    # TYPE slicemeter_coverage_ratio gauge
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: tuple[int, dict[str, float]] = (0, {})

    def describe(self) -> Iterator[Metric]:
        """Give the family, without asking the database."""
        yield self._family()

    def collect(self) -> Iterator[Metric]:
        """Give a ratio for each cluster that had devices."""
        with self._database.reading() as session:
            state = session.get(RatingState, 1)
            if state is not None and state.rated_as_of_ms != self._known[0]:
                found = coverage_since(session, state.rated_as_of_ms - _WINDOW_MS)
                ratios = {cluster: float(ratio) for cluster, ratio in found.items()}
                self._known = state.rated_as_of_ms, ratios
        family = self._family()
        for cluster, ratio in self._known[1].items():
            family.add_metric([cluster], ratio)
        yield family

    @staticmethod
    def _family() -> GaugeMetricFamily:
        known = BY_NAME["coverage_ratio"]
        return GaugeMetricFamily(known.full_name, known.help, labels=known.labels)
