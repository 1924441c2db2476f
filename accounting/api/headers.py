"""What every answer tells a browser: nothing here is to be sniffed, framed, kept, or told to others.

Invariant: no answer goes out without these, errors and unknown paths included; a route may only say more.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_YEAR_SECONDS = 31_536_000

SECURITY_HEADERS = {
    # A statement as HTML carries its style with it, and nothing else.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Each stays as a route set it, where it did."""

TLS_ONLY = {"Strict-Transport-Security": f"max-age={_YEAR_SECONDS}"}


class SecurityHeaders:
    """The middleware that adds them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer back with the headers."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                add_to(MutableHeaders(scope=message), is_tls=scope.get("scheme") == "https")
            await send(message)

        await self._app(scope, receive, send_with_headers)


def add_to(headers: MutableHeaders, *, is_tls: bool) -> None:
    """Add what is not there yet."""
    for name, value in (SECURITY_HEADERS | (TLS_ONLY if is_tls else {})).items():
        headers.setdefault(name, value)
