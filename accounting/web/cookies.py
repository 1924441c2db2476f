"""The session's cookie as it is set and taken away.

Invariant: no script reads it and no other site's form sends it; by default it goes by TLS only.
"""

from __future__ import annotations

from fastapi import Response

from accounting.access.sessions import cookie_name
from accounting.api.dependencies import Service


def keep_session(response: Response, service: Service, cookie: str) -> None:
    """Let the browser send the session until it is closed; the books say when the session ends."""
    _set(response, service, cookie_name(is_secure=service.settings.are_cookies_secure), cookie)


def forget_session(response: Response, service: Service) -> None:
    """Take the session's cookie away."""
    name = cookie_name(is_secure=service.settings.are_cookies_secure)
    _set(response, service, name, "", max_age_seconds=0)


def keep_sign_in(response: Response, service: Service, value: str, *, seconds: int) -> None:
    """Let the browser remember a sign-in at a provider that was begun."""
    _set(response, service, sign_in_cookie(service), value, max_age_seconds=seconds)


def forget_sign_in(response: Response, service: Service) -> None:
    """Take that cookie away."""
    _set(response, service, sign_in_cookie(service), "", max_age_seconds=0)


def sign_in_cookie(service: Service) -> str:
    """The name of the cookie of a sign-in that was begun."""
    return f"{cookie_name(is_secure=service.settings.are_cookies_secure)}-oidc"


def _set(
    response: Response, service: Service, name: str, value: str, *, max_age_seconds: int | None = None
) -> None:
    # Lax: with Strict the way back from an OIDC provider would come without it.
    response.set_cookie(
        name,
        value,
        max_age=max_age_seconds,
        path="/",
        secure=service.settings.are_cookies_secure,
        httponly=True,
        samesite="lax",
    )
