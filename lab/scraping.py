"""Prometheus's part in the demo: scrapes every target again and again, and keeps the pages.

Invariant: a target that does not answer has no page for that moment; nothing is repeated in its place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from lab.exporters import Target
from lab.pages import Album, fetch, parse_page


class Scraper:
    """Scrapes targets in a thread of its own.

    Args:
        targets: Who is scraped.
        album: Where pages go.
        interval_s: From one round to the next.
    """

    def __init__(self, targets: Sequence[Target], album: Album, interval_s: float) -> None:
        self._targets = targets
        self._album = album
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scraper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the present round."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while True:
            begun_s = time.monotonic()
            for target in self._targets:
                text = fetch(target.metrics_url)
                if text is not None:
                    self._album.add(target.name, parse_page(text, time.time()))
            if self._stop.wait(max(0.0, begun_s + self._interval_s - time.monotonic())):
                return
