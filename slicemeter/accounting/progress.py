"""A progress bar on stderr for work that takes longer than two seconds; only where a person watches."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from accounting.progress import Progress, unseen

_PATIENCE_SECONDS = 2.0
_REDRAW_SECONDS = 0.1
_WIDTH = 30


class Bar:
    """Draws how far the work is; gone when it is done.

    Use it as a context manager: `with Bar() as progress: close_period(…, progress=progress)`.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._is_drawn = False

    def __enter__(self) -> Progress:
        return self.show if sys.stderr.isatty() else unseen

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._is_drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def show(self, what: str, done: int, total: int) -> None:
        """Draw, unless the work is young or was drawn a moment ago."""
        now = time.monotonic()
        if now - self._began < _PATIENCE_SECONDS or now - self._drawn_at < _REDRAW_SECONDS:
            return
        self._drawn_at = now
        self._is_drawn = True
        print(f"\r\x1b[K{text(what, done, total)}", end="", file=sys.stderr, flush=True)


def text(what: str, done: int, total: int) -> str:
    """One line of progress: a bar where the total is known, else a count."""
    if total <= 0:
        return f"{what}: {done:,}"
    filled = min(done, total) * _WIDTH // total
    return f"{what} [{'#' * filled}{'.' * (_WIDTH - filled)}] {min(done, total) * 100 // total} %"
