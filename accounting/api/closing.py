"""`POST /api/v1/rate`, `periods/{period}/close`, `…/correct`, `adjustments`, `statements/{number}/void`.

What a person does about a month. Each may be asked about first: `GET periods/{period}/preflight` says what
would block a close, `GET periods/{period}/correction` what a correction would post.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field
from sqlalchemy.orm import Session

from accounting.api.bodies import Body, Code, Reason, TenantName
from accounting.api.dependencies import InService, Operator
from accounting.api.idempotency import ObeyedOnce
from accounting.api.problems import Problem
from accounting.api.reports import answer
from accounting.api.windows import Period
from accounting.periods.adjust import adjust, parse_amount
from accounting.periods.close import close_period
from accounting.periods.correct import correct_period
from accounting.periods.issuing import void
from accounting.periods.preflight import MIN_COVERAGE, Preflight, parse_ratio
from accounting.periods.rate import rate
from accounting.reports.books import rated_document
from accounting.reports.documents import Document
from accounting.reports.seals import (
    adjustment_document,
    closed_document,
    corrected_document,
    preflight_document,
    voided_document,
)

router = APIRouter(prefix="/api/v1", tags=["closing"])


class Closing(Body):
    """Which month to close, and what to pass over."""

    account: Code
    override_reason: Reason | None = None
    """Passes over what may be passed over, and says why; kept with the period."""
    min_coverage: Annotated[str, Field(max_length=40)] = str(MIN_COVERAGE)


class Correction(Body):
    """Which month to correct, and with what."""

    account: Code
    with_prices: bool = False
    """Take up prices, policies and discounts recorded since the close; else only late facts."""
    reason: Reason | None = None
    """Stands on every line that is posted."""


class Adjustment(Body):
    """An amount that a person adds to a tenant's month that is open now."""

    tenant: TenantName
    amount: Annotated[str, Field(max_length=60, examples=["-12.50"])]
    """In the account's currency, below 0 in the tenant's favour."""
    reason: Reason
    account: Code | None = None
    """Only for a tenant with lines in several accounts."""


class Voiding(Body):
    """Why a statement must not stand."""

    reason: Reason
    reissue: bool = False
    """Issue the same again under a new number."""


@router.post("/rate")
def post_rate(
    service: InService,
    viewer: Operator,  # noqa: ARG001 - asking is what keeps tenants out
) -> Response:
    """Rate whatever is due now. Twice is as once, so it needs no key."""
    rated = rate(service.database, as_of_ms=service.clock(), grace_ms=service.settings.grace_ms)
    return answer(rated_document(rated))


@router.post("/periods/{period}/close")
def post_close(service: InService, once: ObeyedOnce, period: Period, closing: Closing) -> Response:
    """Close a month of an account; 409 with every one of its `blockers` while something keeps it open."""

    def close() -> Document:
        found = close_period(
            service.database,
            closing.account,
            period,
            by=once.by,
            now_ms=once.now_ms,
            grace_ms=service.settings.grace_ms,
            min_coverage=parse_ratio(closing.min_coverage),
            override_reason=closing.override_reason,
        )
        if isinstance(found, Preflight):
            names = ", ".join(one.check for one in found.blockers)
            raise Problem(
                409,
                f"{found.period} of {found.account} stays open: {names}; `blockers` tells the way out",
                members={"blockers": preflight_document(found)["blockers"]},
            )
        return closed_document(found)

    return once.obey_at_length(service.database, close)


@router.get("/periods/{period}/correction")
def preview_correction(
    service: InService,
    viewer: Operator,
    period: Period,
    account: Annotated[str, Query(description="whose month")],
    with_prices: Annotated[bool, Query(description="with versions recorded since the close")] = False,
) -> Response:
    """What a correction of a closed month would post now; nothing is written."""
    found = correct_period(
        service.database,
        account,
        period,
        by=viewer,
        now_ms=service.clock(),
        with_versions=with_prices,
        is_dry=True,
    )
    return answer(corrected_document(found))


@router.post("/periods/{period}/correct")
def post_correction(service: InService, once: ObeyedOnce, period: Period, correction: Correction) -> Response:
    """Post what a closed month lacks into the open one; a second run posts nothing."""

    def correct() -> Document:
        found = correct_period(
            service.database,
            correction.account,
            period,
            by=once.by,
            now_ms=once.now_ms,
            with_versions=correction.with_prices,
            reason=correction.reason,
        )
        return corrected_document(found)

    return once.obey_at_length(service.database, correct)


@router.post("/adjustments", status_code=201)
def post_adjustment(service: InService, once: ObeyedOnce, adjustment: Adjustment) -> Response:
    """Add an amount to a tenant's open month: a line of its own, with its reason."""

    def add(session: Session) -> Document:
        line = adjust(
            session,
            adjustment.tenant,
            parse_amount(adjustment.amount),
            reason=adjustment.reason,
            by=once.by,
            now_ms=once.now_ms,
            account_code=adjustment.account,
        )
        return adjustment_document(session, line)

    return once.obey(service.database, add, status=201)


@router.post("/statements/{number}/void", status_code=201)
def post_void(
    service: InService,
    once: ObeyedOnce,
    number: Annotated[str, Path(max_length=80, description="as SM-000001")],
    voiding: Voiding,
) -> Response:
    """Void a statement by a credit note; its number is never used again."""

    def make_note(session: Session) -> Document:
        note, again = void(
            session, number, reason=voiding.reason, reissue=voiding.reissue, by=once.by, now_ms=once.now_ms
        )
        return voided_document(session, note, again)

    return once.obey(service.database, make_note, status=201)
