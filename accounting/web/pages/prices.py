"""The price list; for operators a new version, asked about before it is recorded.

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
from accounting.periods.whatif import Foretold, foretell_versions
from accounting.prices.book import MAX_MODEL, SKUS, list_versions, parse_currency, parse_unit_price, set_price
from accounting.prices.discounts import list_discounts
from accounting.prices.policies import list_policies
from accounting.web.links import link
from accounting.web.own_forms import Fields, Form
from accounting.web.pages.filled import (
    instant_of,
    optional_instant,
    optional_text,
    reason_of,
    status_of,
    text_of,
)
from accounting.web.rendering import render

router = APIRouter()


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
            "prices.html",
            viewer=viewer,
            status=200 if refused is None else status_of(refused),
            prices=list_versions(session),
            policies=list_policies(session),
            discounts=list_discounts(session),
            skus=SKUS,
            fields=fields,
            told=told,
            refused="" if refused is None else str(refused),
            done=done,
        )


@router.get("/prices")
def prices_page(request: Request, service: InService, viewer: Operator, done: str = "") -> Response:
    """Versions of prices, discounts and policies, and the form for a price."""
    said = "The price is recorded. Open months follow at the next rating." if done == "price" else ""
    return _page(request, service, viewer, fields={}, done=said)


@router.post("/prices")
def set_a_price(request: Request, service: InService, viewer: Operator, fields: Form) -> Response:
    """Record a price, or say what it would change."""
    try:
        record = _recording(fields, viewer, service.clock())
        if fields.get("do") != "save":
            told = foretell_versions(service.database, record)
            return _page(request, service, viewer, fields=fields, told=told)
        with service.database.writing() as session:
            record(session)
    except AccountingError as error:
        return _page(request, service, viewer, fields=fields, refused=error)
    return RedirectResponse(link("prices", done="price"), status_code=303)


def _recording(fields: Fields, viewer: Viewer, now_ms: int) -> Callable[[Session], object]:
    sku = text_of(fields, "sku")
    if sku not in SKUS:
        raise InvalidError(f'SKU "{sku}" is not sold; there are {", ".join(SKUS)}')
    model = optional_text(fields, "model", at_most=MAX_MODEL)
    currency = parse_currency(text_of(fields, "currency"))
    unit_price = parse_unit_price(text_of(fields, "unit_price"))
    valid_from_ms, valid_to_ms = instant_of(fields, "from"), optional_instant(fields, "to")
    reason = reason_of(fields)

    def record(session: Session) -> object:
        return set_price(
            session,
            sku=sku,
            model=model,
            currency=currency,
            unit_price=unit_price,
            valid_from_ms=valid_from_ms,
            valid_to_ms=valid_to_ms,
            reason=reason,
            by=viewer,
            now_ms=now_ms,
        )

    return record
