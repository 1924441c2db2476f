"""`POST /api/v1/prices`, `policies`, `discounts`; `GET discounts`: versions, recorded and never edited.

With `dry_run=true` nothing is recorded: the answer says what it would change in the open months.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import Field
from sqlalchemy.orm import Session

from accounting.api.answering import Wanted
from accounting.api.bodies import Body, Reason, TenantName
from accounting.api.dependencies import InService, Operator, Service
from accounting.api.idempotency import DryOrOnce, Once
from accounting.api.reports import answer
from accounting.api.windows import AskedPage, instant_of_text
from accounting.periods.whatif import foretell_versions
from accounting.prices.book import MAX_MODEL, parse_currency, parse_unit_price, set_price
from accounting.prices.discounts import list_discounts, parse_percent, set_discount
from accounting.prices.policies import set_policy
from accounting.reports.books import discount_document, discounts_document, policy_document, price_document
from accounting.reports.documents import Document
from accounting.reports.tenants import foretold_document
from accounting.tenants.tree import find_tenant

router = APIRouter(prefix="/api/v1", tags=["pricing"])


class _Version(Body):
    from_: Annotated[str, Field(alias="from", max_length=40, examples=["2026-10-01T00:00:00Z"])]
    """The first instant that it holds for, RFC 3339 with an offset."""
    to: Annotated[str, Field(max_length=40)] | None = None
    """The first instant that it no longer holds for; without it: until further notice."""
    reason: Reason | None = None
    """Needed to supersede a version over the same validity."""

    @property
    def validity(self) -> tuple[int, int | None]:
        """From and to, in Unix milliseconds.

        Raises:
            Problem: 422, one of them is no instant.
        """
        return instant_of_text(self.from_), None if self.to is None else instant_of_text(self.to)


class NewPrice(_Version):
    """What a card-hour or kWh of one SKU costs on one model."""

    sku: Literal["gpu-slice", "gpu-idle", "gpu-unallocated", "gpu-energy"] = "gpu-slice"
    model: Annotated[str, Field(max_length=MAX_MODEL)] = ""
    """As registered; empty: every model."""
    unit_price: Annotated[str, Field(max_length=60, examples=["2.40"])]
    currency: Annotated[str, Field(max_length=3, examples=["EUR"])]


class NewPolicy(_Version):
    """How shares, idle capacity, energy or unallocated use are treated."""

    kind: Literal["share", "idle", "energy", "unallocated"]
    value: Annotated[str, Field(max_length=32, examples=["dominant"])]


class NewDiscount(_Version):
    """What a tenant, and all below it, pays less than the list price."""

    tenant: TenantName
    percent: Annotated[str, Field(max_length=60, examples=["12.5"])]


@router.post("/prices", status_code=201)
def post_price(service: InService, once: DryOrOnce, price: NewPrice) -> Response:
    """Record a price; over the same validity it supersedes the version there, with a reason."""

    def record(session: Session) -> Document:
        valid_from_ms, valid_to_ms = price.validity
        version = set_price(
            session,
            sku=price.sku,
            model=price.model,
            currency=parse_currency(price.currency),
            unit_price=parse_unit_price(price.unit_price),
            valid_from_ms=valid_from_ms,
            valid_to_ms=valid_to_ms,
            reason=price.reason,
            by=once.by,
            now_ms=once.now_ms,
        )
        return price_document(version)

    return _record(service, once, record)


@router.post("/policies", status_code=201)
def post_policy(service: InService, once: DryOrOnce, policy: NewPolicy) -> Response:
    """Record a policy; open months follow at the next rating, a closed one never does by itself."""

    def record(session: Session) -> Document:
        valid_from_ms, valid_to_ms = policy.validity
        version = set_policy(
            session,
            kind=policy.kind,
            value=policy.value,
            valid_from_ms=valid_from_ms,
            valid_to_ms=valid_to_ms,
            reason=policy.reason,
            by=once.by,
            now_ms=once.now_ms,
        )
        return policy_document(version)

    return _record(service, once, record)


@router.get("/discounts")
def discounts(
    service: InService,
    viewer: Operator,  # noqa: ARG001 - asking is what keeps tenants out
    page: AskedPage,
    wants: Wanted,
) -> Response:
    """Every version of every tenant's discount, superseded ones too."""
    with service.database.reading() as session:
        return wants.answer(discounts_document(list_discounts(session), page))


@router.post("/discounts", status_code=201)
def post_discount(service: InService, once: DryOrOnce, discount: NewDiscount) -> Response:
    """Record what a tenant pays less; the nearest tenant upwards that has a discount decides."""

    def record(session: Session) -> Document:
        valid_from_ms, valid_to_ms = discount.validity
        tenant = find_tenant(session, once.by, discount.tenant)
        version = set_discount(
            session,
            tenant,
            percent=parse_percent(discount.percent),
            valid_from_ms=valid_from_ms,
            valid_to_ms=valid_to_ms,
            reason=discount.reason,
            by=once.by,
            now_ms=once.now_ms,
        )
        return discount_document(tenant.path, version)

    return _record(service, once, record)


def _record(service: Service, once: Once, record: Callable[[Session], Document]) -> Response:
    """Record a version, or (`dry_run=true`) say what it would change in the open months."""
    if once.is_dry:
        return answer(foretold_document(foretell_versions(service.database, record)))
    return once.obey(service.database, record, status=201)
