"""Forms that only our own pages can send (CSRF): a browser sends cookies along for whoever makes it.

Two walls, each enough: a changing request by cookie says that it comes from a page of this host
(`Sec-Fetch-Site`, or `Origin` where a browser sends no such), and carries the token that stands in the forms
of this session (field `csrf_token` or header `X-CSRF-Token`). Bearer tokens are sent by nobody unasked.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, Request

from accounting.access.sessions import csrf_token, is_csrf_token
from accounting.api.dependencies import SAFE_METHODS, WholeService, session_cookie
from accounting.api.problems import Problem

FIELD = "csrf_token"
_HEADER = "x-csrf-token"
_FORM_TYPE = "application/x-www-form-urlencoded"
_MAX_FIELDS = 200
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Fields: TypeAlias = dict[str, str]


async def _fields_of(request: Request) -> Fields:
    """The fields of a form; of a name that is there twice the last."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM_TYPE:
        return {}
    try:
        text = (await request.body()).decode()
        pairs = parse_qsl(
            text, keep_blank_values=True, strict_parsing=False, errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError:
        raise Problem(422, "the form cannot be read; send it again from its page") from None
    if "\0" in text or any("\0" in name + value for name, value in pairs):
        raise Problem(422, "a NUL character is part of no field here")
    return dict(pairs)


Form = Annotated[Fields, Depends(_fields_of)]
"""What was filled in, in a page's form."""


async def own_form(request: Request, service: WholeService, fields: Form) -> None:
    """Let a changing request pass when a form of ours was sent, or a bearer token.

    Raises:
        Problem: 403, it comes from elsewhere.
    """
    if request.method in SAFE_METHODS or _has_bearer(request):
        return
    if not _is_from_here(request):
        raise Problem(
            403, "the form was sent from another place than a page of this service; open the page here"
        )
    cookie = session_cookie(request, service)
    told = request.headers.get(_HEADER) or fields.get(FIELD, "")
    if cookie and not is_csrf_token(told, cookie):
        raise Problem(
            403, "the form is of a session that is over; open its page again and send it from there"
        )
    request.state.is_own_form = True


def form_token(request: Request, service: WholeService) -> str:
    """What the forms of a page carry in `csrf_token`; empty for who comes without a cookie."""
    cookie = session_cookie(request, service)
    return csrf_token(cookie) if cookie else ""


def is_without_tls(request: Request) -> bool:
    """Whether a form was sent from a page that browsers keep no `Secure` cookie for."""
    origin = urlsplit(request.headers.get("origin", ""))
    return origin.scheme == "http" and origin.hostname not in _LOOPBACK


def _has_bearer(request: Request) -> bool:
    return request.headers.get("authorization", "").lower().startswith("bearer ")


def _is_from_here(request: Request) -> bool:
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = urlsplit(request.headers.get("origin", ""))
    # The scheme is left out: a proxy that ends TLS need not say so.
    return bool(origin.netloc) and origin.netloc.lower() == request.headers.get("host", "").lower()
