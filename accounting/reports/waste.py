"""What is held and not used: before it runs, reserved cores that stay idle, memory above what is needed.

Nothing here is billed or stops anything. Invariant: only what was measured is judged; a slice without a
usage source, or measured for less than a day, gets figures but no suggestion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.ledger.calendar import at_text
from accounting.ledger.intervals import Interval
from accounting.periods.use import SliceUses, Use
from accounting.reports.documents import Document, instant
from accounting.reports.grouping import Filters
from accounting.reports.paging import EVERYTHING, Asked, Key, page_of
from accounting.reports.usage import SliceRow, report_usage
from accounting.store.walls import CARDS, seeing
from contract.apportion import apportion
from contract.units import MS_PER_HOUR, PPM

ENOUGH_MS = 24 * MS_PER_HOUR
"""A request is not judged by less than a day."""

_PERCENTILE = 95
_SPARE_PERCENT = 110
"""A suggestion leaves a tenth to spare."""
_MIB_STEP = 256
_CORE_STEP = 5
_PPM_PER_PERCENT = PPM // 100


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A request that would have done; each None: as it is."""

    mem_mib: int | None
    core_percent: int | None


@dataclass(frozen=True, slots=True)
class WasteRow:
    """One slice, or what it was while it was one tenant's.

    Attributes:
        not_running_ppm_ms: Charged card time before its first container ran; None on an unknown card.
        idle_core_ppm_ms: Reserved core time that was measured and not used; None: no cores reserved, or
            not measured.
        idle_mem_mib_ms: Held memory above what was in use, over the measured time; None: not measured.
        mem_p95_mib: In nineteen of twenty measured hours the mean was no higher.
        sm_p95_ppm: The same of SM time, in millionths of the card.
    """

    slice: SliceRow
    not_running_ppm_ms: int | None
    measured_ms: int
    idle_core_ppm_ms: int | None
    idle_mem_mib_ms: int | None
    mem_peak_mib: int | None
    mem_p95_mib: int | None
    sm_p95_ppm: int | None
    suggestion: Suggestion


@dataclass(frozen=True, slots=True)
class WasteReport:
    """The slices of a window that a viewer may see, those that waste most card time first."""

    window: Interval
    as_of_ms: int | None
    rows: Sequence[WasteRow]


def report_waste(
    session: Session, viewer: Viewer, window: Interval, filters: Filters | None = None
) -> WasteReport:
    """Judge every slice of a window by what was measured.

    Raises:
        NotFoundError: No tenant of the filter's name, or none that the viewer may see.
    """
    usage = report_usage(session, viewer, window, filters)
    ids = [(_cluster(row), row.slice.allocation_id) for row in usage.rows]
    with seeing(session, CARDS):
        uses = SliceUses(session, ids, window)
    rows = [_judged(row, _hours(uses, row.slice.allocation_id, row.times)) for row in usage.rows]
    return WasteReport(window, usage.as_of_ms, sorted(rows, key=_key))


def _hours(uses: SliceUses, allocation_id: UUID, times: Iterable[Interval]) -> list[Use]:
    return [use for when in times for use in uses.hours_of(allocation_id, when)]


def _judged(row: SliceRow, hours: Sequence[Use]) -> WasteRow:
    allocation = row.slice.allocation
    known = [hour for hour in hours if hour.covered_ms]
    measured_ms = sum(hour.covered_ms for hour in known)
    mem_p95 = _p95([(hour.mem_used_mib_ms, hour.covered_ms) for hour in known])
    with_sm = [(hour.sm_ppm_ms, hour.covered_ms - hour.unknown_ms) for hour in known]
    sm_p95 = _p95([(sum_ppm_ms, span_ms) for sum_ppm_ms, span_ms in with_sm if span_ms > 0])
    sm_known_ms = sum(span_ms for _, span_ms in with_sm if span_ms > 0)
    reserved_ppm_ms = allocation.core_percent * _PPM_PER_PERCENT * sm_known_ms
    used_ppm_ms = sum(sum_ppm_ms for sum_ppm_ms, _ in with_sm)
    has_cores = bool(allocation.core_percent) and sm_known_ms > 0
    held_mib_ms = allocation.mem_mib * measured_ms
    used_mib_ms = sum(hour.mem_used_mib_ms for hour in known)
    peak = max((hour.mem_peak_mib for hour in known), default=None)
    return WasteRow(
        slice=row,
        not_running_ppm_ms=_before_running(row),
        measured_ms=measured_ms,
        idle_core_ppm_ms=max(0, reserved_ppm_ms - used_ppm_ms) if has_cores else None,
        idle_mem_mib_ms=max(0, held_mib_ms - used_mib_ms) if measured_ms else None,
        mem_peak_mib=peak,
        mem_p95_mib=mem_p95,
        sm_p95_ppm=sm_p95,
        suggestion=_suggested(row, measured_ms, peak, sm_p95),
    )


def _before_running(row: SliceRow) -> int | None:
    if row.charged_ppm_ms is None:
        return None
    waiting_ms = row.held_not_running_ms
    return apportion(row.charged_ppm_ms, [waiting_ms, row.held_ms - waiting_ms])[0] if row.held_ms else 0


def _p95(hours: Sequence[tuple[int, int]]) -> int | None:
    """Of (sum, span) pairs: the mean that is not passed in 95 % of the time; None without any."""
    means = sorted((total // span, span) for total, span in hours)
    whole = sum(span for _, span in means)
    passed = 0
    for mean, span in means:
        passed += span
        if passed * 100 >= whole * _PERCENTILE:
            return mean
    return None


def _suggested(row: SliceRow, measured_ms: int, peak_mib: int | None, sm_p95: int | None) -> Suggestion:
    if measured_ms < ENOUGH_MS or peak_mib is None:
        return Suggestion(None, None)
    allocation = row.slice.allocation
    mem_mib = _stepped(peak_mib * _SPARE_PERCENT, 100, _MIB_STEP)
    core = None
    if sm_p95 is not None and allocation.core_percent:
        core = _stepped(sm_p95 * _SPARE_PERCENT, 100 * _PPM_PER_PERCENT, _CORE_STEP)
    return Suggestion(
        mem_mib if mem_mib < allocation.mem_mib else None,
        core if core is not None and core < allocation.core_percent else None,
    )


def _stepped(number: int, divisor: int, step: int) -> int:
    """A quotient rounded up to a step, and never below one."""
    return max(step, -(-number // (divisor * step)) * step)


def _cluster(row: SliceRow) -> str:
    return row.slice.allocation.slice_key.cluster


def _key(row: WasteRow) -> Key:
    key = row.slice.slice.allocation.slice_key
    wasted = (row.not_running_ppm_ms or 0) + (row.idle_core_ppm_ms or 0)
    return -wasted, -(row.idle_mem_mib_ms or 0), *key, row.slice.tenant


def _row_document(row: WasteRow) -> Document:
    allocation = row.slice.slice.allocation
    return {
        "tenant": row.slice.tenant,
        "cluster": allocation.slice_key.cluster,
        "namespace": allocation.namespace,
        "pod": allocation.pod,
        "container": allocation.slice_key.container,
        "node": allocation.node,
        "device_uuid": allocation.slice_key.device_uuid,
        "model": allocation.model,
        "held_ms": row.slice.held_ms,
        "held_not_running_ms": row.slice.held_not_running_ms,
        "not_running_ppm_ms": row.not_running_ppm_ms,
        "measured_ms": row.measured_ms,
        "core_percent": allocation.core_percent,
        "sm_p95_ppm": row.sm_p95_ppm,
        "idle_core_ppm_ms": row.idle_core_ppm_ms,
        "mem_mib": allocation.mem_mib,
        "mem_p95_mib": row.mem_p95_mib,
        "mem_peak_mib": row.mem_peak_mib,
        "idle_mem_mib_ms": row.idle_mem_mib_ms,
        "suggested_core_percent": row.suggestion.core_percent,
        "suggested_mem_mib": row.suggestion.mem_mib,
    }


@dataclass(frozen=True, slots=True)
class TenantWaste:
    """The slices of one tenant, added up."""

    tenant: str
    slices: int
    unmeasured: int
    not_running_ppm_ms: int
    idle_core_ppm_ms: int
    idle_mem_mib_ms: int


def waste_by_tenant(report: WasteReport) -> list[TenantWaste]:
    """One row a tenant, those that waste most card time first; what is not measured is in no sum."""
    rows_of: dict[str, list[WasteRow]] = {}
    for row in report.rows:
        rows_of.setdefault(row.slice.tenant, []).append(row)
    return sorted((_added(tenant, rows) for tenant, rows in rows_of.items()), key=_tenant_key)


def _tenant_key(row: TenantWaste) -> Key:
    # In whole card milliseconds: the ppm·ms of a large tenant's year have no room in a cursor.
    return -((row.not_running_ppm_ms + row.idle_core_ppm_ms) // PPM), row.tenant


def _added(tenant: str, rows: Sequence[WasteRow]) -> TenantWaste:
    return TenantWaste(
        tenant=tenant,
        slices=len(rows),
        unmeasured=sum(1 for row in rows if not row.measured_ms),
        not_running_ppm_ms=sum(row.not_running_ppm_ms or 0 for row in rows),
        idle_core_ppm_ms=sum(row.idle_core_ppm_ms or 0 for row in rows),
        idle_mem_mib_ms=sum(row.idle_mem_mib_ms or 0 for row in rows),
    )


def waste_document(report: WasteReport, asked: Asked = EVERYTHING, *, by_tenant: bool = False) -> Document:
    """The report as JSON: one row a slice, or one a tenant; totals over all of them."""
    frame: Document = {
        "from": at_text(report.window[0]),
        "to": at_text(report.window[1]),
        "as_of": instant(report.as_of_ms),
        "totals": _tenant_document(_added("total", report.rows)),
        "percentile": _PERCENTILE,
    }
    if by_tenant:
        tenants = page_of(waste_by_tenant(report), _tenant_key, asked)
        return {**frame, "rows": [_tenant_document(row) for row in tenants.rows], "next": tenants.next}
    page = page_of(report.rows, _key, asked)
    return {**frame, "rows": [_row_document(row) for row in page.rows], "next": page.next}


def _tenant_document(row: TenantWaste) -> Document:
    return {
        "tenant": row.tenant,
        "slices": row.slices,
        "unmeasured_slices": row.unmeasured,
        "not_running_ppm_ms": row.not_running_ppm_ms,
        "idle_core_ppm_ms": row.idle_core_ppm_ms,
        "idle_mem_mib_ms": row.idle_mem_mib_ms,
    }
