"""Limits on what a request may carry, before anything reads it.

Invariant: no request makes the service hold more than `MAX_BYTES` of its body, whoever sent it, and none
brings a NUL character in its address, which one database would hold and the other not. Batches of facts
have a limit of their own (`batches`), since they are larger.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from accounting.api.problems import Problem, problem_answer
from contract.facts import FACTS_PATH

MAX_BYTES = 64 * 1024


class RequestLimits:
    """Answers 413 to a request whose body goes on beyond the limit, 422 to a NUL in its address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, its body counted as it is read."""
        if scope["type"] != "http" or scope["path"] == FACTS_PATH:
            await self._app(scope, receive, send)
            return
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            refusal = problem_answer(422, "a NUL character is part of no name here")
            await refusal(scope, receive, send)
            return
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MAX_BYTES:
                raise Problem(413, f"a request has at most {MAX_BYTES} bytes")
            return message

        await self._app(scope, counted, send)
