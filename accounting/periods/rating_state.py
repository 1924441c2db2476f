"""How far the open ledger has been rated, and with which grace."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.store.models import RatingState


def rated_as_of_ms(session: Session) -> int | None:
    """The instant up to which the open ledger was rated; None: it never was."""
    return session.scalar(select(RatingState.rated_as_of_ms))


def rated_grace_ms(session: Session) -> int:
    """The grace that the open ledger was rated with; 0 when it never was."""
    return session.scalar(select(RatingState.grace_ms)) or 0
