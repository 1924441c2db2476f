"""Policy versions in the store: read as `Policies`, set with their reason, never edited."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.audit import record
from accounting.access.viewer import Viewer
from accounting.errors import InvalidError
from accounting.ledger.calendar import at_text
from accounting.ledger.policies import KINDS, VALUES, Policies, PolicyKind, PolicyRule
from accounting.prices.versioning import Recording, Validity, make_room, mark_rated_days
from accounting.store.models import PolicyVersion
from accounting.store.versions import Known, is_live

_KNOWN: dict[str, PolicyKind] = {kind: kind for kind in KINDS}


def live_policies(session: Session, known: Known | None = None) -> Policies:
    """The versions that nobody superseded: now, or as far as was `known`."""
    rows = session.scalars(
        select(PolicyVersion).where(is_live(PolicyVersion, known)).order_by(PolicyVersion.id)
    )
    return Policies(
        tuple(
            PolicyRule(row.id, _KNOWN[row.kind], row.value, row.valid_from_ms, row.valid_to_ms)
            for row in rows
        )
    )


def list_policies(session: Session) -> Sequence[PolicyVersion]:
    """Every version, superseded ones included, in the order in which they were recorded."""
    return session.scalars(select(PolicyVersion).order_by(PolicyVersion.id)).all()


def set_policy(
    session: Session,
    *,
    kind: str,
    value: str,
    valid_from_ms: int,
    by: Viewer,
    now_ms: int,
    valid_to_ms: int | None = None,
    reason: str | None = None,
) -> PolicyVersion:
    """Record a policy; over the same validity as a live version it supersedes that one.

    A policy that begins within an open-ended one ends it there. Days already rated are marked, so the next
    rating applies it to open periods; a closed one is never touched.

    Args:
        session: A writing transaction.
        kind: `share`, `idle`, `energy` or `unallocated`.
        value: One that the kind knows (`ledger.policies.VALUES`).
        valid_from_ms: The first instant that it is in force at.
        by: Who sets it.
        now_ms: The clock.
        valid_to_ms: The first instant that it no longer is; None: until further notice.
        reason: Why; must be given to supersede.

    Raises:
        InvalidError: An unknown kind or value, an empty validity, or no reason to supersede.
        ConflictError: It overlaps a live version of another validity.
    """
    known = _KNOWN.get(kind)
    if known is None:
        raise InvalidError(f'policy "{kind}" is unknown; there are {", ".join(KINDS)}')
    if value not in VALUES[known]:
        raise InvalidError(f'{kind} policy "{value}" is unknown; there are {", ".join(VALUES[known])}')
    validity = Validity(valid_from_ms, valid_to_ms)
    validity.require(f"a {kind} policy")
    recording = Recording(by, now_ms, reason)
    same = (PolicyVersion.kind == kind,)
    room = make_room(session, PolicyVersion, same, validity, recording, described=_described)
    version = PolicyVersion(
        kind=kind,
        value=value,
        valid_from_ms=valid_from_ms,
        valid_to_ms=valid_to_ms,
        recorded_at_ms=now_ms,
        recorded_by=by.name,
        supersedes_id=room.supersedes_id,
        reason=reason,
    )
    session.add(version)
    session.flush()
    mark_rated_days(session, room.from_ms, valid_to_ms)
    after = {"value": value, "valid_from": at_text(valid_from_ms), "reason": reason}
    record(session, at_ms=now_ms, by=by, action="policy set", what=kind, after=after)
    return version


def _described(row: PolicyVersion) -> str:
    when = Validity(row.valid_from_ms, row.valid_to_ms).text()
    return f"the {row.kind} policy is {row.value} {when} (version {row.id})"
