"""Metric pages as a Prometheus would see them: fetched over HTTP, parsed, kept by time.

The check table and the live table know the exporters only through this module. Invariant: nothing is
filled in; a series that is not on a page is absent here too.
"""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus

from exporter.exposition.reading import Labels, Page, parse_page

__all__ = ["Album", "Answer", "Labels", "Page", "ask", "fetch", "parse_page"]

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered; status 0 when nobody did."""

    status: int
    text: str


def ask(url: str, token: str | None = None) -> Answer:
    """GET an address."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - our own loopback address
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            return Answer(answer.status, answer.read().decode("utf-8"))
    except urllib.error.HTTPError as refusal:
        with refusal:
            return Answer(refusal.code, refusal.read().decode("utf-8", "replace"))
    except (OSError, http.client.HTTPException):
        return Answer(0, "")


def fetch(url: str, token: str | None = None) -> str | None:
    """The body at an address, or None while nobody answers there with success."""
    answer = ask(url, token)
    return answer.text if answer.status == HTTPStatus.OK else None


class Album:
    """All pages of all targets, in order; one writer, any readers.

    Args:
        keep: How many pages of a target are kept; None: all.
    """

    def __init__(self, keep: int | None = None) -> None:
        self._keep = keep
        self._pages: dict[str, list[Page]] = {}
        self._lock = threading.Lock()

    def add(self, target: str, page: Page) -> None:
        """Keep a page."""
        with self._lock:
            pages = self._pages.setdefault(target, [])
            pages.append(page)
            if self._keep is not None:
                del pages[: -self._keep]

    def pages(self, target: str) -> tuple[Page, ...]:
        """Every page kept of a target, oldest first."""
        with self._lock:
            return tuple(self._pages.get(target, ()))

    def latest(self, target: str) -> Page | None:
        """The newest page of a target."""
        pages = self.pages(target)
        return pages[-1] if pages else None
