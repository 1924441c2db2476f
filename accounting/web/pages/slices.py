"""One slice over time: its share, its memory, its SM time, its energy. And the slices of a month.

Invariant: what was not measured has no bar and says so; a step's figures are those of the slice report.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.api.dependencies import InService, Reader
from accounting.ledger.calendar import Month, at_text, month_bounds_ms
from accounting.periods.statement import Statement, state_statement
from accounting.periods.use import Use, add_uses
from accounting.reports.slice_hours import STEPS, SliceReport, SliceStep, report_slice
from accounting.reports.statement_slices import StatementSlice, slices_of
from accounting.reports.units import kwh
from accounting.web.charts import Chart, Column, draw, round_top
from accounting.web.pages.asked import AccountName, Name, OptionalTenant
from accounting.web.pages.months import AskedMonth, months_of
from accounting.web.rendering import render
from contract.units import MJ_PER_KWH, PPM

router = APIRouter()

DAYS_BY_HOUR = 4
"""A slice that was held on more days of the month is shown by day."""
SLICES_AT_MOST = 500


@dataclass(frozen=True, slots=True)
class SlicePage:
    """What the page of one slice shows."""

    report: SliceReport
    by: str
    """`hour` or `day`."""
    held_ms: int
    own_ppm_ms: int
    charged_ppm_ms: int
    use: Use | None
    charts: Sequence[Chart]


def slice_of(session: Session, viewer: Viewer, cluster: str, allocation_id: UUID, month: Month) -> SlicePage:
    """Read one slice's month.

    Raises:
        NotFoundError: No such slice in the month, or none that the viewer may see.
    """
    window = month_bounds_ms(month, "UTC")
    by = "day"
    report = report_slice(session, viewer, cluster, allocation_id, window, step_ms=STEPS[by])
    if len(report.steps) <= DAYS_BY_HOUR:
        by = "hour"
        report = report_slice(session, viewer, cluster, allocation_id, window, step_ms=STEPS[by])
    return SlicePage(
        report=report,
        by=by,
        held_ms=sum(step.held_ms for step in report.steps),
        own_ppm_ms=sum(step.own_ppm_ms or 0 for step in report.steps),
        charged_ppm_ms=sum(step.charged_ppm_ms or 0 for step in report.steps),
        use=add_uses(step.use for step in report.steps),
        charts=[_share_chart(report, by), _memory_chart(report, by), _energy_chart(report, by)],
    )


def _columns(report: SliceReport, by: str, column: Callable[[SliceStep, str, str], Column]) -> list[Column]:
    found = []
    for step in report.steps:
        text = at_text(step.from_ms)
        label = str(int(text[8:10])) if by == "day" else text[11:13]
        when = text[:10] if by == "day" else f"{text[:10]} {text[11:16]}"
        found.append(column(step, label, when))
    return found


def _share_chart(report: SliceReport, by: str) -> Chart:
    def column(step: SliceStep, label: str, when: str) -> Column:
        charged = step.charged_ppm_ms
        said = "unknown card" if charged is None else f"{_of_card(charged, step)} of the card charged"
        used = None if step.use is None else step.use.sm_ppm_ms
        said += ", use not measured" if used is None else f", {_of_card(used, step)} SM time used"
        inner = None if used is None else ("used", used)
        return Column(label, f"{when}: {said}", [("charged", charged or 0)], inner)

    keys = [("charged", "share of the card charged"), ("used", "SM time used")]
    labels = ("0", "50 %", "100 %")
    title = f"Share of the card, and SM time used, by {by}, UTC"
    return draw("share", title, _columns(report, by, column), keys=keys, top=STEPS[by] * PPM, labels=labels)


def _of_card(quantity_ppm_ms: int, step: SliceStep) -> str:
    return f"{100 * quantity_ppm_ms / ((step.to_ms - step.from_ms) * PPM):.1f} %"


def _memory_chart(report: SliceReport, by: str) -> Chart:
    asked = report.slice.allocation.mem_mib

    def column(step: SliceStep, label: str, when: str) -> Column:
        used = mean_mib(step.use)
        said = f"{asked:,} MiB held, " + (
            "use not measured" if step.use is None or used is None else
            f"{used:,} MiB used on average, peak {step.use.mem_peak_mib:,} MiB"
        )  # fmt: skip
        inner = None if used is None else ("used", used)
        return Column(label, f"{when}: {said}", [("held", asked if step.held_ms else 0)], inner)

    most = max([asked, 1, *(mean_mib(step.use) or 0 for step in report.steps)])
    top = round_top(most, 1024)
    title = f"Memory held, and used on average, by {by}, UTC; in MiB"
    labels = ("0", f"{top // 2:,}", f"{top:,}")
    keys = [("held", "memory held"), ("used", "memory used on average")]
    return draw("memory", title, _columns(report, by, column), keys=keys, top=top, labels=labels)


def mean_mib(use: Use | None) -> int | None:
    """Memory in use while it was measured."""
    return None if use is None or not use.covered_ms else use.mem_used_mib_ms // use.covered_ms


def _energy_chart(report: SliceReport, by: str) -> Chart:
    def column(step: SliceStep, label: str, when: str) -> Column:
        energy = None if step.use is None else step.use.energy_active_mj
        said = "not measured" if energy is None else kwh(energy)
        return Column(label, f"{when}: {said}", [("charged", energy or 0)])

    most = max((step.use.energy_active_mj for step in report.steps if step.use is not None), default=0)
    top = round_top(max(most, 1), MJ_PER_KWH)
    title = f"Energy at work, by {by}, UTC; in Wh"
    labels = tuple(f"{top * part / 2 * 1000 / MJ_PER_KWH:,.0f}" for part in range(3))
    keys = [("charged", "energy at work")]
    return draw("energy", title, _columns(report, by, column), keys=keys, top=top, labels=labels)


@router.get("/slice")
def slice_page(
    *,
    request: Request,
    service: InService,
    viewer: Reader,
    cluster: Name,
    id: UUID,  # noqa: A002 - a parameter's name
    period: AskedMonth = None,
) -> Response:
    """One slice over time."""
    with service.database.reading() as session:
        months = months_of(session, viewer, period, now_ms=service.clock())
        shown = slice_of(session, viewer, cluster, id, months.chosen)
        return render(request, "slice.html", viewer=viewer, months=months, shown=shown, mean_mib=mean_mib)


@dataclass(frozen=True, slots=True)
class Slices:
    """What the list shows."""

    statement: Statement
    slices: Sequence[StatementSlice]
    slices_left_out: int


@router.get("/slices")
def slices_page(
    *,
    request: Request,
    service: InService,
    viewer: Reader,
    tenant: OptionalTenant = None,
    account: AccountName = None,
    period: AskedMonth = None,
) -> Response:
    """The slices of a tenant, or of an account, in a month."""
    with service.database.reading() as session:
        months = months_of(session, viewer, period, now_ms=service.clock())
        chosen = account or None
        if viewer.sees_everything and not tenant and chosen is None:
            chosen = months.accounts[0].account if months.accounts else None
        shown = None
        if chosen or tenant or not viewer.sees_everything:
            statement = state_statement(session, viewer, months.chosen, tenant or None, account_code=chosen)
            slices = slices_of(statement)
            shown = Slices(statement, slices[:SLICES_AT_MOST], len(slices[SLICES_AT_MOST:]))
        return render(
            request,
            "slices.html",
            viewer=viewer,
            months=months,
            shown=shown,
            account=chosen or "",
            tenant=tenant or "",
        )
