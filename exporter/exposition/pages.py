"""What each path answers, without the HTTP around it.

Invariants: an answer is made of the newest snapshot and our own metrics alone; a page is rendered once
for all who scrape it, ahead of those who come regularly; nothing of HAMi's names is on `/metrics`.
"""

from __future__ import annotations

import gzip as gzip_format
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final, TypeAlias

from prometheus_client.exposition import choose_encoder

from exporter.exposition.board import Board
from exporter.exposition.collector import Exposition, PageCollector
from exporter.exposition.encoder import PageEncoder
from exporter.exposition.page import Page
from exporter.exposition.rhythm import Rhythm

Readiness: TypeAlias = Callable[[], tuple[bool, Sequence[str]]]
"""Whether the role is ready, and in words why not."""

MAX_PARALLEL_SCRAPES: Final = 8

_log = logging.getLogger(__name__)

_END_OF_OPENMETRICS = b"# EOF\n"


@dataclass(frozen=True, slots=True)
class Extras:
    """Pages beyond `/metrics` that a role may have.

    Attributes:
        hami: The page under HAMi's own names; None = there is none.
        snapshot: The newest snapshot as JSON, None before the first tick.
    """

    hami: Board | None = None
    snapshot: Callable[[], bytes | None] | None = None


@dataclass(frozen=True, slots=True)
class Scrape:
    """What a scraper wants.

    Attributes:
        accept: Its `Accept` header.
        gzip: Whether it takes gzip.
        client: Who it is.
        patience_s: How long it may wait for a page that somebody else is making; None = for ever.
    """

    accept: str = ""
    gzip: bool = False
    client: str = ""
    patience_s: float | None = None


@dataclass(slots=True)
class _Rendered:
    """A board and its encoder."""

    board: Board
    encoder: PageEncoder = field(default_factory=PageEncoder)


class Pages:
    """The answers; `scrapes` bounds how many are made at a time."""

    def __init__(
        self,
        exposition: Exposition,
        ready: Readiness,
        extras: Extras | None = None,
        max_parallel_scrapes: int = MAX_PARALLEL_SCRAPES,
    ) -> None:
        self._exposition = exposition
        self._ready = ready
        self._extras = extras or Extras()
        self._main = _Rendered(exposition.board)
        self._hami = None if self._extras.hami is None else _Rendered(self._extras.hami)
        self._rhythm: Rhythm[tuple[bool, Scrape]] = Rhythm()
        self.scrapes = threading.BoundedSemaphore(max_parallel_scrapes)

    @property
    def has_hami(self) -> bool:
        """Whether `/metrics/hami` exists."""
        return self._hami is not None

    @property
    def has_snapshot(self) -> bool:
        """Whether `/debug/snapshot` exists."""
        return self._extras.snapshot is not None

    def metrics(self, wanted: Scrape) -> tuple[str, bytes]:
        """Content type and body of `/metrics`."""
        self._note(wanted, is_hami=False)
        return self._metrics(wanted)

    def hami_metrics(self, wanted: Scrape) -> tuple[str, bytes]:
        """Content type and body of `/metrics/hami`; only where it exists."""
        self._note(wanted, is_hami=True)
        return self._hami_metrics(wanted)

    def make_ahead(self, from_s: float, until_s: float) -> None:
        """Make what scrapers are expected to ask for in a stretch of time of the monotonic clock."""
        for is_hami, wanted in self._rhythm.due(from_s, until_s):
            make = self._hami_metrics if is_hami else self._metrics
            try:
                make(wanted)
            except Exception:  # noqa: BLE001 - the scrape itself will meet it and say so
                _log.debug("a page could not be made ahead", exc_info=True)

    def _note(self, wanted: Scrape, *, is_hami: bool) -> None:
        self._rhythm.note((is_hami, replace(wanted, patience_s=None)), time.monotonic())

    def _metrics(self, wanted: Scrape) -> tuple[str, bytes]:
        encode, content_type = choose_encoder(wanted.accept)
        if _rewrites_names(content_type):
            exposition, openmetrics = self._exposition, _is_openmetrics(content_type)
            body = encode(exposition.everything_openmetrics if openmetrics else exposition.everything)
            return content_type, gzip_format.compress(body, 1) if wanted.gzip else body
        # The page comes first: making it is what counts the series that it has no room for.
        page = self._main.board.latest(wanted.patience_s)
        body = encode(self._exposition.registry)
        return content_type, _render(self._main, page, body, wanted, content_type)

    def _hami_metrics(self, wanted: Scrape) -> tuple[str, bytes]:
        assert self._hami is not None
        encode, content_type = choose_encoder(wanted.accept)
        page = self._hami.board.latest(wanted.patience_s)
        if _rewrites_names(content_type):
            body = encode(PageCollector(self._hami.board, "node"))
            return content_type, gzip_format.compress(body, 1) if wanted.gzip else body
        end = _END_OF_OPENMETRICS if _is_openmetrics(content_type) else b""
        return content_type, _render(self._hami, page, end, wanted, content_type)

    def readiness(self) -> tuple[HTTPStatus, bytes]:
        """Status and JSON of `/readyz`."""
        is_ready, reasons = self._ready()
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return status, json.dumps({"ready": is_ready, "reasons": list(reasons)}).encode() + b"\n"

    def snapshot(self) -> bytes | None:
        """JSON of `/debug/snapshot`; only where it exists."""
        assert self._extras.snapshot is not None
        return self._extras.snapshot()

    def index(self) -> bytes:
        """HTML of `/`."""
        listed = [
            ("/metrics", "the metrics, as Prometheus reads them"),
            *([("/metrics/hami", "the same cards under HAMi's own names")] if self.has_hami else []),
            ("/healthz", "the process answers"),
            ("/readyz", "whether the figures are complete, and why not"),
            *(
                [("/debug/snapshot", "the newest snapshot, from this computer only")]
                if self.has_snapshot
                else []
            ),
        ]
        items = "\n".join(f'<li><a href="{path}">{path}</a>: {what}</li>' for path, what in listed)
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            "<title>Slicemeter exporter</title></head><body>\n<h1>Slicemeter exporter</h1>\n"
            f"<ul>\n{items}\n</ul>\n</body></html>\n"
        ).encode()


def _render(rendered: _Rendered, page: Page | None, tail: bytes, wanted: Scrape, content_type: str) -> bytes:
    """A page and what comes behind it."""
    if page is None:
        return gzip_format.compress(tail, 1) if wanted.gzip else tail
    openmetrics = _is_openmetrics(content_type)
    if wanted.gzip:
        return rendered.encoder.render_gzip(page, tail, openmetrics=openmetrics)
    return rendered.encoder.render(page, openmetrics=openmetrics) + tail


def _is_openmetrics(content_type: str) -> bool:
    return content_type.startswith("application/openmetrics-text")


def _rewrites_names(content_type: str) -> bool:
    """Escaping schemes that change our names: rare enough for the stock encoder."""
    return "escaping=dots" in content_type or "escaping=values" in content_type


def accepts_gzip(header: str) -> bool:
    """Whether an `Accept-Encoding` header takes gzip."""
    for part in header.split(","):
        name, *parameters = (word.strip() for word in part.lower().split(";"))
        if name in {"gzip", "*"}:
            return not any(
                parameter.replace(" ", "") in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
                for parameter in parameters
            )
    return False
