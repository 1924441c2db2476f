"""`/api/v1/tenants`, `tenants/rules`, `tenants/moves`: the tree, and whose a slice is from when on.

With `dry_run=true` a change is not saved: the answer says what it would move in the open months, in money
and card-hours, exactly as the next rating then makes it. That needs no idempotency key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Response
from pydantic import Field
from sqlalchemy.orm import Session

from accounting.api.answering import Wanted
from accounting.api.bodies import Body, Reason, TenantName
from accounting.api.dependencies import InService, Operator, Reader, Service
from accounting.api.idempotency import DryOrOnce, ObeyedOnce, Once
from accounting.api.problems import Problem
from accounting.api.reports import answer
from accounting.api.windows import AskedPage, instant_of_text
from accounting.ledger.calendar import at_text
from accounting.ledger.tenancy import ANYTHING
from accounting.periods.whatif import foretell_tenancy
from accounting.prices.versioning import Recording, Validity
from accounting.reports.documents import Document
from accounting.reports.tenants import (
    foretold_document,
    move_document,
    moves_document,
    rule_document,
    rules_document,
    tenant_document,
    tenants_document,
)
from accounting.store.models import TenantMove
from accounting.tenants.moves import list_moves, move_tenant, rename_tenant, withdraw_move
from accounting.tenants.rules import MAX_PRIORITY, Asked, add_rule, end_rule, withdraw_rule
from accounting.tenants.touched import ChangedHands
from accounting.tenants.tree import add_tenant

router = APIRouter(prefix="/api/v1", tags=["tenants"])

Glob = Annotated[str, Field(max_length=253, pattern=r"^[^\x00]*$")]
Instant = Annotated[str, Field(max_length=40, examples=["2026-10-14T00:00:00+02:00"])]
Id = Annotated[int, Path(ge=1, le=2**63 - 1)]


class NewTenant(Body):
    """An organisation, team or project."""

    path: TenantName
    """From its account down, as `acme/vision/alpha`."""
    kind: Literal["organisation", "team", "project"]


class NewRule(Body):
    """Whose the slices are that match; every name is a glob, and what is left out is not asked for."""

    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)]
    """The lowest number that matches wins."""
    tenant: TenantName
    cluster: Glob = ANYTHING
    tenant_key: Glob = ANYTHING
    """Empty: slices without a key."""
    namespace: Glob = ANYTHING
    labels: Annotated[dict[Glob, Glob], Field(default_factory=dict)]
    from_: Annotated[Instant, Field(alias="from")]
    to: Instant | None = None
    reason: Reason | None = None


class Ending(Body):
    """From when on a rule holds no longer."""

    at: Instant
    reason: Reason | None = None


class NewMove(Body):
    """Where a tenant stands from an instant on, and under which name."""

    tenant: TenantName
    below: TenantName | None = None
    """The tenant that it is to stand below; without it: where it is."""
    code: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\x00]+$")] | None = None
    """Its new last step; without it: the one it has."""
    from_: Annotated[Instant, Field(alias="from")]
    reason: Reason | None = None


class Withdrawal(Body):
    """Why something never should have been."""

    reason: Reason


@router.get("/tenants")
def tenants(service: InService, viewer: Reader, page: AskedPage, wants: Wanted) -> Response:
    """The tenants that the asker may see, and why those are there that nobody added."""
    with service.database.reading() as session:
        return wants.answer(tenants_document(session, viewer, page))


@router.post("/tenants", status_code=201)
def post_tenant(service: InService, once: ObeyedOnce, tenant: NewTenant) -> Response:
    """Add a tenant; what a key has meant by itself so far becomes one."""

    def add(session: Session) -> Document:
        return tenant_document(
            add_tenant(session, tenant.path, kind=tenant.kind, by=once.by, now_ms=once.now_ms)
        )

    return once.obey(service.database, add, status=201)


@router.get("/tenants/rules")
def rules(
    service: InService,
    viewer: Operator,  # noqa: ARG001 - asking is what keeps tenants out
    page: AskedPage,
    wants: Wanted,
) -> Response:
    """Every version of every rule; of the live ones whether anything ever matched."""
    with service.database.reading() as session:
        return wants.answer(rules_document(session, page))


@router.post("/tenants/rules", status_code=201)
def post_rule(service: InService, once: DryOrOnce, rule: NewRule) -> Response:
    """Record a rule, or ask what it would move."""

    def save(session: Session) -> tuple[Document, ChangedHands]:
        asked = Asked(
            rule.priority,
            rule.tenant,
            rule.cluster,
            rule.tenant_key,
            rule.namespace,
            tuple(sorted(rule.labels.items())),
        )
        validity = Validity(
            instant_of_text(rule.from_), None if rule.to is None else instant_of_text(rule.to)
        )
        row, changed = add_rule(session, asked, validity, _recording(once, rule.reason))
        return rule_document(row, rule.tenant), changed

    return _change(service, once, save, status=201)


@router.post("/tenants/rules/{priority}/end")
def post_end(
    service: InService,
    once: DryOrOnce,
    priority: Annotated[int, Path(ge=0, le=MAX_PRIORITY)],
    ending: Ending,
) -> Response:
    """Let the rule of a priority hold no longer from an instant on, or ask what that would move."""

    def save(session: Session) -> tuple[Document, ChangedHands]:
        at_ms = instant_of_text(ending.at)
        row, changed = end_rule(session, priority, at_ms, _recording(once, ending.reason))
        return {"rule": row.id, "priority": priority, "to": at_text(at_ms)}, changed

    return _change(service, once, save)


@router.post("/tenants/rules/{rule}/withdraw")
def post_rule_withdrawal(service: InService, once: DryOrOnce, rule: Id, withdrawal: Withdrawal) -> Response:
    """Take a rule back over all its validity, or ask what that would move."""

    def save(session: Session) -> tuple[Document, ChangedHands]:
        changed = withdraw_rule(session, rule, _recording(once, withdrawal.reason))
        return {"rule": rule, "withdrawn": True}, changed

    return _change(service, once, save)


@router.get("/tenants/moves")
def moves(
    service: InService,
    viewer: Operator,  # noqa: ARG001 - asking is what keeps tenants out
    page: AskedPage,
    wants: Wanted,
) -> Response:
    """Every version of every move and renaming."""
    with service.database.reading() as session:
        return wants.answer(moves_document(list_moves(session), page))


@router.post("/tenants/moves", status_code=201)
def post_move(service: InService, once: DryOrOnce, move: NewMove) -> Response:
    """Move or rename a tenant from an instant on, or ask what that would move."""
    if move.below is None and move.code is None:
        raise Problem(422, "name `below`, `code`, or both; without them the tenant stays as it is")

    def save(session: Session) -> tuple[Document, ChangedHands]:
        from_ms, recording = instant_of_text(move.from_), _recording(once, move.reason)
        row: TenantMove
        if move.below is None:
            row, changed = rename_tenant(session, move.tenant, move.code or "", from_ms, recording)
        else:
            row, changed = move_tenant(session, move.tenant, move.below, from_ms, recording, code=move.code)
        named = {version.id: (start, end) for version, start, end in list_moves(session)}
        return move_document(row, *named[row.id]), changed

    return _change(service, once, save, status=201)


@router.post("/tenants/moves/{move}/withdraw")
def post_move_withdrawal(service: InService, once: DryOrOnce, move: Id, withdrawal: Withdrawal) -> Response:
    """Take a move back over all its validity, or ask what that would move."""

    def save(session: Session) -> tuple[Document, ChangedHands]:
        changed = withdraw_move(session, move, _recording(once, withdrawal.reason))
        return {"move": move, "withdrawn": True}, changed

    return _change(service, once, save)


def _recording(once: Once, reason: str | None) -> Recording:
    return Recording(once.by, once.now_ms, reason)


def _change(
    service: Service,
    once: Once,
    save: Callable[[Session], tuple[Document, ChangedHands]],
    *,
    status: int = 200,
) -> Response:
    if once.is_dry:
        return answer(foretold_document(foretell_tenancy(service.database, lambda one: save(one)[1])))

    def obey(session: Session) -> Document:
        document, changed = save(session)
        return {"saved": True, **document, "cards": len(changed.cards)}

    return once.obey(service.database, obey, status=status)
