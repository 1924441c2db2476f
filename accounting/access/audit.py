"""The log of what people changed: who, when, what. A trigger keeps it from being altered."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.store.models import AuditLog


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
