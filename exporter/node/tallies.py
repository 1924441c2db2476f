"""Counters about ourselves: refused values, disagreements, lost samples, unreadable files.

They are stored with the other counters, since a counter that was ever scraped must not go back either.
"""

from __future__ import annotations

import msgspec


class TallyCount(msgspec.Struct, frozen=True, array_like=True):
    """One counter about ourselves, by family and label values."""

    family: str
    labels: tuple[str, ...]
    count: int


class Tallies:
    """Counters of noteworthy things (refused values, disagreements, lost samples), by family and labels.

    Args:
        counts: What an earlier run left.
        since_ms: When they began at 0, Unix milliseconds.
    """

    def __init__(self, counts: list[TallyCount] | None = None, *, since_ms: int = 0) -> None:
        self.since_ms = since_ms
        self._counts = {(each.family, each.labels): each.count for each in counts or ()}

    def count(self, family: str, *labels: str, by: int = 1) -> None:
        """Add to one counter; `by` 0 makes it appear."""
        self._counts[family, labels] = self._counts.get((family, labels), 0) + by

    def by_family(self) -> dict[str, dict[tuple[str, ...], int]]:
        """A copy: label values to count, by family."""
        families: dict[str, dict[tuple[str, ...], int]] = {}
        for (family, labels), count in self._counts.items():
            families.setdefault(family, {})[labels] = count
        return families

    def packed(self) -> list[TallyCount]:
        """All of them, fit to be stored."""
        return [TallyCount(family, labels, count) for (family, labels), count in self._counts.items()]
