"""Marks on the UTC days of devices that must be rated again.

Invariant: a mark carries the number of the request that touched the day last, so that a rating which read
facts up to number n deletes marks up to n and leaves those that came meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from sqlalchemy import func, select, union
from sqlalchemy.orm import Session

from accounting.facts.touching import Window
from accounting.store.bulk import write_rows
from accounting.store.models import AllocationReport, PresenceReport, RatingMark

_IDS_PER_QUERY = 500


def mark(session: Session, cluster: str, windows: Sequence[Window], *, now_ms: int, ingest_seq: int) -> None:
    """Mark every day of every device that the windows touch."""
    node_uids = {window.node_uid for window in windows if window.device_uuid is None}
    devices = {node_uid: _devices(session, cluster, node_uid) for node_uid in node_uids}
    touched: set[tuple[str, str, int]] = set()
    # Ten slices of a card have the same hour to say.
    for window in _widened(session, cluster, list(dict.fromkeys(windows))):
        uuids = devices[window.node_uid] if window.device_uuid is None else (window.device_uuid,)
        for device_uuid in uuids:
            touched.update((window.node_uid, device_uuid, day_ms) for day_ms in window.days(now_ms=now_ms))
    if not touched:
        return
    rows = [
        {
            "cluster": cluster,
            "node_uid": node_uid,
            "device_uuid": device_uuid,
            "day_ms": day_ms,
            "ingest_seq": ingest_seq,
        }
        for node_uid, device_uuid, day_ms in sorted(touched)
    ]
    write_rows(session, RatingMark, rows)


def _devices(session: Session, cluster: str, node_uid: str) -> Sequence[str]:
    """The devices of a node that are known so far; one that appears later marks its own time."""
    reported = [
        select(table.device_uuid).where(table.cluster == cluster, table.node_uid == node_uid)
        for table in (PresenceReport, AllocationReport)
    ]
    return session.scalars(union(*reported)).all()


def _widened(session: Session, cluster: str, windows: Sequence[Window]) -> Iterator[Window]:
    """The windows, as far as what else is known makes them reach."""
    ids = {window.allocation_id for window in windows if window.reach in {"slice", "slice_end"}}
    reports = _reports(session, cluster, [one for one in ids if one is not None])
    for window in windows:
        if window.reach == "itself":
            yield window
        elif window.reach == "card":
            yield _reaching_back(session, cluster, window)
        elif window.allocation_id is not None:
            yield from _over_the_slice(window, reports[window.allocation_id])


@dataclass(frozen=True, slots=True)
class _Report:
    """Where and when one witness says that a slice was held."""

    node_uid: str
    from_ms: int
    to_ms: int


def _reports(session: Session, cluster: str, ids: Sequence[UUID]) -> dict[UUID, list[_Report]]:
    table = AllocationReport
    columns = (
        table.allocation_id,
        table.node_uid,
        table.bound_at_ms,
        table.confirmed_at_ms,
        table.ended_at_ms,
    )
    found: dict[UUID, list[_Report]] = {one: [] for one in ids}
    for start in range(0, len(ids), _IDS_PER_QUERY):
        chunk = ids[start : start + _IDS_PER_QUERY]
        query = select(*columns).where(table.cluster == cluster, table.allocation_id.in_(chunk))
        for one, node_uid, bound_ms, confirmed_ms, ended_ms in session.execute(query):
            found[one].append(_Report(node_uid, bound_ms, max(confirmed_ms, ended_ms or 0)))
    return found


def _over_the_slice(window: Window, reports: Sequence[_Report]) -> Iterator[Window]:
    """Up to the latest that any witness says; over everything and on every node for a new size or name."""
    to_ms = max(window.to_ms, *(report.to_ms for report in reports))
    if window.reach == "slice_end":
        yield replace(window, to_ms=to_ms)
        return
    from_ms = min(window.from_ms, *(report.from_ms for report in reports))
    for node_uid in sorted({window.node_uid, *(report.node_uid for report in reports)}):
        yield replace(window, node_uid=node_uid, from_ms=from_ms, to_ms=to_ms)


def _reaching_back(session: Session, cluster: str, window: Window) -> Window:
    """Back to the first hold on the device, or report of it, if no earlier one says how large it is."""
    here = (PresenceReport.cluster == cluster, PresenceReport.node_uid == window.node_uid)
    earlier = session.scalar(
        select(PresenceReport.from_ms)
        .where(
            *here,
            PresenceReport.device_uuid == window.device_uuid,
            PresenceReport.from_ms < window.from_ms,
            PresenceReport.registered_mib > 0,
        )
        .limit(1)
    )
    if earlier is not None:
        return window
    first_bind_ms = session.scalar(
        select(func.min(AllocationReport.bound_at_ms)).where(
            AllocationReport.cluster == cluster,
            AllocationReport.node_uid == window.node_uid,
            AllocationReport.device_uuid == window.device_uuid,
        )
    )
    first_report_ms = session.scalar(
        select(func.min(PresenceReport.from_ms)).where(
            *here, PresenceReport.device_uuid == window.device_uuid
        )
    )
    starts = (at_ms for at_ms in (first_bind_ms, first_report_ms) if at_ms is not None)
    return replace(window, from_ms=min(window.from_ms, *starts))
