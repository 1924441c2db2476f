"""Where a role pins its newest snapshot, and where a page is made of it when a scrape first wants one.

Ticks come every second and scrapes every fifteen: a page for each tick would be work for nobody.
Invariants: a page is made at most once for a snapshot, in the thread of the scrape that asks first; no
thread that publishes ever waits for one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from exporter.exposition.page import Page


class Draft:
    """A page to be made of an immutable snapshot.

    Args:
        make: Makes the page; pure, and called until it once did not raise.
    """

    def __init__(self, make: Callable[[], Page]) -> None:
        self._make: Callable[[], Page] | None = make
        self._lock = threading.Lock()
        self._page: Page | None = None

    def page(self, patience_s: float | None = None) -> tuple[Page | None, bool]:
        """The page, and whether this call made it.

        Args:
            patience_s: How long to wait while another thread makes it; None = as long as it takes. Who
                ran out of patience gets no page.
        """
        if self._page is None:
            if not self._lock.acquire(timeout=-1 if patience_s is None else patience_s):
                return None, False
            try:
                if self._make is not None:
                    self._page, self._make = self._make(), None
                    return self._page, True
            finally:
                self._lock.release()
        return self._page, False


class Board:
    """Where a sampler pins its latest page and scrapes take it from."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._draft: Draft | None = None
        self._newest_made: Page | None = None
        self._dropped_series = 0

    @property
    def dropped_series(self) -> int:
        """Series that the budget left out of the pages made so far."""
        return self._dropped_series

    def publish(self, page: Page | Draft) -> None:
        """Replace the page."""
        with self._lock:
            self._draft = page if isinstance(page, Draft) else Draft(lambda: page)

    def latest(self, patience_s: float | None = None) -> Page | None:
        """The newest page, or None before the first tick.

        Args:
            patience_s: How long to wait while another thread makes it; after that the page before it is
                the answer, as its timestamp says.
        """
        with self._lock:
            draft, newest_made = self._draft, self._newest_made
        if draft is None:
            return None
        page, is_new = draft.page(None if newest_made is None else patience_s)
        if page is None:
            return newest_made
        if is_new:
            with self._lock:
                self._newest_made = page
                self._dropped_series += page.dropped_series
        return page
