"""How long to wait before asking again.

Invariant: a wait is never shorter than what the server asked for (`Retry-After`, up to five minutes),
and never the same for all exporters of a cluster, so that they do not come back in step.
"""

from __future__ import annotations

from random import Random

RETRY_AFTER_CEILING_S = 300.0


class Backoff:
    """Exponential with jitter: the n-th wait lies in (half, whole] of first × 2ⁿ, capped.

    Args:
        first_s: Upper end of the first wait.
        ceiling_s: Upper end of any wait.
        random: Source of the jitter.
    """

    def __init__(self, first_s: float, ceiling_s: float, random: Random) -> None:
        self._first_s = first_s
        self._ceiling_s = ceiling_s
        self._random = random
        self._next_s = first_s

    def reset(self) -> None:
        """Things go well again."""
        self._next_s = self._first_s

    def next_s(self, retry_after_s: float | None = None) -> float:
        """The next wait in seconds."""
        wait_s = self._next_s * (1.0 - 0.5 * self._random.random())
        self._next_s = min(self._next_s * 2, self._ceiling_s)
        if retry_after_s is None:
            return wait_s
        return max(min(retry_after_s, RETRY_AFTER_CEILING_S) + self._first_s * self._random.random(), wait_s)
