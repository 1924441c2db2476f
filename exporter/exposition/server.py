"""The HTTP server of a role: its pages, its door and its listener, started and stopped together.

Invariants: a request touches neither a source nor an API; parallel scrapes beyond their cap are refused at
once.
"""

from __future__ import annotations

import threading
from typing import Final

from exporter.exposition.collector import Exposition
from exporter.exposition.door import Door
from exporter.exposition.handler import Handler
from exporter.exposition.listener import Listener
from exporter.exposition.pages import MAX_PARALLEL_SCRAPES, Extras, Pages, Readiness

CONNECTION_DEADLINE_SECONDS: Final = 30.0
REAP_INTERVAL_SECONDS: Final = 0.2


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

    Attributes:
        pages: What it answers with.

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
        self.pages = Pages(exposition, ready, extras, max_parallel_scrapes)
        self._listener = Listener(
            (host, port), Handler, self.pages, door or Door(), connection_deadline_seconds
        )
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
