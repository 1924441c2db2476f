"""How good the facts are: who was heard, whose clock is off, where presence was bridged, what was refused.

Everything here is the operator's own: names of clusters and nodes, and facts that reached no tenant.
Invariant: what is listed was seen; a node whose exporter never reported is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from accounting.errors import InvalidError
from accounting.reports.documents import Document, instant
from accounting.store.models import DeviceHour, ExporterSource, Quarantine
from contract.units import MS_PER_HOUR, MS_PER_SECOND, PPM

MAX_DAYS = 400
_MS_PER_DAY = 24 * MS_PER_HOUR

WARN_OFFSET_MS = 2_000
FLAG_OFFSET_MS = 30_000
"""`reference/ledger.md §5`; a request that is more than 5 minutes off is refused."""


def quality_document(session: Session, *, now_ms: int, days: int = 7) -> Document:
    """Sources, coverage and gaps of the last days, and what lies in quarantine.

    Args:
        session: A transaction that sees everything.
        now_ms: The clock.
        days: How far back coverage and gaps are looked for.

    Raises:
        InvalidError: `days` is not from 1 to 400.
    """
    if not 1 <= days <= MAX_DAYS:
        raise InvalidError(f"{days} days: from 1 to {MAX_DAYS}")
    from_ms = now_ms - days * _MS_PER_DAY
    return {
        "as_of": instant(now_ms),
        "from": instant(from_ms - from_ms % MS_PER_HOUR),
        "sources": list(_sources(session, now_ms)),
        "coverage": list(_coverage(session, from_ms)),
        "gaps": list(_gaps(session, from_ms)),
        "quarantine": list(_quarantine(session)),
    }


def clock_of(offset_ms: int) -> str:
    """What an exporter's clock is, by how far it is from ours: `good`, `off`, or `far_off`."""
    if abs(offset_ms) > FLAG_OFFSET_MS:
        return "far_off"
    return "off" if abs(offset_ms) > WARN_OFFSET_MS else "good"


def coverage_since(session: Session, from_ms: int) -> dict[str, Decimal]:
    """The confirmed share of present device time of each cluster that had any, from a rated hour on."""
    return {
        str(row["cluster"]): Decimal(str(row["coverage"]))
        for row in _coverage(session, from_ms)
        if row["coverage"] is not None
    }


def _sources(session: Session, now_ms: int) -> Iterator[Document]:
    """The newest run of each exporter."""
    exporter = ExporterSource.cluster, ExporterSource.role, ExporterSource.node_uid
    newest_first = ExporterSource.last_seen_ms.desc(), ExporterSource.epoch.desc()
    ranked = select(
        ExporterSource,
        func.row_number().over(partition_by=exporter, order_by=newest_first).label("rank"),
        func.count().over(partition_by=exporter).label("runs"),
    ).subquery()
    seen = ranked.c
    query = select(ranked).where(seen.rank == 1).order_by(seen.cluster, seen.role, seen.node, seen.node_uid)
    for row in session.execute(query):
        yield {
            "cluster": row.cluster,
            "role": row.role,
            "node": row.node or None,
            "node_uid": row.node_uid or None,
            "version": row.version,
            "last_seen": instant(row.last_seen_ms),
            "silent_seconds": max(now_ms - row.last_seen_ms, 0) // MS_PER_SECOND,
            "clock_offset_ms": row.clock_offset_ms,
            "clock": clock_of(row.clock_offset_ms),
            "facts_sent": row.facts_sent,
            "facts_stored": row.facts_stored,
            "runs": row.runs,
            "contested_at": instant(row.contested_ms),
        }


_PRESENT_MS = func.sum(DeviceHour.present_ppm_ms // PPM)
_CONFIRMED_MS = func.sum(DeviceHour.confirmed_ms)


def _coverage(session: Session, from_ms: int) -> Iterator[Document]:
    query = (
        select(DeviceHour.cluster, _PRESENT_MS, _CONFIRMED_MS)
        .where(DeviceHour.hour_ms >= from_ms - from_ms % MS_PER_HOUR)
        .group_by(DeviceHour.cluster)
        .order_by(DeviceHour.cluster)
    )
    for cluster, present_ms, confirmed_ms in session.execute(query):
        ratio = Decimal(int(confirmed_ms)) / int(present_ms) if present_ms else None
        yield {
            "cluster": cluster,
            "present_ms": int(present_ms),
            "confirmed_ms": int(confirmed_ms),
            "coverage": None if ratio is None else str(ratio.quantize(Decimal("0.000001"))),
        }


def _gaps(session: Session, from_ms: int) -> Iterator[Document]:
    """Cards whose presence nobody confirmed for a while, by node."""
    missing_ms = DeviceHour.present_ppm_ms // PPM - DeviceHour.confirmed_ms
    has_gap = missing_ms > 0
    node = DeviceHour.cluster, DeviceHour.node_uid, DeviceHour.node
    query = (
        select(
            *node,
            func.count(func.distinct(DeviceHour.device_uuid)).label("devices"),
            func.min(DeviceHour.hour_ms).label("first_ms"),
            func.max(DeviceHour.hour_ms).label("last_ms"),
            func.sum(case((has_gap, missing_ms), else_=0)).label("missing_ms"),
        )
        .where(DeviceHour.hour_ms >= from_ms - from_ms % MS_PER_HOUR, has_gap)
        .group_by(*node)
        .order_by(*node)
    )
    for row in session.execute(query):
        yield {
            "cluster": row.cluster,
            "node": row.node,
            "node_uid": row.node_uid,
            "devices": row.devices,
            "from": instant(row.first_ms),
            "to": instant(row.last_ms + MS_PER_HOUR),
            "unconfirmed_ms": int(row.missing_ms),
        }


def _quarantine(session: Session) -> Iterator[Document]:
    kind = Quarantine.cluster, Quarantine.reason
    query = select(*kind, func.count().label("facts"), func.max(Quarantine.at_ms).label("newest_ms"))
    for row in session.execute(query.group_by(*kind).order_by(*kind)):
        yield {
            "cluster": row.cluster,
            "reason": row.reason,
            "facts": row.facts,
            "newest": instant(row.newest_ms),
        }
