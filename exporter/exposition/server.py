"""The HTTP server: threads of the standard library, bounded in number, size and time.

Prometheus is not the only caller: browsers, probes and stuck scripts come too. Invariants: a request
touches neither a source nor an API; parallel scrapes and connections beyond their caps are refused at
once; no connection lives longer than its deadline, whatever its client does; no handshake is waited for
where connections are accepted.
"""

from __future__ import annotations

import logging
import socket
import socketserver
import ssl
import sys
import threading
import time
from dataclasses import dataclass
from typing import Final

from exporter.exposition.collector import Exposition
from exporter.exposition.door import Door
from exporter.exposition.handler import Handler
from exporter.exposition.pages import MAX_PARALLEL_SCRAPES, Extras, Pages, Readiness

MAX_CONNECTIONS: Final = 64
CONNECTION_DEADLINE_SECONDS: Final = 30.0
HEAD_DEADLINE_SECONDS: Final = 10.0
"""Handshake and head together; an honest client needs milliseconds."""

REAP_INTERVAL_SECONDS: Final = 0.2

_log = logging.getLogger(__name__)


class MetricsServer:
    """Serves one exposition until it is stopped.

    Args:
        exposition: What `/metrics` shows.
        ready: What `/readyz` answers; called in the request's thread, so it must not block.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one, which `port` then tells.
        door: Who may come in, and whether by TLS; None = everybody, by plain HTTP.
        extras: Further pages.
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
        door: Door | None = None,
        extras: Extras | None = None,
        max_parallel_scrapes: int = MAX_PARALLEL_SCRAPES,
        connection_deadline_seconds: float = CONNECTION_DEADLINE_SECONDS,
    ) -> None:
        pages = Pages(exposition, ready, extras, max_parallel_scrapes)
        self._listener = Listener((host, port), pages, door or Door(), connection_deadline_seconds)
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that was bound."""
        return int(self._listener.server_address[1])

    def start(self) -> None:
        """Begin to answer, in a thread of its own."""
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(REAP_INTERVAL_SECONDS,), name="metrics-server"
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop answering, cut what is still open, free the port."""
        if self._thread is not None:
            self._listener.shutdown()
            self._thread.join()
            self._thread = None
        self._listener.server_close()
        self._listener.cut_connections(everything=True)


@dataclass(slots=True)
class _Opened:
    """A connection: its client, the socket that now carries it, and when it is to end."""

    client_address: object
    connection: socket.socket
    opened_s: float
    ends_s: float


class Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Threads, a cap on connections, and a deadline for each of them."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], pages: Pages, door: Door, deadline_s: float) -> None:
        self.pages = pages
        self.door = door
        self._deadline_s = deadline_s
        self._opened: dict[socket.socket, _Opened] = {}
        self._opened_lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Handler)

    def verify_request(self, request: object, client_address: object) -> bool:
        """Refuse connections beyond the cap before a thread is spent on them."""
        assert isinstance(request, socket.socket)
        now_s = time.monotonic()
        ends_s = now_s + min(HEAD_DEADLINE_SECONDS, self._deadline_s)
        with self._opened_lock:
            if len(self._opened) >= MAX_CONNECTIONS:
                return False
            self._opened[request] = _Opened(client_address, request, now_s, ends_s)
        request.settimeout(self._deadline_s)
        return True

    def finish_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Answer a connection in its thread, where a handshake holds nobody up."""
        assert isinstance(request, socket.socket)
        context = self.door.rules().tls
        if context is None:
            super().finish_request(request, client_address)
            return
        with context.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as connection:
            with self._opened_lock:
                if request in self._opened:
                    self._opened[request].connection = connection
            connection.do_handshake()
            super().finish_request(connection, client_address)

    def extend(self, client_address: object, timeout_s: float | None) -> None:
        """A head has come: give the answer its time, which is what the client itself would wait."""
        lives_s = self._deadline_s if timeout_s is None else min(timeout_s, self._deadline_s)
        with self._opened_lock:
            for opened in self._opened.values():
                if opened.client_address == client_address:
                    opened.ends_s = opened.opened_s + lives_s

    def close_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Forget a connection and close it."""
        assert isinstance(request, socket.socket)
        with self._opened_lock:
            self._opened.pop(request, None)
        super().close_request(request)

    def service_actions(self) -> None:
        """Between polls: cut what is over its deadline."""
        self.cut_connections()

    def cut_connections(self, *, everything: bool = False) -> None:
        """End connections that are over their deadline; their threads notice at their next read or write."""
        now_s = time.monotonic()
        with self._opened_lock:
            for opened in self._opened.values():
                if everything or opened.ends_s <= now_s:
                    try:
                        # Not `SSLSocket.shutdown`, which would change TLS state under another thread.
                        socket.socket.shutdown(opened.connection, socket.SHUT_RDWR)
                    except OSError as error:
                        _log.debug("connection was gone already: %s", error)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """A client that went away is its own affair; anything else is ours, and logged."""
        is_theirs = isinstance(sys.exception(), (ConnectionError, TimeoutError, ssl.SSLError))
        level = logging.DEBUG if is_theirs else logging.ERROR
        _log.log(level, "request of %s ended early", client_address, exc_info=True)
