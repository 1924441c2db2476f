"""Errors of pages, as pages; who is not signed in is sent to the sign-in and back.

What is said is what the API says of the same error (`accounting.api.problems`). Invariant: an unforeseen
exception shows a fixed text; its traceback goes to the log only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import quote

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response

from accounting.api import problems
from accounting.api.dependencies import session_cookie
from accounting.web.cookies import forget_session
from accounting.web.paths import SIGN_IN
from accounting.web.rendering import render

_KEPT_HEADERS = ("retry-after", "allow", "www-authenticate")


class _Told(msgspec.Struct):
    """What a page shows of a problem."""

    detail: str


def install(app: FastAPI) -> None:
    """Answer every error of the pages' application as a page."""
    problems.install(app)
    for kind, answer in list(app.exception_handlers.items()):
        app.exception_handlers[kind] = _as_page(answer)  # type: ignore[arg-type]


def _as_page(
    answer: Callable[[Request, Exception], Awaitable[Response]],
) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def page(request: Request, error: Exception) -> Response:
        problem = await answer(request, error)
        status = problem.status_code
        wants_page = "text/html" in request.headers.get("accept", "")
        if status == HTTPStatus.UNAUTHORIZED and request.method == "GET" and wants_page:
            return _to_sign_in(request)
        told = msgspec.json.decode(bytes(problem.body), type=_Told)
        headers = {name: value for name, value in problem.headers.items() if name in _KEPT_HEADERS}
        return render(
            request,
            "error.html",
            viewer=None,
            status=status,
            headers=headers,
            title=HTTPStatus(status).phrase,
            detail=told.detail,
        )

    return page


def _to_sign_in(request: Request) -> Response:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    response = RedirectResponse(f"{SIGN_IN}?next={quote(wanted, safe='/')}", status_code=303)
    service = request.app.state.service
    if session_cookie(request, service):
        forget_session(response, service)
    return response
