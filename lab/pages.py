"""Metric pages as a Prometheus would see them: fetched over HTTP, parsed, kept by time.

The check table and the live table know the exporters only through this module. Invariant: nothing is
filled in; a series that is not on a page is absent here too.
"""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from contract.catalogue import PREFIX

TIMEOUT_S = 5.0

Labels: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Page:
    """One scrape of one target.

    Attributes:
        at_s: When it was scraped, Unix seconds.
        series: By name without the product's prefix, in the page's order.
    """

    at_s: float
    series: Mapping[str, Sequence[tuple[Labels, float]]]

    def find(self, name: str, **labels: str) -> Iterator[tuple[Labels, float]]:
        """The series of a name whose labels include these."""
        wanted = labels.items()
        return (pair for pair in self.series.get(name, ()) if wanted <= pair[0].items())

    def value(self, name: str, **labels: str) -> float | None:
        """The one matching series' value; None when there is none.

        Raises:
            ValueError: When several match: say which is meant.
        """
        found = [value for _, value in self.find(name, **labels)]
        if len(found) > 1:
            raise ValueError(f"{len(found)} series match {name}{labels}")
        return found[0] if found else None

    def total(self, name: str, **labels: str) -> float:
        """The sum of the matching series; 0 when there is none."""
        return sum(value for _, value in self.find(name, **labels))


def parse_page(text: str, at_s: float) -> Page:
    """Read the text format."""
    series: dict[str, list[tuple[Labels, float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix(PREFIX)
            series.setdefault(name, []).append((MappingProxyType(dict(sample.labels)), sample.value))
    return Page(at_s, MappingProxyType(series))


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
