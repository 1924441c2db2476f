"""A running server, and somebody who asks it."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest

from contract.catalogue import Emitter
from exporter.delivery.metrics import DeliveryMetrics
from exporter.exposition.board import Board, Draft
from exporter.exposition.collector import Exposition
from exporter.exposition.page import Page
from exporter.exposition.server import MetricsServer


class Client:
    """Speaks to one server; with `context` by TLS."""

    def __init__(self, server: MetricsServer, exposition: Exposition) -> None:
        self.server = server
        self.exposition = exposition

    def ask(
        self, path: str, method: str = "GET", context: ssl.SSLContext | None = None, **headers: str
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection: http.client.HTTPConnection
        if context is None:
            connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=10)
        else:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.server.port, timeout=10, context=context
            )
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=named)
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=10)


START = Callable[..., Client]


def ready() -> tuple[bool, Sequence[str]]:
    return True, []


@pytest.fixture
def start() -> Iterator[START]:
    """Starts a server on a page; it is stopped at the end."""
    with ExitStack() as stack:

        def begin(page: Page | Draft | None = None, role: Emitter = "node", **options: object) -> Client:
            board = Board()
            if page is not None:
                board.publish(page)
            exposition = Exposition(board, role)
            DeliveryMetrics(exposition.registry)
            answer: Callable[[], tuple[bool, Sequence[str]]] = options.pop("ready", ready)  # type: ignore[assignment]
            server = MetricsServer(exposition, answer, host="127.0.0.1", port=0, **options)  # type: ignore[arg-type]
            server.start()
            stack.callback(server.stop)
            return Client(server, exposition)

        yield begin
