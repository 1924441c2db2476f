"""Sessions of people at the web page: a random cookie, of which the books keep the hash.

A session that was begun with a token is that token's for as long as it lasts: what it may do is looked up
anew for each request, so revoking the token ends it. Invariant: the cookie is made here, never taken from a
request, so nobody signs in under a cookie that somebody else knows.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from sqlalchemy import delete, or_, select, update
from sqlalchemy.orm import Session

from accounting.access.audit import record
from accounting.access.refusal import TokenRefusedError
from accounting.access.tokens import viewer_of_prefix
from accounting.access.viewer import READERS, Viewer
from accounting.errors import NotFoundError
from accounting.settings import Settings
from accounting.store.models import WebSession
from accounting.store.walls import NOBODY, Scope, seeing

_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")
_NOTED_PER_IDLE = 12
"""A request is noted when a twelfth of the idle time went by: reading pages writes seldom."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long sessions last.

    Attributes:
        life_ms: At most.
        idle_ms: Without a request.
    """

    life_ms: int
    idle_ms: int


def limits_of(settings: Settings) -> Limits:
    """The limits that an operator set."""
    return Limits(round(settings.session_hours * 3_600_000), round(settings.session_idle_minutes * 60_000))


def cookie_name(*, is_secure: bool) -> str:
    """`__Host-` binds a cookie to this host, path / and TLS; browsers refuse it from anywhere else."""
    return "__Host-slicemeter" if is_secure else "slicemeter"


def csrf_token(cookie: str) -> str:
    """What a form of this session carries; whoever has it knows nothing of the cookie."""
    return hashlib.sha256(b"form of " + cookie.encode()).hexdigest()


def is_csrf_token(told: str, cookie: str) -> bool:
    """Whether a form is one of this session."""
    return hmac.compare_digest(told.encode(), csrf_token(cookie).encode())


def session_scope(cookie: str) -> Scope:
    """What must be seen to find out whose a session is: its own row."""
    return Scope("sign-in", _sha256(cookie)) if _COOKIE.fullmatch(cookie) else NOBODY


def begin_session(
    session: Session, viewer: Viewer, *, token_prefix: str | None, limits: Limits, now_ms: int
) -> str:
    """Begin a session and return its cookie; what is over is cleared away.

    Args:
        session: A writing transaction.
        viewer: Who signed in.
        token_prefix: The token with which they did; None: by a provider.
        limits: How long it lasts.
        now_ms: The clock.

    Raises:
        TokenRefusedError: An exporter's token.
    """
    if viewer.role not in READERS:
        raise TokenRefusedError("a reporter's token reads nothing; sign in with a tenant's or an operator's")
    is_over = or_(WebSession.expires_at_ms <= now_ms, WebSession.seen_at_ms <= now_ms - limits.idle_ms)
    session.execute(delete(WebSession).where(is_over))
    cookie = secrets.token_urlsafe(32)
    is_person = token_prefix is None
    session.add(
        WebSession(
            sha256=_sha256(cookie),
            token_prefix=token_prefix,
            person=viewer.name if is_person else None,
            role=viewer.role if is_person else None,
            tenant_path=viewer.tenant_path if is_person else None,
            began_at_ms=now_ms,
            seen_at_ms=now_ms,
            expires_at_ms=now_ms + limits.life_ms,
        )
    )
    return cookie


def viewer_of_session(session: Session, cookie: str, *, limits: Limits, now_ms: int) -> tuple[Viewer, bool]:
    """Whose session it is, and whether it is time to note that they are there.

    Args:
        session: A reading transaction in the cookie's `session_scope`.
        cookie: What the browser sent.
        limits: How long sessions last.
        now_ms: The clock.

    Raises:
        TokenRefusedError: There is no such session, it is over, or its token is good no more.
    """
    if not _COOKIE.fullmatch(cookie):
        raise TokenRefusedError
    row = session.scalar(select(WebSession).where(WebSession.sha256 == _sha256(cookie)))
    if row is None or row.expires_at_ms <= now_ms or row.seen_at_ms + limits.idle_ms <= now_ms:
        raise TokenRefusedError
    is_due = row.seen_at_ms + limits.idle_ms // _NOTED_PER_IDLE <= now_ms
    if row.token_prefix is not None:
        with seeing(session, Scope("sign-in", row.token_prefix)):
            return viewer_of_prefix(session, row.token_prefix, now_ms=now_ms), is_due
    role = next(known for known in READERS if known == row.role)
    return Viewer(row.person or "", role, tenant_path=row.tenant_path), is_due


def note_session(session: Session, cookie: str, *, now_ms: int) -> None:
    """Write down that a session is in use."""
    session.execute(update(WebSession).where(WebSession.sha256 == _sha256(cookie)).values(seen_at_ms=now_ms))


def end_session(session: Session, cookie: str) -> None:
    """End a session for good, whoever else has its cookie."""
    session.execute(delete(WebSession).where(WebSession.sha256 == _sha256(cookie)))


@dataclass(frozen=True, slots=True)
class Standing:
    """A session as an operator sees it, without anything that opens it.

    Attributes:
        who: The token's name, or the person's.
        role: What it may do; None: what the token may.
        tenant_path: The subtree that a person reads.
        began_at_ms: Since when.
        seen_at_ms: The latest request, to within a few minutes.
        expires_at_ms: Until when at most.
    """

    who: str
    role: str | None
    tenant_path: str | None
    began_at_ms: int
    seen_at_ms: int
    expires_at_ms: int


def list_sessions(session: Session, *, now_ms: int) -> list[Standing]:
    """The sessions that did not reach their end in time, by who has them."""
    rows = session.scalars(select(WebSession).where(WebSession.expires_at_ms > now_ms))
    found = [
        Standing(
            row.person or f"token:{row.token_prefix}",
            row.role,
            row.tenant_path,
            row.began_at_ms,
            row.seen_at_ms,
            row.expires_at_ms,
        )
        for row in rows
    ]
    return sorted(found, key=lambda one: (one.who, one.began_at_ms))


def end_sessions_of(session: Session, who: str, *, by: Viewer, now_ms: int) -> int:
    """End every session of a person or a token, as `list_sessions` names them; returns how many.

    Raises:
        NotFoundError: There is none.
    """
    is_theirs = or_(WebSession.person == who, WebSession.token_prefix == who.removeprefix("token:"))
    ended = session.scalars(delete(WebSession).where(is_theirs).returning(WebSession.sha256)).all()
    if not ended:
        raise NotFoundError(f'no session of "{who}"; list them with: slicemeter accounting session list')
    record(session, at_ms=now_ms, by=by, action="session end", what=who, after={"sessions": len(ended)})
    return len(ended)


def _sha256(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()
