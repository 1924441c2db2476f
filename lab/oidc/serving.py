"""The provider behind HTTP on loopback.

Invariant: when the block ends, the socket is closed and its thread has ended.
"""

from __future__ import annotations

import base64
import binascii
import html
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from lab.oidc.provider import Client, LabProvider, Person, RefusedError, SigningKey, as_json, new_key

_MAX_FORM_BYTES = 65_536


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    provider: LabProvider


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = dict(parse_qsl(parts.query, keep_blank_values=True))
        provider = self.server.provider
        match parts.path:
            case "/.well-known/openid-configuration":
                self._answer(HTTPStatus.OK, as_json(provider.description()))
            case "/keys":
                self._answer(HTTPStatus.OK, as_json(provider.keys()))
            case "/authorize":
                self._authorize(asked)
            case _:
                self._answer(HTTPStatus.NOT_FOUND, as_json({"error": "not_found"}))

    def do_POST(self) -> None:
        if urlsplit(self.path).path != "/token":
            self._answer(HTTPStatus.NOT_FOUND, as_json({"error": "not_found"}))
            return
        length = min(int(self.headers.get("Content-Length") or 0), _MAX_FORM_BYTES)
        form = dict(parse_qsl(self.rfile.read(length).decode(), keep_blank_values=True))
        client_id, secret = _basic(self.headers.get("Authorization", ""))
        try:
            tokens = self.server.provider.redeem(
                form, client_id or form.get("client_id"), secret or form.get("client_secret")
            )
        except RefusedError as error:
            is_client = str(error) == "invalid_client"
            status = HTTPStatus.UNAUTHORIZED if is_client else HTTPStatus.BAD_REQUEST
            self._answer(status, as_json({"error": str(error)}))
            return
        self._answer(HTTPStatus.OK, as_json(tokens))

    def _authorize(self, asked: dict[str, str]) -> None:
        name = asked.pop("person", None)
        try:
            self.server.provider.require_known(asked)
            if name is not None:
                self.send_response(HTTPStatus.FOUND)
                self.send_header("Location", self.server.provider.way_back(asked, name))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        except RefusedError as error:
            self._answer(HTTPStatus.BAD_REQUEST, as_json({"error": str(error)}))
            return
        page = _choice(asked, self.server.provider.people)
        self._answer(HTTPStatus.OK, page.encode(), "text/html; charset=utf-8")

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's word
        """Codes stand in addresses, so nothing of them is written down."""


def _basic(header: str) -> tuple[str | None, str | None]:
    kind, _, told = header.partition(" ")
    if kind.lower() != "basic":
        return None, None
    try:
        client_id, _, secret = base64.b64decode(told).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None, None
    return unquote(client_id), unquote(secret)


def _choice(asked: dict[str, str], people: Sequence[Person]) -> str:
    rows = "".join(
        f'<li><a href="/authorize?{html.escape(urlencode(asked | {"person": one.name}))}">'
        f"{html.escape(one.name)}</a> ({html.escape(', '.join(one.groups) or 'no group')})</li>"
        for one in people
    )
    title = "Who are you?"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,">'
        f"<title>{title}</title><h1>{title}</h1><ul>{rows}</ul></html>\n"
    )


@contextmanager
def serving(
    client: Client,
    people: Sequence[Person],
    *,
    clock: Callable[[], float],
    port: int = 0,
    key: SigningKey | None = None,
) -> Iterator[LabProvider]:
    """A provider that answers for as long as the block runs."""
    server = _Server(("127.0.0.1", port), _Handler)
    issuer = f"http://127.0.0.1:{server.server_address[1]}"
    server.provider = LabProvider(issuer, client, people, clock, key or new_key())
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="oidc", daemon=True)
    thread.start()
    try:
        yield server.provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
