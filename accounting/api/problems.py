"""Every error as RFC 9457 `application/problem+json`, with nothing in it that the asker did not send.

A database that is full, locked or away is foreseen: 503 and one line of the log for each request.
Invariant: an unforeseen exception answers 500 with a fixed text; its traceback goes to the log only.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from accounting.api.headers import SECURITY_HEADERS
from accounting.errors import AccountingError, ConflictError, NotFoundError

MEDIA_TYPE = "application/problem+json"

_log = logging.getLogger(__name__)


class Problem(HTTPException):
    """An answer that is an error: a status and one line that says what is wrong and the way out.

    Attributes:
        members: What a program wants to know besides, as members of their own (RFC 9457 §3.2).
    """

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        *,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.members = dict(members or {})


def problem_answer(
    status: int,
    detail: str,
    headers: Mapping[str, str] | None = None,
    members: Mapping[str, object] | None = None,
) -> JSONResponse:
    """An error as it is answered."""
    # `type` is left out: RFC 9457 says it then is about:blank and the title is the status phrase.
    body = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, **(members or {})}
    # The last resort answers outside of the middleware that adds them.
    return JSONResponse(body, status, {**SECURITY_HEADERS, **(headers or {})}, MEDIA_TYPE)


async def _http_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    members = error.members if isinstance(error, Problem) else None
    return problem_answer(error.status_code, str(error.detail), error.headers, members)


async def _validation_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    places = (f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
    return problem_answer(422, "; ".join(places))


async def _accounting_error(_request: Request, error: Exception) -> JSONResponse:
    status = 404 if isinstance(error, NotFoundError) else 409 if isinstance(error, ConflictError) else 422
    return problem_answer(status, str(error))


async def _store_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, OperationalError)
    reason = " ".join(str(error.orig).split())
    _log.error("%s %s failed, the database cannot be used: %s", request.method, request.url.path, reason)
    return problem_answer(503, "the database cannot be used now; try again later", {"Retry-After": "10"})


async def _unforeseen_error(request: Request, error: Exception) -> JSONResponse:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_answer(500, "the service failed; its log says why")


def install(app: FastAPI) -> None:
    """Answer every error of an application as a problem."""
    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[JSONResponse]]] = {
        HTTPException: _http_error,
        RequestValidationError: _validation_error,
        AccountingError: _accounting_error,
        OperationalError: _store_error,
        Exception: _unforeseen_error,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
