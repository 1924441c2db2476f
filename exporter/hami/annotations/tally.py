"""Counts of annotations that could not be read, by kind and reason, each possible pair from 0.

Both roles count with it. Invariant: a flaw is counted when it appears, not again with every update of its
object (a kubelet touches its Node every few seconds), nor when a restarted exporter finds it still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from exporter.hami.annotations.flaw import REASONS_OF, Flaw


class FlawTally:
    """Counts flaws.

    Args:
        counts: `kind/reason` to count, as the last run left them.
        is_silent: Count nothing until `speak`: after a restart the first look finds old flaws again.
    """

    def __init__(self, counts: Mapping[str, int] | None = None, *, is_silent: bool = False) -> None:
        self._counts = {(kind, reason): 0 for kind, reasons in REASONS_OF.items() for reason in reasons} | {
            (kind, reason): count for (kind, reason), count in _pairs(counts or {})
        }
        self._is_silent = is_silent

    def speak(self) -> None:
        """Count from now on."""
        self._is_silent = False

    def count(self, flaws: Iterable[Flaw], known: Iterable[Flaw]) -> None:
        """Count the flaws of an object that it did not have before.

        Args:
            flaws: Those it has now.
            known: Those it had at the last look.
        """
        if self._is_silent:
            return
        before = set(known)
        for found in flaws:
            if found not in before:
                pair = (found.kind, found.reason)
                self._counts[pair] = self._counts.get(pair, 0) + 1

    def counts(self) -> Mapping[tuple[str, str], int]:
        """A copy: the count of each (kind, reason)."""
        return dict(self._counts)

    def dump(self) -> dict[str, int]:
        """What must survive a restart."""
        return {f"{kind}/{reason}": count for (kind, reason), count in self._counts.items() if count}


def _pairs(counts: Mapping[str, int]) -> Iterable[tuple[tuple[str, str], int]]:
    for name, count in counts.items():
        kind, _, reason = name.partition("/")
        yield (kind, reason), count
