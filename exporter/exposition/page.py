"""A page: samples by family, immutable, ready to be rendered; and what builds one within a budget.

Both roles make pages (`exporter/node/page.py`, `exporter/cluster/page.py`); the encoders render them
and touch nothing else. Invariants: every series' label values stand in the family's label order; what
does not fit the budget is left out by whole groups, from the first that does not fit on, and counted.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from contract.catalogue import BY_NAME, Family

Labels: TypeAlias = tuple[str, ...]

NATIVE_FAMILIES = frozenset(
    {"push_total", "facts_lost_total", "counters_restarted_total", "grant_seconds", "series_dropped_total"}
)
"""What the registry counts itself (`exporter/delivery/metrics.py`, `exporter/exposition/collector.py`, the
cluster role's histogram); a page that held them too would show them twice."""

DEFAULT_SERIES_BUDGET: Final = 50_000
"""Some 1,500 slices: more than a node can hold, less than hurts a Prometheus."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One series: label values in the family's order, and the value in base units."""

    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class FamilySamples:
    """One family's series, in the order in which they are written: columns of equal length.

    Attributes:
        created_s: Since when a counter counts (Unix time), None where that is not known; empty for all
            other families. OpenMetrics shows it.
    """

    family: Family
    labels: tuple[Labels, ...]
    values: tuple[float, ...]
    created_s: tuple[float | None, ...] = ()

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The same by series."""
        return tuple(map(Sample, self.labels, self.values))


@dataclass(frozen=True, slots=True)
class Page:
    """Everything one snapshot has to say.

    Attributes:
        at_seconds: Unix time of the snapshot.
        families: In the catalogue's order; a family without samples is left out.
        dropped_series: What the budget had no room for.
    """

    at_seconds: float
    families: tuple[FamilySamples, ...]
    dropped_series: int = 0


@dataclass(slots=True)
class _Column:
    """A family's series as they are added; each has `width` label values."""

    family: Family
    width: int
    labels: list[Labels] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    created_s: list[float | None] = field(default_factory=list)


class PageBuilder:
    """Collects samples by family name; refuses names and label counts that the families do not know.

    Args:
        series_budget: How many series the page may have; only what stands in no group may exceed it.
        families: The families a page may have, in their order.
    """

    def __init__(
        self, series_budget: int = DEFAULT_SERIES_BUDGET, families: Mapping[str, Family] = BY_NAME
    ) -> None:
        self._families = families
        self._series_budget = series_budget
        self._columns: dict[str, _Column] = {}
        self._added: list[_Column] = []
        self._is_full = False
        self._dropped_series = 0

    def add(
        self, name: str, labels: Iterable[str], value: float | None, created_s: float | None = None
    ) -> None:
        """Add one series; a value of None adds nothing: absent, never 0.

        Args:
            name: The family.
            labels: Values in the family's order.
            value: In base units.
            created_s: Since when a counter counts, Unix time; None = not known, or no counter.

        Raises:
            KeyError: For a name that the families do not have.
            ValueError: For a number of labels that is not the family's, or a family kept natively.
        """
        if value is None:
            return
        column = self._columns.get(name) or self._begin(name)
        values = tuple(labels)
        if len(values) != column.width:
            raise ValueError(f"{name}: labels {values!r} do not match {column.family.labels!r}")
        column.labels.append(values)
        column.values.append(value + 0.0)  # a float, and never −0
        column.created_s.append(created_s)
        self._added.append(column)

    @contextmanager
    def group(self) -> Iterator[None]:
        """What is added inside stands on the page together or not at all.

        Groups are to come in the order of their weight: from the first that the budget has no room for
        on, every group is left out, so that which ones are missing is no matter of chance.
        """
        before = len(self._added)
        yield
        self._is_full = self._is_full or len(self._added) > self._series_budget
        if self._is_full:
            self._dropped_series += len(self._added) - before
            for column in self._added[before:]:
                column.labels.pop()
                column.values.pop()
                column.created_s.pop()
            del self._added[before:]

    def build(self, at_seconds: float) -> Page:
        """The finished page, families in their order, series sorted by their labels."""
        order: Sequence[int] = ()
        families = []
        for name in self._families:
            column = self._columns.get(name)
            if column is None or not column.labels:
                continue
            order = _order(column.labels, order)
            families.append(
                FamilySamples(
                    column.family,
                    tuple(map(column.labels.__getitem__, order)),
                    tuple(map(column.values.__getitem__, order)),
                    tuple(map(column.created_s.__getitem__, order))
                    if column.family.type == "counter"
                    else (),
                )
            )
        return Page(at_seconds, tuple(families), self._dropped_series)

    def _begin(self, name: str) -> _Column:
        family = self._families[name]
        if family is BY_NAME.get(name) and name in NATIVE_FAMILIES:
            raise ValueError(f"{name} is counted in the registry, not on pages")
        return self._columns.setdefault(name, _Column(family, len(family.labels)))


def _order(labels: Sequence[Labels], guess: Sequence[int]) -> Sequence[int]:
    """The order that sorts a column; mostly that of the column before, which has the same slices."""
    if len(guess) == len(labels):
        guessed = [labels[index] for index in guess]
        if all(map(operator.le, guessed, guessed[1:])):
            return guess
    return sorted(range(len(labels)), key=labels.__getitem__)
