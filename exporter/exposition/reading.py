"""A metrics page read back: series by name, as a scraper sees them.

Invariant: nothing is filled in; a series that is not on a page is absent here too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from contract.catalogue import PREFIX

Labels: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Page:
    """One scrape of one target.

    Attributes:
        at_s: When it was scraped, Unix seconds.
        series: By name without the product's prefix, in the page's order.
    """

    at_s: float
    series: Mapping[str, Sequence[tuple[Labels, float]]]

    def find(self, name: str, **labels: str) -> Iterator[tuple[Labels, float]]:
        """The series of a name whose labels include these."""
        wanted = labels.items()
        return (pair for pair in self.series.get(name, ()) if wanted <= pair[0].items())

    def value(self, name: str, **labels: str) -> float | None:
        """The one matching series' value; None when there is none.

        Raises:
            ValueError: When several match: say which is meant.
        """
        found = [value for _, value in self.find(name, **labels)]
        if len(found) > 1:
            raise ValueError(f"{len(found)} series match {name}{labels}")
        return found[0] if found else None

    def total(self, name: str, **labels: str) -> float:
        """The sum of the matching series; 0 when there is none."""
        return sum(value for _, value in self.find(name, **labels))


def parse_page(text: str, at_s: float) -> Page:
    """Read the text format.

    Raises:
        ValueError: It is no metrics page.
    """
    series: dict[str, list[tuple[Labels, float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix(PREFIX)
            series.setdefault(name, []).append((MappingProxyType(dict(sample.labels)), sample.value))
    return Page(at_s, MappingProxyType(series))
