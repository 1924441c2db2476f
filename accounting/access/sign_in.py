"""Who is asking: a bearer token of ours, or one that a trusted cluster gave to an exporter.

Invariant: whoever is refused is told the same, unless the token proved to be genuine.
"""

from __future__ import annotations

import re

from sqlalchemy.orm import Session

from accounting.access.service_accounts import verify
from accounting.access.tokens import authenticate, prefix_of
from accounting.access.trust import trusts
from accounting.access.viewer import Viewer
from accounting.store.walls import NOBODY, Scope

_JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)


def is_jwt(token: str) -> bool:
    """Whether a token has the form of one that others sign."""
    return _JWT.fullmatch(token) is not None


def sign_in_scope(token: str) -> Scope:
    """What must be seen to find out who bears a token: its own row, or the keys of clusters."""
    if is_jwt(token):
        return Scope("sign-in")
    prefix = prefix_of(token)
    return NOBODY if prefix is None else Scope("sign-in", prefix)


def sign_in(session: Session, token: str, *, now_ms: int) -> Viewer:
    """Who bears a token.

    Args:
        session: A reading transaction in the token's `sign_in_scope`.
        token: What stood behind `Bearer`.
        now_ms: The clock.

    Raises:
        TokenRefusedError: Nobody.
    """
    if is_jwt(token):
        return verify(token, trusts(session), now_ms=now_ms)
    return authenticate(session, token, now_ms=now_ms)
