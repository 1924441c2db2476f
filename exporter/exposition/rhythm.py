"""When the next scrapes are due, learned from those before, so that their pages can be made ahead.

Ticks come every second and a scraper every fifteen: a page for each tick would be work for nobody, one made
when it is asked for keeps the scraper waiting. Invariants: a wrong guess costs one page that nobody reads
and nothing else; what is remembered is bounded, whoever asks.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K")

MOST_SCRAPERS: Final = 16
_SLACK_SHARE: Final = 0.05
"""Scrapers keep their time well; a busy one is a little late."""
_LONGEST_GAP_S: Final = 300.0
"""Who asks more seldom is no scraper."""


@dataclass(slots=True)
class _Habit:
    """When a scraper last asked, and how long after the time before; None = it asked only once."""

    at_s: float
    gap_s: float | None = None


class Rhythm(Generic[K]):
    """The habits of those who asked last; keys say who asks and for what."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._habits: OrderedDict[K, _Habit] = OrderedDict()

    def note(self, key: K, at_s: float) -> None:
        """Somebody asks now, on a clock that only grows."""
        with self._lock:
            before = self._habits.pop(key, None)
            gap_s = None if before is None else at_s - before.at_s
            self._habits[key] = _Habit(at_s, gap_s)
            while len(self._habits) > MOST_SCRAPERS:
                self._habits.popitem(last=False)

    def due(self, from_s: float, until_s: float) -> list[K]:
        """Who is to be expected in a stretch of time."""
        with self._lock:
            return [key for key, habit in self._habits.items() if _is_due(habit, from_s, until_s)]


def _is_due(habit: _Habit, from_s: float, until_s: float) -> bool:
    gap_s = habit.gap_s
    if gap_s is None or not 0 < gap_s <= _LONGEST_GAP_S:
        return False
    next_s, slack_s = habit.at_s + gap_s, gap_s * _SLACK_SHARE
    return next_s + slack_s >= from_s and next_s - slack_s <= until_s
