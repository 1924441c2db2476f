"""The HTTP server: `/metrics`, `/healthz`, `/readyz` and a small index, on threads of the standard library.

Prometheus is not the only caller: browsers, probes and stuck scripts come too. Invariants: a request
touches neither a source nor an API, only the newest page and our own metrics; parallel scrapes beyond
the cap get 503 at once; no connection lives longer than the deadline, whatever its client does.
"""

from __future__ import annotations

import gzip as gzip_format
import json
import logging
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Final

from prometheus_client.exposition import choose_encoder

from contract.version import VERSION
from exporter.exposition.collector import Exposition
from exporter.exposition.encoder import PageEncoder

Readiness = Callable[[], tuple[bool, Sequence[str]]]
"""Whether the role is ready, and in words why not."""

MAX_PARALLEL_SCRAPES: Final = 8
MAX_CONNECTIONS: Final = 64
CONNECTION_DEADLINE_SECONDS: Final = 30.0
REAP_INTERVAL_SECONDS: Final = 0.2

_INDEX = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Slicemeter exporter</title></head><body>
<h1>Slicemeter exporter</h1>
<ul>
<li><a href="/metrics">/metrics</a>: the metrics, as Prometheus reads them</li>
<li><a href="/healthz">/healthz</a>: the process answers</li>
<li><a href="/readyz">/readyz</a>: whether the figures are complete, and why not</li>
</ul>
</body></html>
"""

_log = logging.getLogger(__name__)


class MetricsServer:
    """Serves one exposition until it is stopped.

    Args:
        exposition: What `/metrics` shows.
        ready: What `/readyz` answers; called in the request's thread, so it must not block.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one, which `port` then tells.
        max_parallel_scrapes: Scrapes answered at a time; the next one gets 503.
        connection_deadline_seconds: The longest life of a connection.

    Raises:
        OSError: The address cannot be bound.
    """

    def __init__(
        self,
        exposition: Exposition,
        ready: Readiness,
        *,
        host: str,
        port: int,
        max_parallel_scrapes: int = MAX_PARALLEL_SCRAPES,
        connection_deadline_seconds: float = CONNECTION_DEADLINE_SECONDS,
    ) -> None:
        self._server = _Server(
            (host, port), _Pages(exposition, ready, max_parallel_scrapes), connection_deadline_seconds
        )
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that was bound."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer, in a thread of its own."""
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(REAP_INTERVAL_SECONDS,), name="metrics-server"
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop answering, cut what is still open, free the port."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._thread = None
        self._server.server_close()
        self._server.cut_connections(older_than_seconds=0)


class _Pages:
    """What each path answers; the HTTP around it is the handler's."""

    def __init__(self, exposition: Exposition, ready: Readiness, max_parallel: int) -> None:
        self._exposition = exposition
        self._ready = ready
        self._encoder = PageEncoder()
        self.scrapes = threading.BoundedSemaphore(max_parallel)

    def metrics(self, accept: str, *, gzip: bool) -> tuple[str, bytes]:
        """Content type and body of a scrape."""
        encode, content_type = choose_encoder(accept)
        if "escaping=dots" in content_type or "escaping=values" in content_type:
            # Schemes that rewrite our names: rare enough for the stock encoder.
            body = encode(self._exposition.everything)
            page = None
        else:
            body = encode(self._exposition.registry)
            page = self._exposition.board.latest()
        openmetrics = content_type.startswith("application/openmetrics-text")
        if page is None:
            return content_type, gzip_format.compress(body, 1) if gzip else body
        if gzip:
            return content_type, self._encoder.render_gzip(page, body, openmetrics=openmetrics)
        return content_type, self._encoder.render(page, openmetrics=openmetrics) + body

    def readiness(self) -> tuple[HTTPStatus, bytes]:
        """Status and JSON of `/readyz`."""
        is_ready, reasons = self._ready()
        status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return status, json.dumps({"ready": is_ready, "reasons": list(reasons)}).encode() + b"\n"


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Threads, a cap on connections, and a deadline for each of them."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], pages: _Pages, deadline_seconds: float) -> None:
        self.pages = pages
        self._deadline_seconds = deadline_seconds
        self._opened: dict[socket.socket, float] = {}
        self._opened_lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def verify_request(self, request: object, client_address: object) -> bool:  # noqa: ARG002
        """Refuse connections beyond the cap before a thread is spent on them."""
        with self._opened_lock:
            if len(self._opened) >= MAX_CONNECTIONS:
                return False
            assert isinstance(request, socket.socket)
            self._opened[request] = time.monotonic()
        request.settimeout(self._deadline_seconds)
        return True

    def close_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Forget a connection and close it."""
        assert isinstance(request, socket.socket)
        with self._opened_lock:
            self._opened.pop(request, None)
        super().close_request(request)

    def service_actions(self) -> None:
        """Between polls: cut what is over its deadline."""
        self.cut_connections(older_than_seconds=self._deadline_seconds)

    def cut_connections(self, *, older_than_seconds: float) -> None:
        """End connections by age; their threads notice at their next read or write."""
        oldest = time.monotonic() - older_than_seconds
        with self._opened_lock:
            for connection, opened in self._opened.items():
                if opened <= oldest:
                    try:
                        connection.shutdown(socket.SHUT_RDWR)
                    except OSError as error:
                        _log.debug("connection was gone already: %s", error)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """A client that went away is its own affair; anything else is ours, and logged."""
        is_theirs = isinstance(sys.exception(), (ConnectionError, TimeoutError))
        level = logging.DEBUG if is_theirs else logging.ERROR
        _log.log(level, "request of %s ended early", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """One request a connection (HTTP/1.0): a kept connection would hold a thread between scrapes."""

    server: _Server

    def do_GET(self) -> None:
        """Answer a request."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer_scrape()
        elif path == "/readyz":
            status, body = self.server.pages.readiness()
            self._answer(status, "application/json", body)
        elif path == "/healthz":
            self._answer(HTTPStatus.OK, "text/plain; charset=utf-8", b"ok\n")
        elif path == "/":
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", _INDEX)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "no such page; there are /metrics, /healthz, /readyz")

    def do_HEAD(self) -> None:
        """As GET, without the body."""
        self.do_GET()

    def _not_allowed(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered", ("Allow", "GET, HEAD"))

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _not_allowed  # noqa: N815 - the library's names

    def _answer_scrape(self) -> None:
        pages = self.server.pages
        if not pages.scrapes.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many scrapes at a time", ("Retry-After", "1"))
            return
        try:
            gzip = accepts_gzip(self.headers.get("Accept-Encoding", ""))
            content_type, body = pages.metrics(self.headers.get("Accept", ""), gzip=gzip)
            self._answer(HTTPStatus.OK, content_type, body, *([("Content-Encoding", "gzip")] if gzip else []))
        finally:
            pages.scrapes.release()

    def _refuse(self, status: HTTPStatus, why: str, *headers: tuple[str, str]) -> None:
        self._answer(status, "text/plain; charset=utf-8", f"{why}\n".encode(), *headers)

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes, *headers: tuple[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
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
