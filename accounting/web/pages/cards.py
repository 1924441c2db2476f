"""One card, hour by hour: who shared it. And the cards of a month.

Invariant: of every hour that is shown, charged + idle + down is all of it; the page shows the sum. Hours
are UTC's, as in the capacity report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.api.dependencies import InService, Reader
from accounting.errors import InvalidError
from accounting.ledger.calendar import Month, local_date, midnight_ms, month_bounds_ms
from accounting.reports.capacity import CapacityGroup, report_capacity
from accounting.reports.card_hours import (
    CardDay,
    CardHour,
    CardReport,
    NamedSlice,
    card_days,
    report_card,
)
from accounting.reports.cost import CostRow, report_cost
from accounting.reports.spans import month_span
from accounting.web.charts import Chart, Column, draw
from accounting.web.links import link
from accounting.web.pages.asked import Name
from accounting.web.pages.months import AskedMonth, Months, months_of
from accounting.web.rendering import render
from accounting.web.wording import short_hours
from contract.units import CARD_HOUR_PPM_MS, MS_PER_HOUR

router = APIRouter()

_MS_PER_DAY = 24 * MS_PER_HOUR
_COLOURS = 6
"""So many slices have a colour of their own; the rest share the last."""
_DAY_TOP = 24 * CARD_HOUR_PPM_MS
_SUMS = (("charged", "charged"), ("idle", "idle"), ("down", "down"))


@dataclass(frozen=True, slots=True)
class CardPage:
    """What the page of one card shows."""

    report: CardReport
    day: date
    days: Sequence[CardDay]
    of_day: CardDay | None
    """The chosen day; None: nothing is shown of it."""
    hours: Sequence[CardHour]
    """Of the chosen day."""
    slices: Sequence[tuple[NamedSlice, str]]
    """Of the chosen day, with their colours."""
    month_chart: Chart
    day_chart: Chart


def card_of(  # noqa: PLR0917 - a card, and when
    session: Session, viewer: Viewer, cluster: str, device: str, month: Month, day: date | None
) -> CardPage:
    """Read one card's month and one day of it.

    Raises:
        NotFoundError: Nothing is known of such a card in the month, or nothing that the viewer may see.
    """
    window = month_bounds_ms(month, "UTC")
    report = report_card(session, viewer, cluster, device, window)
    days = card_days(report)
    if day is None:
        busy = [one for one in days if one.charged_ppm_ms] or days
        day = local_date(busy[-1].from_ms, "UTC") if busy else month.first_day
    start = midnight_ms(day, "UTC")
    hours = [hour for hour in report.hours if start <= hour.hour_ms < start + _MS_PER_DAY]
    named = dict.fromkeys(one for hour in hours for one in hour.charged)
    slices = [(one, f"own-{min(place, _COLOURS)}") for place, one in enumerate(named, 1)]
    return CardPage(
        report=report,
        day=day,
        days=days,
        of_day=next((one for one in days if one.from_ms == start), None),
        hours=hours,
        slices=slices,
        month_chart=_month_chart(days, month, cluster, device),
        day_chart=_day_chart(hours, day, slices),
    )


def _month_chart(days: Sequence[CardDay], month: Month, cluster: str, device: str) -> Chart:
    by_start = {one.from_ms: one for one in days}
    start, end = month_bounds_ms(month, "UTC")
    columns = []
    for at_ms in range(start, end, _MS_PER_DAY):
        one, day = by_start.get(at_ms), local_date(at_ms, "UTC").isoformat()
        parts = [] if one is None else [one.charged_ppm_ms, one.idle_ppm_ms, one.down_ppm_ms]
        told = ", ".join(f"{short_hours(part)} {name}" for (name, _), part in zip(_SUMS, parts, strict=False))
        columns.append(
            Column(
                label=str(int(day[-2:])),
                text=f"{day}: {told or 'nothing to show'}",
                parts=[(css, part) for (css, _), part in zip(_SUMS, parts, strict=False)],
                href="" if one is None else link("card", cluster=cluster, device=device, day=day),
            )
        )
    labels = ("0", "12", "24")
    return draw(
        "month", f"Hours of each day of {month}, UTC", columns, keys=_SUMS, top=_DAY_TOP, labels=labels
    )


def _day_chart(hours: Sequence[CardHour], day: date, slices: Sequence[tuple[NamedSlice, str]]) -> Chart:
    by_start = {hour.hour_ms: hour for hour in hours}
    start = midnight_ms(day, "UTC")
    columns = []
    for at_ms in range(start, start + _MS_PER_DAY, MS_PER_HOUR):
        hour = by_start.get(at_ms, CardHour(at_ms))
        clock = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%H")
        parts = [(css, hour.charged.get(one, 0)) for one, css in slices]
        parts += [
            ("others", hour.others_charged_ppm_ms),
            ("idle", hour.idle_ppm_ms),
            ("down", hour.down_ppm_ms),
        ]
        columns.append(Column(label=clock, text=_told(hour, f"{clock}:00"), parts=parts))
    others = any(hour.others_charged_ppm_ms for hour in hours)
    keys = [(css, f"{one.namespace}/{one.pod}") for one, css in slices]
    keys += [("others", "others")] if others else []
    title = f"Who shared the card, hour by hour of {day.isoformat()}, UTC"
    top = CARD_HOUR_PPM_MS
    return draw("day", title, columns, keys=[*keys, *_SUMS[1:]], top=top, labels=("0", "½", "1"))


def _told(hour: CardHour, clock: str) -> str:
    if not hour.present_ppm_ms:
        return f"{clock}: nothing to show"
    said = [f"{one.namespace}/{one.pod} {_part(charged)}" for one, charged in hour.charged.items()]
    if hour.others_charged_ppm_ms:
        said.append(f"others {_part(hour.others_charged_ppm_ms)}")
    said += [f"idle {_part(hour.idle_ppm_ms)}", f"down {_part(hour.down_ppm_ms)}"]
    return f"{clock}: {', '.join(said)}"


def _part(quantity_ppm_ms: int) -> str:
    return f"{100 * quantity_ppm_ms / CARD_HOUR_PPM_MS:.1f} %"


@router.get("/card")
def card_page(
    *,
    request: Request,
    service: InService,
    viewer: Reader,
    cluster: Name,
    device: Name,
    day: Annotated[date | None, Query(description="as 2026-10-14, in UTC")] = None,
    period: AskedMonth = None,
) -> Response:
    """Who shared one card, hour by hour."""
    with service.database.reading() as session:
        if day is not None and not 1971 < day.year < 9998:
            raise InvalidError(f"no ledger reaches to {day.isoformat()}; write a day like 2026-10-14")
        asked = period if day is None else day.isoformat()[:7]
        months = months_of(session, viewer, asked, now_ms=service.clock())
        shown = card_of(session, viewer, cluster, device, months.chosen, day)
        return render(request, "card.html", viewer=viewer, months=months, shown=shown)


@dataclass(frozen=True, slots=True)
class Cards:
    """What the list shows: for operators every card's time, for others what they were charged for."""

    whole: Sequence[CapacityGroup]
    charged: Sequence[CostRow]


def cards_of(session: Session, viewer: Viewer, months: Months) -> Cards:
    """The cards of a month."""
    keys = ("cluster", "node", "model", "device")
    if viewer.sees_everything:
        window = month_span(months.chosen, months.zone).interval
        return Cards(report_capacity(session, window, group_by=keys).groups, ())
    report = report_cost(session, viewer, month_span(months.chosen), keys)
    return Cards((), [row for row in report.rows if row.keys[3]])


@router.get("/cards")
def cards_page(request: Request, service: InService, viewer: Reader, period: AskedMonth = None) -> Response:
    """The cards of a month."""
    with service.database.reading() as session:
        months = months_of(session, viewer, period, now_ms=service.clock())
        shown = cards_of(session, viewer, months)
        return render(request, "cards.html", viewer=viewer, months=months, shown=shown)
