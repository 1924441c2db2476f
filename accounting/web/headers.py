"""What pages tell a browser beyond what every answer does: our own style and script, and no other.

Invariant: no page lets a script or a style stand in it, so text that slipped through unescaped runs nothing.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    # With no-referrer a browser sends a form of ours with `Origin: null`, as it does for a stranger.
    "Referrer-Policy": "same-origin",
}


class PageHeaders:
    """The middleware that sets them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer back with the headers."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(PAGE_HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)
