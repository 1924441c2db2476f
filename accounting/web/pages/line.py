"""Why one line is what it is, step by step: what `explain` says, as a page."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from accounting.api.dependencies import InService, Reader
from accounting.ledger.calendar import local_date
from accounting.ledger.rounding import MJ
from accounting.periods.explain import explain_line
from accounting.web.rendering import render

router = APIRouter()

MAX_ID = 2**63 - 1


@router.get("/line")
def line_page(
    *,
    request: Request,
    service: InService,
    viewer: Reader,
    line: Annotated[int, Query(ge=1, le=MAX_ID)],
) -> Response:
    """One line: its versions, and the card's day in steps that add up to it."""
    with service.database.reading() as session:
        one = explain_line(session, viewer, line)
        day = local_date(one.line.day_ms, one.time_zone).isoformat()
        is_energy = one.line.unit == MJ
        return render(request, "line.html", viewer=viewer, one=one, day=day, is_energy=is_energy)
