"""Connections: each in a thread of its own, bounded in number and in time.

Prometheus is not the only caller: browsers, probes and stuck scripts come too. Invariants: connections
beyond the cap are refused at once; none lives longer than its deadline, whatever its client does; no
handshake is waited for where connections are accepted.
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

from exporter.exposition.door import Door
from exporter.exposition.pages import Pages

MAX_CONNECTIONS: Final = 64
HEAD_DEADLINE_SECONDS: Final = 10.0
"""Handshake and head together; an honest client needs milliseconds."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Opened:
    """A connection: its client, the socket that now carries it, and when it is to end."""

    client_address: object
    connection: socket.socket
    opened_s: float
    ends_s: float


class Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Threads, a cap on connections, and a deadline for each of them.

    Args:
        address: Host and port to listen on; port 0 takes a free one.
        handler: Reads one request and answers it.
        pages: What the handler answers with.
        door: Who may come in, and whether by TLS.
        deadline_s: The longest life of a connection.

    Raises:
        OSError: The address cannot be bound.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[socketserver.BaseRequestHandler],
        pages: Pages,
        door: Door,
        deadline_s: float,
    ) -> None:
        self.pages = pages
        self.door = door
        self._deadline_s = deadline_s
        self._opened: dict[socket.socket, _Opened] = {}
        self._opened_lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

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
