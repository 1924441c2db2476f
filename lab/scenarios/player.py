"""The player: does what a scenario says, when it says so, on the real clock.

A cue is a moment and something to do. Invariant: cues are done in the order of their moments, each
once, late rather than never; the first that fails stops the play and is told to whoever asks.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cue:
    """Something to do, `at_s` real seconds after the start; `text` is what a person should read."""

    at_s: float
    do: Callable[[], object]
    text: str = ""


class Player:
    """Plays streams of cues, each stream in its own order and perhaps without an end.

    Args:
        streams: Sorted streams.
        start_s: When second 0 is, Unix seconds.
        now_s: The clock, Unix seconds.
    """

    def __init__(
        self, streams: Iterable[Iterable[Cue]], start_s: float, now_s: Callable[[], float] = time.time
    ) -> None:
        self._cues: Iterator[Cue] = heapq.merge(*streams, key=lambda cue: cue.at_s)
        self._start_s = start_s
        self._now_s = now_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)
        self.step = ""
        """The last thing done that a person should read."""
        self.error: Exception | None = None
        """What stopped the play, if anything did."""

    def start(self) -> None:
        """Begin to play, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Play no further cue and wait for the present one."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def wait(self, within_s: float) -> None:
        """Wait for the end of the play, at most so long."""
        self._thread.join(within_s)

    @property
    def is_over(self) -> bool:
        """Whether every cue was played, or the play stopped."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for cue in self._cues:
                wait_s = self._start_s + cue.at_s - self._now_s()
                if self._stop.wait(max(wait_s, 0)):
                    return
                cue.do()
                self.step = cue.text or self.step
        except Exception as error:  # noqa: BLE001 - told to the main thread, which reports it
            self.error = error
