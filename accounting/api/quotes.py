"""`GET /api/v1/quote`: what a slice would cost at most."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from accounting.api.dependencies import InService, Reader
from accounting.api.reports import answer
from accounting.reports.quote import MAX_MIB, Wanted, make_quote, parse_hours, quote_document

router = APIRouter(prefix="/api/v1", tags=["quote"])


@router.get("/quote")
def quote(
    *,
    service: InService,
    viewer: Reader,
    model: Annotated[str, Query(min_length=1, max_length=253)],
    hours: Annotated[str, Query(description="as 12 or 0.5")],
    mem_mib: Annotated[int, Query(ge=0, le=MAX_MIB)] = 0,
    core_percent: Annotated[int, Query(ge=0, le=100)] = 0,
    mig: Annotated[str | None, Query(max_length=64, description="a profile, as 1g.10gb")] = None,
    card_mib: Annotated[int | None, Query(ge=1, le=MAX_MIB, description="default: as reported")] = None,
    tenant: Annotated[str | None, Query(description="default: the asker's own")] = None,
    account: Annotated[str | None, Query(description="instead of a tenant, for operators")] = None,
) -> Response:
    """The own share of a card for some hours at today's price: neighbours only make it cheaper."""
    wanted = Wanted(model, mem_mib, core_percent, parse_hours(hours), mig, card_mib)
    with service.database.reading() as session:
        found = make_quote(
            session, viewer, wanted, at_ms=service.clock(), tenant_name=tenant, account_code=account
        )
    return answer(quote_document(found))
