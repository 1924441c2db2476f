"""`/ui/sign-in` and `/ui/sign-out`: a session by a token, and its end.

Invariant: whoever signs in gets a new session; one that the browser had before ends, in the books too.
"""

from __future__ import annotations

import logging
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from accounting.access.refusal import TokenRefusedError
from accounting.access.sessions import begin_session, end_session, limits_of
from accounting.access.tokens import authenticate, prefix_of
from accounting.access.viewer import Viewer
from accounting.api.dependencies import Service, WholeService, held_up, session_cookie
from accounting.api.problems import Problem
from accounting.store.walls import NOBODY, Scope
from accounting.web.cookies import forget_session, keep_session
from accounting.web.own_forms import Form, is_without_tls
from accounting.web.paths import HOME, OIDC_START, SIGN_IN, page_or_home
from accounting.web.rendering import render

router = APIRouter()

_log = logging.getLogger(__name__)

_WITHOUT_TLS = (
    "this page was opened without TLS, so your browser would not keep the session; open it by https://, "
    "or, on this computer alone, serve with --insecure-cookies"
)


@router.get("/sign-in")
def sign_in_page(
    request: Request, next_page: Annotated[str, Query(alias="next", max_length=4_000)] = ""
) -> Response:
    """The form for a token."""
    return _form(request, following=page_or_home(next_page))


@router.post("/sign-in")
def sign_in(request: Request, service: WholeService, form: Form) -> Response:
    """Begin a session with a token, and go to the page that was asked for."""
    token, following = form.get("token", "").strip(), page_or_home(form.get("next", ""))
    if service.settings.are_cookies_secure and is_without_tls(request):
        return _form(request, following=following, refused=Problem(400, _WITHOUT_TLS))
    try:
        viewer = held_up(request, service, token, lambda: _reader_of(service, token))
    except Problem as refused:
        return _form(request, following=following, refused=refused)
    return begin(request, service, viewer, token_prefix=prefix_of(token), following=following)


@router.post("/sign-out")
def sign_out(request: Request, service: WholeService) -> Response:
    """End the session."""
    cookie = session_cookie(request, service)
    if cookie:
        with service.database.writing(is_beside_books=True) as session:
            end_session(session, cookie)
    response = RedirectResponse(SIGN_IN, status_code=303)
    forget_session(response, service)
    return response


def begin(
    request: Request, service: Service, viewer: Viewer, *, token_prefix: str | None, following: str
) -> Response:
    """Begin a session in the place of the one that the browser has, and go on."""
    before = session_cookie(request, service)
    with service.database.writing(is_beside_books=True) as session:
        if before:
            end_session(session, before)
        cookie = begin_session(
            session,
            viewer,
            token_prefix=token_prefix,
            limits=limits_of(service.settings),
            now_ms=service.clock(),
        )
    _log.info("%s signed in at the page as %s", viewer.name, viewer.role)
    # Others may be failing at the same address: who was just let in is not held up on the next page.
    service.failures.succeeded(cookie)
    response = RedirectResponse(following, status_code=303)
    keep_session(response, service, cookie)
    return response


def refuse(request: Request, problem: Problem) -> Response:
    """The form once more, with what was wrong and the way out."""
    return _form(request, following=HOME, refused=problem)


def _form(request: Request, *, following: str, refused: Problem | None = None) -> Response:
    provider = request.app.state.service.provider
    headers = {} if refused is None else dict(refused.headers or {})
    return render(
        request,
        "sign_in.html",
        viewer=None,
        status=200 if refused is None else refused.status_code,
        headers={name: value for name, value in headers.items() if name == "Retry-After"},
        next=following,
        refused="" if refused is None else str(refused.detail),
        provider=None if provider is None else provider.settings.label,
        provider_page=f"{OIDC_START}?next={quote(following, safe='/')}",
    )


def _reader_of(service: Service, token: str) -> Viewer:
    """Who bears a token of ours: others begin no session."""
    prefix = prefix_of(token)
    scope = NOBODY if prefix is None else Scope("sign-in", prefix)
    with service.database.seen_as(scope).reading() as session:
        viewer = authenticate(session, token, now_ms=service.clock())
    if viewer.role == "reporter":
        raise TokenRefusedError("a reporter's token reads nothing; sign in with a tenant's or an operator's")
    return viewer
