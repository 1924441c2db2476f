"""Slices held in a window, merged from both witnesses, as of now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer
from accounting.facts import kinds
from accounting.ledger.calendar import at_text
from accounting.ledger.intervals import Interval, overlaps
from accounting.ledger.merge import Held, MergedAllocation, held, merge_allocation
from accounting.ledger.tenancy import Claim
from accounting.reports.documents import Document, instant
from accounting.reports.grouping import Filters, read_branches
from accounting.reports.paging import EVERYTHING, Asked, Key, page_of
from accounting.store.models import AllocationReport
from accounting.store.walls import CARDS, seeing
from accounting.tenants.rules import read_owners
from contract.facts import AllocationFact
from contract.ids import SliceKey


@dataclass(frozen=True, slots=True)
class AllocationRow:
    """A slice, when it is held, who says so, and whose it was in the window, in time order."""

    allocation: MergedAllocation
    held: Held
    witnesses: tuple[str, ...]
    tenants: tuple[str, ...]


def list_allocations(
    session: Session,
    viewer: Viewer,
    window: Interval,
    *,
    as_of_ms: int,
    grace_ms: int,
    filters: Filters | None = None,
) -> list[AllocationRow]:
    """The slices of a viewer's tenants that are held in a window, by bind and key.

    Raises:
        NotFoundError: No tenant of the filter's name, or none that the viewer may see.
    """
    wanted = filters or Filters()
    tenants = set(read_branches(session, viewer, wanted.tenant).paths.values())
    with seeing(session, CARDS):
        rows = _merged(session, window, as_of_ms=as_of_ms, grace_ms=grace_ms)
    # Whose it was before or after a viewer's tenants is none of the viewer's business.
    seen = (replace(row, tenants=tuple(one for one in row.tenants if one in tenants)) for row in rows)
    return [row for row in seen if row.tenants and _is_asked(row.allocation, wanted)]


def _is_asked(one: MergedAllocation, filters: Filters) -> bool:
    values = {
        "cluster": one.slice_key.cluster,
        "namespace": one.namespace,
        "node": one.node,
        "model": one.model,
    }
    return all(values.get(name) == value for name, value in filters.columns().items())


def _merged(session: Session, window: Interval, *, as_of_ms: int, grace_ms: int) -> list[AllocationRow]:
    """The slices of everybody that are held in a window, by bind and key."""
    owners = read_owners(session)
    touched = (
        select(AllocationReport.cluster, AllocationReport.allocation_id)
        .where(
            AllocationReport.bound_at_ms < window[1],
            or_(
                AllocationReport.ended_at_ms > window[0],
                AllocationReport.confirmed_at_ms + grace_ms > window[0],
            ),
        )
        .distinct()
        .subquery()
    )
    table = kinds.ALLOCATION.table
    statement = select(table).join(
        touched,
        (table.c.cluster == touched.c.cluster) & (table.c.allocation_id == touched.c.allocation_id),
    )
    names = [column.name for column in table.columns]
    reports: dict[SliceKey, list[AllocationFact]] = defaultdict(list)
    for row in session.execute(statement):
        fact = kinds.ALLOCATION.fact_of(dict(zip(names, row, strict=True)))
        reports[fact.slice_key].append(fact)
    rows = []
    for facts in reports.values():
        merged = merge_allocation(facts)
        when = held(merged, as_of_ms=as_of_ms, grace_ms=grace_ms)
        if overlaps((when.from_ms, when.to_ms), window):
            claim = Claim(merged.slice_key.cluster, merged.tenant_key, merged.namespace, merged.labels)
            times = owners.of(claim).stretches(max(when.from_ms, window[0]), min(when.to_ms, window[1]))
            tenants = tuple(owner.path for _, _, owner in times)
            rows.append(AllocationRow(merged, when, tuple(sorted({f.witness for f in facts})), tenants))
    rows.sort(key=lambda row: (row.allocation.bound_at_ms, row.allocation.slice_key))
    return rows


def _key(row: AllocationRow) -> Key:
    key = row.allocation.slice_key
    return row.allocation.bound_at_ms, key.cluster, key.pod_uid, key.container, key.device_uuid


def allocations_document(
    rows: Sequence[AllocationRow], window: Interval, asked: Asked = EVERYTHING
) -> Document:
    """The list as JSON, one page of it; `ended_at` is null while the slice is held."""
    page = page_of(rows, _key, asked)
    return {
        "from": at_text(window[0]),
        "to": at_text(window[1]),
        "rows": [_row(row) for row in page.rows],
        "next": page.next,
        "totals": {"allocations": len(rows), "open": sum(1 for row in rows if row.held.end == "open")},
        "reconciliation": {
            "allocations": len(rows),
            "by_end": {
                end: sum(1 for row in rows if row.held.end == end)
                for end in ("open", "observed", "inferred", "grace")
            },
            "by_both_witnesses": sum(1 for row in rows if len(row.witnesses) > 1),
        },
    }


def _row(row: AllocationRow) -> Document:
    one, when = row.allocation, row.held
    return {
        "id": str(one.slice_key.allocation_id),
        "cluster": one.slice_key.cluster,
        "namespace": one.namespace,
        "pod": one.pod,
        "pod_uid": one.slice_key.pod_uid,
        "container": one.slice_key.container,
        "container_kind": one.container_kind,
        "node": one.node,
        "device_uuid": one.slice_key.device_uuid,
        "model": one.model,
        "mem_mib": one.mem_mib,
        "core_percent": one.core_percent,
        "mig": one.mig,
        "tenant": row.tenants[-1],
        "tenants": list(dict.fromkeys(row.tenants)),
        "bound_at": at_text(one.bound_at_ms),
        "started_at": instant(one.started_at_ms),
        "ended_at": None if when.end == "open" else at_text(when.to_ms),
        "end": when.end,
        "end_reason": one.end_reason,
        "confirmed_at": at_text(one.confirmed_at_ms),
        "witnesses": list(row.witnesses),
    }
