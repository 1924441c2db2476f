"""`GET /api/v1/usage`, `costs`, `capacity`, `allocations`: reports, narrowed and added up as asked."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Response

from accounting.api.answering import Wanted
from accounting.api.dependencies import InService, Operator, Reader
from accounting.api.problems import Problem
from accounting.api.windows import AskedPage, AskedSpan, Window
from accounting.reports.allocations import allocations_document, list_allocations
from accounting.reports.capacity import capacity_document, report_capacity
from accounting.reports.card_hours import card_document, report_card
from accounting.reports.cost import Idle, cost_document, report_cost
from accounting.reports.documents import Document, encode
from accounting.reports.grouping import CAPACITY_KEYS, COST_KEYS, USAGE_KEYS, Filters, parse_keys
from accounting.reports.slice_hours import STEPS, report_slice, slice_steps_document
from accounting.reports.spans import require_zone
from accounting.reports.stranded import report_stranded, stranded_document
from accounting.reports.usage import report_usage, usage_document
from accounting.reports.usage_groups import Basis, grouped_usage_document, require_measured

router = APIRouter(prefix="/api/v1", tags=["reports"])

_TEXT = Query(max_length=1_000, pattern=r"^[^\x00]+$")
_Text = Annotated[str | None, _TEXT]
_GroupBy = Annotated[list[str], Query(description="one or several, as team,model")]


def answer(document: Document) -> Response:
    """A document as the body of an answer."""
    return Response(encode(document), media_type="application/json")


def _filters(
    *,
    tenant: _Text = None,
    account: _Text = None,
    cluster: _Text = None,
    namespace: _Text = None,
    node: _Text = None,
    model: _Text = None,
    sku: _Text = None,
) -> Filters:
    return Filters(tenant, account, cluster, namespace, node, model, sku)


def _card_filters(*, cluster: _Text = None, node: _Text = None, model: _Text = None) -> Filters:
    return Filters(cluster=cluster, node=node, model=model)


AskedFilters = Annotated[Filters, Depends(_filters)]
CardFilters = Annotated[Filters, Depends(_card_filters)]


@router.get("/usage")
def usage(
    *,
    service: InService,
    viewer: Reader,
    window: Window,
    page: AskedPage,
    filters: AskedFilters,
    wants: Wanted,
    group_by: _GroupBy = [],  # noqa: B006 - FastAPI copies it
    basis: Annotated[Basis, Query()] = "allocation",
) -> Response:
    """What slices held and used in a window: one row a slice, or one a group."""
    keys = parse_keys(group_by, USAGE_KEYS)
    if filters.sku is not None:
        raise Problem(422, "usage has no SKU; ask costs for it")
    with service.database.reading() as session:
        report = report_usage(session, viewer, window, filters)
        require_measured(report, basis)
        if keys or basis == "usage":
            return wants.answer(grouped_usage_document(report, keys or ("tenant",), basis, page))
        return wants.answer(usage_document(report, page))


@router.get("/costs")
def costs(
    *,
    service: InService,
    viewer: Reader,
    span: AskedSpan,
    page: AskedPage,
    filters: AskedFilters,
    wants: Wanted,
    group_by: _GroupBy = ["tenant"],  # noqa: B006 - FastAPI copies it
    idle: Annotated[Idle, Query()] = "billed",
    basis: Annotated[Basis, Query()] = "allocation",
) -> Response:
    """What a month, or the days that begin in a window, cost so far."""
    if basis == "usage":
        raise Problem(422, "what is owed goes by allocation; for what was used ask usage?basis=usage")
    keys = parse_keys(group_by, COST_KEYS)
    with service.database.reading() as session:
        report = report_cost(session, viewer, span, keys, filters=filters, idle=idle)
        return wants.answer(cost_document(report, page), is_final=report.is_final)


@router.get("/capacity")
def capacity(
    *,
    service: InService,
    viewer: Operator,  # noqa: ARG001 - asking is what keeps tenants out
    window: Window,
    page: AskedPage,
    filters: CardFilters,
    wants: Wanted,
    group_by: _GroupBy = [],  # noqa: B006 - FastAPI copies it
    tz: Annotated[str | None, Query(description="whose days, as Europe/Berlin")] = None,
) -> Response:
    """Device hours: charged + idle + down = present; one row a device and hour, or one a group."""
    keys = parse_keys(group_by, CAPACITY_KEYS)
    with service.database.reading() as session:
        report = report_capacity(
            session,
            window,
            filters=filters,
            group_by=keys,
            time_zone=require_zone(tz) or "UTC",
            asked=page,
        )
        return wants.answer(capacity_document(report))


@router.get("/capacity/stranded")
def stranded(
    *,
    service: InService,
    viewer: Operator,  # noqa: ARG001 - asking is what keeps tenants out
    window: Window,
    page: AskedPage,
    wants: Wanted,
    cluster: _Text = None,
) -> Response:
    """Free memory and cores by device: where another slice would fit although a card is sold."""
    with service.database.reading() as session:
        return wants.answer(stranded_document(report_stranded(session, window, cluster=cluster), page))


@router.get("/capacity/card")
def card(
    *,
    service: InService,
    viewer: Reader,
    window: Window,
    wants: Wanted,
    cluster: Annotated[str, _TEXT],
    device: Annotated[str, _TEXT],
) -> Response:
    """One card hour by hour, and who shared it; a tenant sees others only as one sum, and only beside it."""
    with service.database.reading() as session:
        return wants.answer(card_document(report_card(session, viewer, cluster, device, window)))


@router.get("/usage/slice")
def slice_steps(
    *,
    service: InService,
    viewer: Reader,
    window: Window,
    wants: Wanted,
    cluster: Annotated[str, _TEXT],
    id: Annotated[UUID, Query(description="as allocations and lines name it")],  # noqa: A002 - a parameter's name
    by: Annotated[Literal["hour", "day"], Query(description="one row each, in UTC")] = "hour",
) -> Response:
    """One slice step by step: its share, what was measured."""
    step_ms = STEPS[by]
    with service.database.reading() as session:
        report = report_slice(session, viewer, cluster, id, window, step_ms=step_ms)
        return wants.answer(slice_steps_document(report))


@router.get("/allocations")
def allocations(
    *,
    service: InService,
    viewer: Reader,
    window: Window,
    page: AskedPage,
    filters: AskedFilters,
    wants: Wanted,
) -> Response:
    """Slices held in a window, merged from both witnesses."""
    if filters.sku is not None or filters.account is not None:
        raise Problem(422, "allocations have no SKU and no account; ask costs for them")
    with service.database.reading() as session:
        found = list_allocations(
            session,
            viewer,
            window,
            as_of_ms=service.clock(),
            grace_ms=service.settings.grace_ms,
            filters=filters,
        )
    return wants.answer(allocations_document(found, window, page))
