"""One HTTP request: its head read within bounds, its sender judged, its answer written.

Invariants: before a head is read whole nothing is done for it, and a head is at most 16 KiB; only the
probes are answered without credentials.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import logging
import math
import ssl
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Final

from contract.version import VERSION
from exporter.exposition.door import PeerCertificate, Rules
from exporter.exposition.listener import Listener
from exporter.exposition.pages import Pages, Scrape, accepts_gzip

MAX_HEAD_BYTES: Final = 16_384
PATIENCE_SHARE: Final = 0.5
"""Of the scraper's own deadline: what it may wait for a page; the rest is for sending it."""

_log = logging.getLogger(__name__)


class Head(io.BufferedIOBase):
    """The bytes of a request up to its empty line, and no more than the limit."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream
        self._left = MAX_HEAD_BYTES

    def readable(self) -> bool:
        """It can be read."""
        return True

    def readline(self, size: int | None = -1, /) -> bytes:
        """The next line.

        Raises:
            http.client.LineTooLong: The head is over its limit.
        """
        bound = self._left + 1 if size is None or size < 0 else min(size, self._left + 1)
        line = self._stream.readline(bound)
        self._left -= len(line)
        if self._left < 0:
            raise http.client.LineTooLong("request head")
        return line

    def close(self) -> None:
        """Close the stream under it too: an open one keeps its socket open."""
        self._stream.close()
        super().close()


class Handler(BaseHTTPRequestHandler):
    """One request a connection (HTTP/1.0): a kept connection would hold a thread between scrapes."""

    disable_nagle_algorithm = True
    """Head and body are written one after the other: the body must not wait for the head to be confirmed."""

    server: Listener
    _rules: Rules

    def setup(self) -> None:
        """Bound what is read."""
        super().setup()
        self.rfile = Head(self.rfile)
        self._rules = self.server.door.rules()

    def handle_one_request(self) -> None:
        """Answer the request, also one whose first line is beyond the bound."""
        try:
            super().handle_one_request()
        except http.client.HTTPException:
            self.command, self.requestline, self.request_version = "", "", "HTTP/1.0"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's head is too large")

    def do_GET(self) -> None:
        """Answer a request."""
        path = self.path.partition("?")[0]
        timeout_s = _scrape_timeout_s(self.headers.get("X-Prometheus-Scrape-Timeout-Seconds"))
        self.server.extend(self.client_address, timeout_s)
        if path == "/healthz":
            self._answer(HTTPStatus.OK, "text/plain; charset=utf-8", b"ok\n")
        elif path == "/readyz":
            status, body = self.server.pages.readiness()
            self._answer(status, "application/json", body)
        elif self._is_welcome():
            self._answer_page(path, timeout_s)

    def do_HEAD(self) -> None:
        """As GET, without the body."""
        self.do_GET()

    def _not_allowed(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered", ("Allow", "GET, HEAD"))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _not_allowed  # noqa: N815 - the library's names

    def _is_welcome(self) -> bool:
        """Whether the sender may read pages; who may not has been told so."""
        if not self._rules.trusts(self._peer_certificate()):
            self._refuse(HTTPStatus.FORBIDDEN, "show a client certificate that is allowed here")
            return False
        credentials = self._rules.credentials
        verdict = credentials.judge(self.headers.get("Authorization"))
        if verdict == "busy":
            busy = "other passwords are being checked"
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, busy, ("Retry-After", "5"))
        elif verdict == "unknown":
            challenges = [("WWW-Authenticate", challenge) for challenge in credentials.challenges]
            self._refuse(HTTPStatus.UNAUTHORIZED, "these pages need credentials", *challenges)
        return verdict == "welcome"

    def _peer_certificate(self) -> PeerCertificate:
        connection = self.connection
        return (connection.getpeercert() or {}) if isinstance(connection, ssl.SSLSocket) else {}

    def _answer_page(self, path: str, timeout_s: float | None) -> None:
        pages = self.server.pages
        if path == "/metrics":
            self._answer_scrape(pages.metrics, timeout_s)
        elif path == "/metrics/hami" and pages.has_hami:
            self._answer_scrape(pages.hami_metrics, timeout_s)
        elif path == "/debug/snapshot" and pages.has_snapshot:
            self._answer_snapshot(pages)
        elif path == "/":
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", pages.index())
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "no such page; / lists those that there are")

    def _answer_scrape(self, make: Callable[[Scrape], tuple[str, bytes]], timeout_s: float | None) -> None:
        scrapes = self.server.pages.scrapes
        if not scrapes.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many scrapes at a time", ("Retry-After", "1"))
            return
        try:
            wanted = Scrape(
                self.headers.get("Accept", ""),
                accepts_gzip(self.headers.get("Accept-Encoding", "")),
                self.client_address[0],
                None if timeout_s is None else timeout_s * PATIENCE_SHARE,
            )
            try:
                content_type, body = make(wanted)
            except Exception:  # noqa: BLE001 - whatever it was, the scraper is told and it is logged
                _log.exception("a page could not be made")
                self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "this page could not be made; see the log")
                return
            encoding = [("Content-Encoding", "gzip")] if wanted.gzip else []
            self._answer(HTTPStatus.OK, content_type, body, *encoding)
        finally:
            scrapes.release()

    def _answer_snapshot(self, pages: Pages) -> None:
        if not _is_loopback(self.client_address[0]):
            self._refuse(HTTPStatus.FORBIDDEN, "only from this computer: try kubectl port-forward")
            return
        body = pages.snapshot()
        if body is None:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "no snapshot was taken yet", ("Retry-After", "1"))
        else:
            self._answer(HTTPStatus.OK, "application/json", body)

    def _refuse(self, status: HTTPStatus, why: str, *headers: tuple[str, str]) -> None:
        self._answer(status, "text/plain; charset=utf-8", f"{why}\n".encode(), *headers)

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (*self._rules.headers.items(), *headers):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """The `Server` header."""
        return f"slicemeter/{VERSION}"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's signature
        """Requests are not news."""
        _log.debug(format, *args)


def _scrape_timeout_s(header: str | None) -> float | None:
    """How long the scraper waits; None when it does not say."""
    try:
        timeout_s = float(header or "")
    except ValueError:
        return None
    return timeout_s if math.isfinite(timeout_s) and timeout_s > 0 else None


def _is_loopback(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.is_loopback
