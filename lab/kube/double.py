"""The Kubernetes API double: a real HTTPS server on loopback whose objects a scenario changes.

It holds what `reference/metering.md §6` asks of a reader's API server: bearer tokens, lists with
pages, watches with bookmarks, 410 in both forms, 429, field selectors, metadata-only answers; and it
fails on demand. Invariant: objects outlive the server, so `stop` and `start` are an outage.
"""

from __future__ import annotations

import datetime as dt
import secrets
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self

import trustme

from exporter.kube.access import KubeAccess
from lab.kube.faults import Fault, FaultPlan, Verb
from lab.kube.handler import Handler
from lab.kube.json_object import JsonObject
from lab.kube.paging import Pages
from lab.kube.request_log import RequestLog
from lab.kube.store import Store
from lab.kube.tls_server import TidySocket, TlsServer


def utc_now() -> dt.datetime:
    """The real clock."""
    return dt.datetime.now(dt.UTC)


class ApiDouble:
    """A Kubernetes API server for one cluster.

    Args:
        folder: Where the CA file and the token file are written.
        bookmark_interval_s: Between two bookmarks of a quiet watch (a real server: about 60 s).
        clock: Aware UTC time for creation timestamps.

    Attributes:
        store: The objects; `create`, `apply`, `patch` and `delete` go there.
        faults: What is planned to go wrong.
        request_log: Who asked what.
        ca_file: PEM file to trust.
        token_file: The bearer token that is accepted.
        gone_as: How a watch from a forgotten version is refused: HTTP status 410 or an ERROR event.
    """

    def __init__(
        self, folder: Path, *, bookmark_interval_s: float = 60.0, clock: Callable[[], dt.datetime] = utc_now
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.ca_file = folder / "ca.crt"
        self.token_file = folder / "token"
        self.bookmark_interval_s = bookmark_interval_s
        self.gone_as: Literal["status", "event"] = "event"
        self.store = Store(clock)
        self.pages = Pages()
        self.faults = FaultPlan()
        self.request_log = RequestLog()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.sslsocket_class = TidySocket
        authority.issue_cert("127.0.0.1", "localhost").configure_cert(self._context)
        self._token = ""
        self._port = 0
        self._server: TlsServer | None = None
        self._stopping = threading.Event()
        self.replace_token()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """`https://127.0.0.1:port`; the port stays the same over `stop` and `start`."""
        return f"https://127.0.0.1:{self._port}"

    @property
    def access(self) -> KubeAccess:
        """What a client needs to know."""
        return KubeAccess(self.url, self.ca_file, self.token_file)

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called since the last `start`."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Serve; the first time on a free port, then on the same one again."""
        if self._server is not None:
            return
        self._stopping.clear()
        handler = type("DoubleHandler", (Handler,), {"double": self})
        self._server = TlsServer(self._port, handler, self._context)
        self._port = self._server.server_address[1]
        self._server.open_all()

    def stop(self) -> None:
        """Cut all connections and refuse new ones; the objects stay."""
        if self._server is None:
            return
        self._stopping.set()
        self.store.wake()
        self._server.close_all()
        self._server = None

    def wait_stopping(self, seconds: float) -> bool:
        """Wait, but not beyond a `stop`."""
        return self._stopping.wait(seconds)

    def create(self, kind: str, new: JsonObject) -> JsonObject:
        """Add an object (`Store.create`)."""
        return self.store.create(kind, new)

    def apply(self, kind: str, new: JsonObject) -> JsonObject:
        """Create or replace an object (`Store.apply`)."""
        return self.store.apply(kind, new)

    def patch(self, kind: str, namespace: str, name: str, change: JsonObject) -> JsonObject:
        """Change an object by a merge patch (`Store.patch`); namespace "" for cluster-wide kinds."""
        return self.store.patch(kind, namespace, name, change)

    def delete(self, kind: str, namespace: str, name: str) -> JsonObject:
        """Remove an object (`Store.delete`)."""
        return self.store.delete(kind, namespace, name)

    def compact(self) -> None:
        """Forget all older versions: watches and pages from them are answered with 410."""
        self.store.compact()
        self.pages.forget()

    def cut_connections(self) -> None:
        """Sever all connections at whatever byte they are; new ones are accepted."""
        if self._server is not None:
            self._server.sever()

    def fail_next(
        self,
        fault: Fault,
        *,
        times: int | None = 1,
        verb: Verb | None = None,
        resource: str | None = None,
        after: int = 0,
    ) -> None:
        """Let the next matching requests (or watch events) fail.

        Args:
            fault: What happens.
            times: How often; None: until `heal`.
            verb: Which requests; None: any, or the events of watches for faults of events.
            resource: Plural, e.g. `pods`; None: any.
            after: How many of them pass unharmed first.
        """
        self.faults.add(fault, times, verb, resource, after)

    def heal(self) -> None:
        """Forget all planned faults."""
        self.faults.clear()

    def replace_token(self) -> str:
        """Write a new token to the file; the old one is refused from now on."""
        token = secrets.token_urlsafe(24)
        replacement = self.token_file.with_suffix(".new")
        replacement.write_text(token + "\n", encoding="ascii")
        replacement.replace(self.token_file)
        self._token = token
        return token

    def accepts(self, authorization: str) -> bool:
        """Whether an Authorization header carries the present token."""
        return secrets.compare_digest(authorization.encode(), f"Bearer {self._token}".encode())
