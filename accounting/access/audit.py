"""The log of what people changed: who, when, what. A trigger keeps it from being altered."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.errors import InvalidError
from accounting.store.models import AuditLog

MAX_REASON = 1_000


def require_reason(reason: str, what: str) -> None:
    """Refuse a reason that says nothing, or that no database or terminal should hold.

    Raises:
        InvalidError: It is blank, of several lines, or longer than anyone reads.
    """
    if not reason.strip():
        raise InvalidError(f"{what} needs its reason: --reason TEXT")
    if len(reason) > MAX_REASON or not reason.isprintable():
        raise InvalidError(f"a reason is one line of at most {MAX_REASON} printable characters (--reason)")


def record(
    session: Session,
    *,
    at_ms: int,
    by: Viewer,
    action: str,
    what: str,
    after: Mapping[str, str | int | bool | None],
) -> None:
    """Note a change in the transaction that makes it.

    Args:
        session: The transaction.
        at_ms: The clock.
        by: Who changes it.
        action: Verb phrase, such as `price set`.
        what: The thing's natural key.
        after: The thing as it is now, without secrets.
    """
    text = msgspec.json.encode(dict(after), order="sorted").decode()
    session.add(AuditLog(at_ms=at_ms, actor=by.name, action=action, object=what, after=text))
