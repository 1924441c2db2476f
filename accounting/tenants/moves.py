"""Moves and renames: from an instant on a tenant goes on under another path, with all below it.

What was before stays where it was, so every statement of a month before the move is as it was. Keys, rules
and earlier moves that lead to the old path lead on to the new one from then on.

Invariant: at no instant do live moves lead in a circle.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.audit import record
from accounting.errors import ConflictError, InvalidError, NotFoundError
from accounting.ledger.calendar import at_text
from accounting.ledger.tenancy import (
    CircularMoveError,
    Owner,
    Tenancy,
    code_of,
    follow_moves,
    is_at_or_below,
    path_step,
)
from accounting.prices.versioning import Recording, Validity, end_version, make_room, withdraw_version
from accounting.store.models import Tenant, TenantMove
from accounting.store.versions import is_live
from accounting.tenants.rules import live_tenancy
from accounting.tenants.touched import ChangedHands, mark_changed_hands
from accounting.tenants.tree import BUILTIN, LEAF, MAX_DEPTH, MAX_PATH, find_tenant, may_hold


def list_moves(session: Session) -> Sequence[tuple[TenantMove, str, str | None]]:
    """Every version with the paths that it leads from and to (None: withdrawn), as recorded."""
    paths = {tenant.id: tenant.path for tenant in session.scalars(select(Tenant))}
    moves = session.scalars(select(TenantMove).order_by(TenantMove.id))
    return [(move, paths[move.from_tenant_id], paths.get(move.tenant_id or 0)) for move in moves]


def move_tenant(
    session: Session, name: str, below: str, from_ms: int, recording: Recording, *, code: str | None = None
) -> tuple[TenantMove, ChangedHands]:
    """Put a tenant, and all below it, below another one from an instant on; or back where it was.

    Args:
        session: A writing transaction.
        name: Its path as it is until then, or its code where only one has it.
        below: The path of what it is to stand below.
        from_ms: The first instant at which it stands there.
        recording: Who moves it, when and why.
        code: Its new last step; None: the one it has.

    Raises:
        InvalidError: A tenant that cannot be moved, or not there.
        NotFoundError: No such tenant.
        ConflictError: Another tenant stands there, or the moves would lead in a circle.
    """
    tenant = find_tenant(session, recording.by, name)
    parent = find_tenant(session, recording.by, below)
    before = live_tenancy(session)
    target = _target(session, tenant, parent, from_ms, before, recording, code)
    for earlier in _leading_to(session, tenant, from_ms):
        if earlier.from_tenant_id == target.id:
            end_version(session, earlier, from_ms, recording)
        else:
            _lead(session, earlier.from_tenant_id, target, from_ms, recording)
    move = _lead(session, tenant.id, target, from_ms, recording)
    after = live_tenancy(session)
    _refuse_circles(after)
    changes = {"to": target.path, "from": at_text(from_ms), "reason": recording.reason}
    record(
        session,
        at_ms=recording.now_ms,
        by=recording.by,
        action="tenant move",
        what=tenant.path,
        after=dict(changes),
    )
    return move, mark_changed_hands(session, before, after)


def rename_tenant(
    session: Session, name: str, code: str, from_ms: int, recording: Recording
) -> tuple[TenantMove, ChangedHands]:
    """Give a tenant another last step from an instant on; before that it keeps the one it had.

    Raises:
        InvalidError: A code that cannot be, or a tenant that cannot be renamed.
        NotFoundError: No such tenant.
        ConflictError: Another tenant has that path.
    """
    tenant = find_tenant(session, recording.by, name)
    above = tenant.path.rpartition("/")[0]
    if not above:
        raise InvalidError(f'"{tenant.path}" is the root of its account, whose code is part of every key')
    return move_tenant(session, tenant.path, above, from_ms, recording, code=code)


def withdraw_move(session: Session, move_id: int, recording: Recording) -> ChangedHands:
    """Take a move back over all of its validity, as if it had never been; it stays readable.

    Raises:
        NotFoundError: There is no such live move.
        InvalidError: No reason.
        ConflictError: What is left would lead in a circle.
    """
    before = live_tenancy(session)
    move = session.get(TenantMove, move_id)
    if move is None or move.superseded_at_ms is not None or move.tenant_id is None:
        raise NotFoundError(f"no live move {move_id}; list them with: slicemeter accounting tenant moves")
    withdraw_version(session, move, recording)
    after = live_tenancy(session)
    _refuse_circles(after)
    record(
        session,
        at_ms=recording.now_ms,
        by=recording.by,
        action="tenant move withdraw",
        what=str(move_id),
        after={"reason": recording.reason},
    )
    return mark_changed_hands(session, before, after)


def _target(  # noqa: PLR0917 - what decides where it may go
    session: Session,
    tenant: Tenant,
    parent: Tenant,
    from_ms: int,
    moves: Tenancy,
    recording: Recording,
    code: str | None,
) -> Tenant:
    """The tenant under the new path; made, with all below it, unless it is where this one came from."""
    if tenant.kind == BUILTIN or tenant.parent_id is None:
        raise InvalidError(f'"{tenant.path}" is the root of its account or built in, and stays where it is')
    if is_at_or_below(parent.path, tenant.path):
        raise InvalidError(f'"{tenant.path}" cannot be moved below itself')
    now_at = follow_moves(moves.moves, Owner(parent.path, parent.account), from_ms).path
    if now_at != parent.path:
        raise InvalidError(f'"{parent.path}" is at "{now_at}" on {at_text(from_ms)}; name that')
    kind = "project" if tenant.kind == LEAF else tenant.kind
    if not may_hold(parent.kind, kind):
        raise InvalidError(f'"{parent.path}" is a {parent.kind}: a {kind} cannot stand below it')
    step = tenant.path.rpartition("/")[2] if code is None else path_step(code)
    path = f"{parent.path}/{step}"
    below = session.scalars(select(Tenant).where(Tenant.path.startswith(f"{tenant.path}/", autoescape=True)))
    everything = [tenant, *(one for one in below if one.path.startswith(f"{tenant.path}/"))]
    _require_path(path, step, deepest=max(everything, key=lambda one: one.path.count("/")), moved=tenant)
    if path == tenant.path:
        raise InvalidError(f'"{path}" is there already')
    found = session.scalar(select(Tenant).where(Tenant.path == path))
    if found is not None and not _came_from(session, tenant, found):
        raise ConflictError(
            f'tenant "{path}" exists already; to put both together make a rule: slicemeter accounting tenant '
            "rule add"
        )
    for one in sorted(everything, key=lambda one: one.path):
        _copy(session, one, path + one.path[len(tenant.path) :], parent.account, recording.now_ms)
    return session.scalars(select(Tenant).where(Tenant.path == path)).one()


def _require_path(path: str, step: str, *, deepest: Tenant, moved: Tenant) -> None:
    if not step or not step.isprintable() or len(step) > 253:
        raise InvalidError(f'code "{code_of(step)}": up to 253 printable characters')
    longest = path + deepest.path[len(moved.path) :]
    if longest.count("/") >= MAX_DEPTH or len(longest) > MAX_PATH:
        raise InvalidError(f'"{longest}" would be deeper than {MAX_DEPTH} steps, or too long')


def _copy(session: Session, one: Tenant, path: str, account: str, now_ms: int) -> None:
    if session.scalar(select(Tenant.id).where(Tenant.path == path)) is not None:
        return
    parent = session.scalar(select(Tenant.id).where(Tenant.path == path.rpartition("/")[0]))
    session.add(
        Tenant(
            path=path,
            code=code_of(path),
            parent_id=parent,
            kind="project" if one.kind == LEAF else one.kind,
            account=account,
            is_unmapped=False,
            created_at_ms=now_ms,
        )
    )
    session.flush()


def _came_from(session: Session, tenant: Tenant, earlier: Tenant) -> bool:
    """Whether a tenant was moved, at some time, from where the other is."""
    known = {
        (move.from_tenant_id, move.tenant_id)
        for move in session.scalars(select(TenantMove).where(TenantMove.tenant_id.is_not(None)))
    }
    reached, new = {earlier.id}, {earlier.id}
    while new:
        new = {to for start, to in known if start in new and to is not None} - reached
        reached |= new
    return tenant.id in reached


def _leading_to(session: Session, tenant: Tenant, at_ms: int) -> Sequence[TenantMove]:
    """The live moves that lead to a tenant at an instant."""
    moves = session.scalars(
        select(TenantMove).where(TenantMove.tenant_id == tenant.id, is_live(TenantMove, None))
    ).all()
    return [
        move
        for move in moves
        if move.valid_from_ms < at_ms and (move.valid_to_ms is None or at_ms < move.valid_to_ms)
    ]


def _lead(session: Session, from_id: int, target: Tenant, from_ms: int, recording: Recording) -> TenantMove:
    def described(row: TenantMove) -> str:
        start, end = (session.get_one(Tenant, one or 0).path for one in (row.from_tenant_id, row.tenant_id))
        when = Validity(row.valid_from_ms, row.valid_to_ms).text()
        return f'"{start}" is moved to "{end}" {when} (move {row.id})'

    validity = Validity(from_ms, None)
    same = (TenantMove.from_tenant_id == from_id, TenantMove.tenant_id.is_not(None))
    room = make_room(session, TenantMove, same, validity, recording, described=described)
    move = TenantMove(
        from_tenant_id=from_id,
        tenant_id=target.id,
        valid_from_ms=from_ms,
        valid_to_ms=None,
        recorded_at_ms=recording.now_ms,
        recorded_by=recording.by.name,
        supersedes_id=room.supersedes_id,
        reason=recording.reason,
    )
    session.add(move)
    session.flush()
    return move


def _refuse_circles(tenancy: Tenancy) -> None:
    for at_ms in sorted(tenancy.edges()):
        for move in tenancy.moves:
            try:
                follow_moves(tenancy.moves, Owner(move.from_path, None), at_ms)
            except CircularMoveError as error:
                raise ConflictError(f"{error} on {at_text(at_ms)}; withdraw one of them") from None
