"""Who is told: one HTTP server that plays the platform's webhook and the tenants' channels.

Invariant: what it keeps is what came over the wire; it answers 200 to Alertmanager and nothing else.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PLATFORM_PATH = "/platform"
TENANT_PATH = "/tenant/"


@dataclass(frozen=True, slots=True)
class Notice:
    """One firing alert as it reached the platform; `at_s` is when, Unix seconds."""

    at_s: float
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Message:
    """What a tenant's channel was sent: the whole body, so that nothing in it is overlooked."""

    tenant: str
    body: str
    text: str


class Receiver:
    """The server; `notices` and `messages` grow while it runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notices: dict[tuple[tuple[str, str], ...], Notice] = {}
        self._messages: list[Message] = []
        handler = type("ReceiverHandler", (_Handler,), {"receiver": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="receiver", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        """Listen."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def notices(self) -> tuple[Notice, ...]:
        """Every alert that fired, each once, as it first arrived."""
        with self._lock:
            return tuple(self._notices.values())

    def messages(self) -> tuple[Message, ...]:
        """Every message to a tenant."""
        with self._lock:
            return tuple(self._messages)

    def take(self, path: str, body: bytes) -> None:
        """Keep a request of Alertmanager's."""
        document: dict[str, Any] = json.loads(body)
        with self._lock:
            if path.startswith(TENANT_PATH):
                tenant = path.removeprefix(TENANT_PATH)
                parts = document.get("attachments", [])
                text = "\n".join(part.get("text", "") for part in parts)
                self._messages.append(Message(tenant, body.decode("utf-8"), text.strip()))
                return
            for alert in document["alerts"]:
                if alert["status"] == "firing":
                    key = tuple(sorted(alert["labels"].items()))
                    notice = Notice(time.time(), alert["labels"], alert["annotations"])
                    self._notices.setdefault(key, notice)


class _Handler(BaseHTTPRequestHandler):
    receiver: Receiver

    def do_POST(self) -> None:
        """One notification."""
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.receiver.take(self.path, body)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nobody reads a log of ours."""
