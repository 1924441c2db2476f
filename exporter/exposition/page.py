"""A page: samples by family of the catalogue, immutable, ready to be rendered.

Both roles make pages (`exporter/node/page.py`, `exporter/cluster/page.py`); the encoders render them
and touch nothing else. Invariant: every sample's label values stand in the family's label order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from contract.catalogue import BY_NAME, Family

NATIVE_FAMILIES = frozenset({"push_total", "facts_lost_total", "counters_restarted_total", "grant_seconds"})
"""What prometheus-client's own counters and histograms count (`exporter/delivery/metrics.py`, the cluster
role's histogram); a page that held them too would show them twice."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series: label values in the family's order, and the value in base units."""

    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class FamilySamples:
    """One family's series, in the order in which they are written."""

    family: Family
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything one snapshot has to say.

    Attributes:
        at_seconds: Unix time of the snapshot.
        families: In the catalogue's order; a family without samples is left out.
    """

    at_seconds: float
    families: tuple[FamilySamples, ...]


class PageBuilder:
    """Collects samples by family name; refuses names and label counts the catalogue does not know."""

    def __init__(self) -> None:
        self._samples: dict[str, list[Sample]] = {}

    def add(self, name: str, labels: Iterable[str], value: float | None) -> None:
        """Add one series; a value of None adds nothing: absent, never 0.

        Raises:
            KeyError: For a name that the catalogue does not have.
            ValueError: For a number of labels that is not the family's, or a family kept natively.
        """
        if value is None:
            return
        family = BY_NAME[name]
        if name in NATIVE_FAMILIES:
            raise ValueError(f"{name} is counted in the registry, not on pages")
        values = tuple(labels)
        if len(values) != len(family.labels):
            raise ValueError(f"{name}: labels {values!r} do not match {family.labels!r}")
        self._samples.setdefault(name, []).append(Sample(values, float(value)))

    def build(self, at_seconds: float) -> Page:
        """The finished page, families in catalogue order, series sorted by their labels."""
        families = tuple(
            FamilySamples(family, tuple(sorted(self._samples[name], key=lambda sample: sample.labels)))
            for name, family in BY_NAME.items()
            if name in self._samples
        )
        return Page(at_seconds, families)


class Board:
    """Where a sampler pins its latest page and scrapes take it from; one reference, one lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._page: Page | None = None

    def publish(self, page: Page) -> None:
        """Replace the page."""
        with self._lock:
            self._page = page

    def latest(self) -> Page | None:
        """The newest page, or None before the first tick."""
        with self._lock:
            return self._page
