"""Tenants and the rules that lead slices to them; what a rule would move is asked before it is saved.

Invariant: what the preview says is what the next rating makes of the open months, to the cent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.api.dependencies import InService, Operator, Service
from accounting.errors import AccountingError, InvalidError
from accounting.ledger.tenancy import ANYTHING
from accounting.periods.whatif import Foretold, foretell_tenancy
from accounting.prices.versioning import Recording, Validity
from accounting.reports.tenants import rules_document, why
from accounting.tenants.rules import Asked, add_rule, end_rule
from accounting.tenants.touched import ChangedHands
from accounting.tenants.tree import KINDS, Kind, add_tenant, list_tenants
from accounting.web.links import link
from accounting.web.own_forms import Fields, Form
from accounting.web.pages.filled import (
    instant_of,
    optional_instant,
    optional_text,
    reason_of,
    status_of,
    text_of,
    whole_number,
)
from accounting.web.rendering import render

router = APIRouter()

_KINDS: dict[str, Kind] = {kind: kind for kind in KINDS}
_DONE = {
    "tenant": "The tenant is there.",
    "rule": "The rule is recorded. Open months follow at the next rating.",
    "end": "The rule ends there. Open months follow at the next rating.",
}

Change = Callable[[Session], ChangedHands]


def _page(
    request: Request,
    service: Service,
    viewer: Viewer,
    *,
    fields: Mapping[str, str],
    told: Foretold | None = None,
    refused: AccountingError | None = None,
    done: str = "",
) -> Response:
    with service.database.reading() as session:
        return render(
            request,
            "tenancy.html",
            viewer=viewer,
            status=200 if refused is None else status_of(refused),
            tenants=[(tenant, why(tenant)) for tenant in list_tenants(session, viewer)],
            rules=rules_document(session)["rows"],
            kinds=KINDS,
            fields=fields,
            told=told,
            refused="" if refused is None else str(refused),
            done=done,
        )


@router.get("/tenancy")
def tenancy_page(request: Request, service: InService, viewer: Operator, done: str = "") -> Response:
    """The tree, the rules, and the forms for more."""
    return _page(request, service, viewer, fields={}, done=_DONE.get(done, ""))


@router.post("/tenancy/tenants")
def add_a_tenant(request: Request, service: InService, viewer: Operator, fields: Form) -> Response:
    """Add an organisation, team or project."""
    try:
        kind = _KINDS.get(text_of(fields, "kind"))
        if kind is None:
            raise InvalidError(f"kind: choose one of {', '.join(KINDS)}")
        path = text_of(fields, "path")
        with service.database.writing() as session:
            add_tenant(session, path, kind=kind, by=viewer, now_ms=service.clock())
    except AccountingError as error:
        return _page(request, service, viewer, fields=fields, refused=error)
    return _see("tenant")


@router.post("/tenancy/rules")
def add_a_rule(request: Request, service: InService, viewer: Operator, fields: Form) -> Response:
    """Record a rule, or say what it would move."""
    return _change(request, service, viewer, fields, "rule", _new_rule)


@router.post("/tenancy/rules/end")
def end_a_rule(request: Request, service: InService, viewer: Operator, fields: Form) -> Response:
    """Let a rule hold no longer from an instant on, or say what that would move."""
    return _change(request, service, viewer, fields, "end", _ending)


def _change(  # noqa: PLR0917 - a request, and what it does
    request: Request,
    service: Service,
    viewer: Viewer,
    fields: Fields,
    what: str,
    read: Callable[[Fields, Recording], Change],
) -> Response:
    try:
        change = read(fields, Recording(viewer, service.clock(), reason_of(fields)))
        if fields.get("do") != "save":
            told = foretell_tenancy(service.database, change)
            return _page(request, service, viewer, fields={**fields, "what": what}, told=told)
        with service.database.writing() as session:
            change(session)
    except AccountingError as error:
        return _page(request, service, viewer, fields={**fields, "what": what}, refused=error)
    return _see(what)


def _see(done: str) -> Response:
    return RedirectResponse(link("tenancy", done=done), status_code=303)


def _new_rule(fields: Fields, recording: Recording) -> Change:
    asked = Asked(
        whole_number(fields, "priority"),
        text_of(fields, "tenant"),
        optional_text(fields, "cluster", at_most=253) or ANYTHING,
        optional_text(fields, "tenant_key", at_most=253) or ANYTHING,
        optional_text(fields, "namespace", at_most=253) or ANYTHING,
    )
    validity = Validity(instant_of(fields, "from"), optional_instant(fields, "to"))
    return lambda session: add_rule(session, asked, validity, recording)[1]


def _ending(fields: Fields, recording: Recording) -> Change:
    priority, at_ms = whole_number(fields, "priority"), instant_of(fields, "at")
    return lambda session: end_rule(session, priority, at_ms, recording)[1]
