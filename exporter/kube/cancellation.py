"""How one thread ends another's wait, whether it waits for time or for bytes from a socket.

A watch may sit in `recv` for a minute; without this, stopping the exporter would take as long.
Invariant: after `cancel` every present and future wait returns at once, every present and future
socket under `interrupting` is shut down.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Cancellation:
    """A one-way switch."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._event.is_set()

    def cancel(self) -> None:
        """End all waits."""
        with self._lock:
            self._event.set()
            for open_socket in self._sockets:
                shut_down(open_socket)

    def wait(self, seconds: float) -> bool:
        """Wait; True if cancelled meanwhile."""
        return self._event.wait(seconds)

    @contextmanager
    def interrupting(self, open_socket: socket.socket) -> Iterator[None]:
        """While inside, `cancel` shuts the socket down."""
        with self._lock:
            self._sockets.add(open_socket)
            if self._event.is_set():
                shut_down(open_socket)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(open_socket)


def shut_down(open_socket: socket.socket) -> None:
    """End every present and future wait for bytes of a socket; its owner still closes it."""
    # The plain socket's method: SSLSocket.shutdown would take the TLS state from under the reader.
    with suppress(OSError):
        socket.socket.shutdown(open_socket, socket.SHUT_RDWR)
