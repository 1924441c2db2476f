"""A threaded TLS server that can be stopped in the middle of anything.

Invariant: after `close_all` no thread and no socket of it is left, whatever its clients do.
"""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any

HANDSHAKE_TIMEOUT_S = 10.0
POLL_S = 0.05
JOIN_S = 10.0


class TidySocket(ssl.SSLSocket):
    """Closes itself: `ssl` forgets a socket whose peer resets it just before the handshake."""

    def __del__(self) -> None:
        self.close()


class TlsServer(TCPServer):
    """Serves each connection in a daemon thread; the handshake happens there too.

    Args:
        port: On loopback; 0 takes a free one.
        handler: Answers the requests.
        context: The server's certificate.
    """

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self._context = context
        self._handler = handler
        self._lock = threading.Lock()
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._is_closing = False
        self._acceptor = threading.Thread(
            target=self.serve_forever, args=(POLL_S,), name="api-double", daemon=True
        )

    def open_all(self) -> None:
        """Begin to accept."""
        self._acceptor.start()

    def close_all(self) -> None:
        """Sever all connections and wait for their threads."""
        self.shutdown()
        self.server_close()
        self._acceptor.join(JOIN_S)
        with self._lock:
            self._is_closing = True
        self.sever()
        for thread in list(self._connections):
            thread.join(JOIN_S)

    def sever(self) -> None:
        """Cut all connections, at whatever byte they are."""
        with self._lock:
            for connection in self._connections.values():
                with suppress(OSError):
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Hand a connection to a thread of its own."""
        thread = threading.Thread(
            target=self._serve, args=(request, client_address), name="api-double-connection", daemon=True
        )
        with self._lock:
            self._connections[thread] = request
        thread.start()

    def _serve(self, plain: socket.socket, client_address: tuple[str, int]) -> None:
        me = threading.current_thread()
        try:
            plain.settimeout(HANDSHAKE_TIMEOUT_S)
            with plain, self._context.wrap_socket(plain, server_side=True) as secure:
                with self._lock:
                    self._connections[me] = secure
                    if self._is_closing:
                        return
                secure.settimeout(None)
                self._handler(secure, client_address, self)
        except (OSError, ValueError):
            # The client is gone, or never trusted us: its affair.
            return
        finally:
            with self._lock:
                del self._connections[me]
