"""What `slicemeter top` remembers between two looks: the page before, and each slice's rates so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from exporter.exposition.reading import Page
from slicemeter.top.rows import HISTORY, Row, SliceKey, rows_of
from slicemeter.top.scraping import Scrape


class Watch:
    """Folds scrapes into rows; mutable state, no input or output."""

    def __init__(self) -> None:
        self._pages: dict[str, Page] = {}
        self._rows: dict[str, list[Row]] = {}
        self._history: dict[SliceKey, deque[float | None]] = {}
        self.errors: dict[str, str] = {}
        """By address: why an exporter's slices are those of its last answer, or missing."""

    @property
    def rows(self) -> list[Row]:
        """The slices of all exporters as of their last answers."""
        return [row for rows in self._rows.values() for row in rows]

    def history(self, key: SliceKey) -> Sequence[float | None]:
        """A slice's rates, oldest first."""
        return tuple(self._history.get(key, ()))

    def take(self, scrapes: Iterable[Scrape]) -> None:
        """Take in a round of scrapes; a page of the same snapshot as before changes nothing."""
        for scrape in scrapes:
            if scrape.page is None:
                self.errors[scrape.url] = scrape.error
                continue
            self.errors.pop(scrape.url, None)
            before = self._pages.get(scrape.url)
            if before is not None and _stamp(before) == _stamp(scrape.page):
                continue
            self._pages[scrape.url] = scrape.page
            self._rows[scrape.url] = rows_of(scrape.url, scrape.page, before)
            if before is not None:
                self._remember(self._rows[scrape.url])
        held = {row.key for row in self.rows}
        self._history = {key: rates for key, rates in self._history.items() if key in held}

    def _remember(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._history.setdefault(row.key, deque(maxlen=HISTORY)).append(row.sm_ratio)


def _stamp(page: Page) -> float:
    return page.value("snapshot_timestamp_seconds") or page.at_s
