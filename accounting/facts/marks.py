"""Marks on the UTC days of devices that must be rated again.

Invariant: a mark carries the number of the request that touched the day last, so that a rating which read
facts up to number n deletes marks up to n and leaves those that came meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from sqlalchemy import case, func, select, union
from sqlalchemy.orm import Session

from accounting.errors import InvalidError
from accounting.facts.touching import Window
from accounting.store.bulk import write_rows
from accounting.store.models import (
    AllocationReport,
    DeviceFact,
    PresenceReport,
    RatingMark,
    UnallocatedFact,
    UsageFact,
)

MAX_DAYS = 50_000
"""Days of cards that the facts of one batch may touch; 5,000 cards 400 days back would be 2 million."""

_IDS_PER_QUERY = 500


class TooManyDaysError(InvalidError):
    """The facts of a batch touch more days than one transaction should mark; half of them touch fewer."""


def mark(
    session: Session,
    cluster: str,
    windows: Sequence[Window],
    *,
    now_ms: int,
    ingest_seq: int,
    max_days: int | None = MAX_DAYS,
) -> None:
    """Mark every day of every device that the windows touch.

    Raises:
        TooManyDaysError: They are more than `max_days`.
    """
    node_uids = {window.node_uid for window in windows if window.device_uuid is None}
    devices = {node_uid: _devices(session, cluster, node_uid) for node_uid in node_uids}
    touched: set[tuple[str, str, int]] = set()
    for window in _widened(session, cluster, list(dict.fromkeys(windows))):
        uuids = devices[window.node_uid] if window.device_uuid is None else (window.device_uuid,)
        for device_uuid in uuids:
            touched.update((window.node_uid, device_uuid, day_ms) for day_ms in window.days(now_ms=now_ms))
            if max_days is not None and len(touched) > max_days:
                raise TooManyDaysError(
                    f"the facts touch more than {max_days} days of cards; send half of them"
                )
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
    cards = {(window.node_uid, window.device_uuid) for window in windows if window.reach == "card"}
    firsts = _firsts(session, cluster, sorted((node, device) for node, device in cards if device is not None))
    for window in windows:
        if window.reach == "itself":
            yield window
        elif window.reach == "card":
            yield _reaching_back(session, cluster, window, firsts)
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


@dataclass(slots=True)
class _First:
    """The first that is known of a card."""

    bound_ms: int | None = None
    reported_ms: int | None = None
    sized_ms: int | None = None
    """When a report first said how large it is."""


def _firsts(
    session: Session, cluster: str, cards: Sequence[tuple[str, str]]
) -> Mapping[tuple[str, str], _First]:
    firsts = {card: _First() for card in cards}
    sized = case((PresenceReport.registered_mib > 0, PresenceReport.from_ms))
    reported = func.min(PresenceReport.from_ms), func.min(sized)
    for start in range(0, len(cards), _IDS_PER_QUERY):
        nodes, devices = zip(*cards[start : start + _IDS_PER_QUERY], strict=True)
        for table, wanted in (
            (PresenceReport, reported),
            (AllocationReport, (func.min(AllocationReport.bound_at_ms),)),
        ):
            here = table.node_uid, table.device_uuid
            query = (
                select(*here, *wanted)
                .where(table.cluster == cluster, here[0].in_(set(nodes)), here[1].in_(set(devices)))
                .group_by(*here)
            )
            for node_uid, device_uuid, *found in session.execute(query):
                first = firsts.get((node_uid, device_uuid))
                if first is None:
                    continue
                if table is PresenceReport:
                    first.reported_ms, first.sized_ms = found
                else:
                    (first.bound_ms,) = found
    return firsts


def _reaching_back(
    session: Session, cluster: str, window: Window, firsts: Mapping[tuple[str, str], _First]
) -> Window:
    """Back to all that was told of the device before, if no earlier report says how large it is."""
    assert window.device_uuid is not None
    first = firsts[window.node_uid, window.device_uuid]
    if first.sized_ms is not None and first.sized_ms < window.from_ms:
        return window
    metered = _first_metered(session, cluster, window.node_uid, window.device_uuid)
    starts = (at_ms for at_ms in (first.bound_ms, first.reported_ms, *metered) if at_ms is not None)
    return replace(window, from_ms=min(window.from_ms, *starts))


def _first_metered(session: Session, cluster: str, node_uid: str, device_uuid: str) -> Iterator[int | None]:
    """The first hours of which use or energy is known."""
    for table in (DeviceFact, UnallocatedFact, UsageFact):
        yield session.scalar(
            select(table.hour_ms)
            .where(table.cluster == cluster, table.device_uuid == device_uuid, table.node_uid == node_uid)
            .order_by(table.hour_ms)
            .limit(1)
        )
