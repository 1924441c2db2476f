"""Marks on the UTC days of devices that must be rated again.

Invariant: a mark carries the number of the request that touched the day last, so that a rating which read
facts up to number n deletes marks up to n and leaves those that came meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import func, select, union
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.orm import Session

from accounting.facts.touching import Window
from accounting.store.models import AllocationReport, PresenceReport, RatingMark


def mark(session: Session, cluster: str, windows: Sequence[Window], *, now_ms: int, ingest_seq: int) -> None:
    """Mark every day of every device that the windows touch."""
    node_uids = {window.node_uid for window in windows if window.device_uuid is None}
    devices = {node_uid: _devices(session, cluster, node_uid) for node_uid in node_uids}
    touched: set[tuple[str, str, int]] = set()
    for given in windows:
        window = _reaching_back(session, cluster, given) if given.sizes_what_is_held else given
        uuids = devices[window.node_uid] if window.device_uuid is None else (window.device_uuid,)
        for device_uuid in uuids:
            touched.update((window.node_uid, device_uuid, day_ms) for day_ms in window.days(now_ms=now_ms))
    if not touched:
        return
    statement = insert(RatingMark)
    statement = statement.on_conflict_do_update(
        index_elements=[column.name for column in RatingMark.__table__.primary_key],
        set_={"ingest_seq": statement.excluded.ingest_seq},
    )
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
    session.execute(statement, rows)


def _devices(session: Session, cluster: str, node_uid: str) -> Sequence[str]:
    """The devices of a node that are known so far; one that appears later marks its own time."""
    reported = [
        select(table.device_uuid).where(table.cluster == cluster, table.node_uid == node_uid)
        for table in (PresenceReport, AllocationReport)
    ]
    return session.scalars(union(*reported)).all()


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
