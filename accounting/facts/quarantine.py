"""Facts that were refused, kept for a person to look at: each once, however often it is sent.

Invariant: a sender that sends rubbish for a month fills no disk: a cluster keeps at most `MAX_KEPT`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from accounting.facts.bounds import Refusal
from accounting.store.bulk import insert_into
from accounting.store.models import Quarantine

MAX_KEPT = 10_000
_MAX_TEXT = 4_096


@dataclass(frozen=True, slots=True)
class Refused:
    """The bytes of a fact, and why it was not taken."""

    text: bytes
    refusal: Refusal


def put_in_quarantine(session: Session, cluster: str, refused: Sequence[Refused], *, now_ms: int) -> None:
    """Keep what was refused, as far as there is room for its cluster."""
    if not refused:
        return
    kept = session.scalar(select(func.count()).select_from(Quarantine).where(Quarantine.cluster == cluster))
    room = MAX_KEPT - (kept or 0)
    rows = [
        {
            "cluster": cluster,
            "reason": one.refusal.reason,
            "detail": one.refusal.detail[:_MAX_TEXT],
            "fact": one.text.decode("utf-8", "backslashreplace").replace("\x00", "\\x00")[:_MAX_TEXT],
            "fact_sha256": hashlib.sha256(one.text).hexdigest(),
            "at_ms": now_ms,
        }
        for one in refused[: max(room, 0)]
    ]
    if rows:
        session.execute(insert_into(session, Quarantine).on_conflict_do_nothing(), rows)
