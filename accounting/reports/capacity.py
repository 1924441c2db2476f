"""What was there, hour by hour: charged, idle, down. For operators: it speaks of whole cards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.ledger.calendar import at_text
from accounting.ledger.intervals import Interval
from accounting.periods.statement import Coverage, rated_as_of_ms
from accounting.reports.documents import Document, card_coverage_document, instant
from accounting.reports.paging import EVERYTHING, Asked, Key, page_of
from accounting.reports.usage import CardSums, card_sums_document
from accounting.store.models import DeviceEnergy, DeviceHour
from contract.units import PPM


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """The hours of every device that begin in a window."""

    window: Interval
    as_of_ms: int | None
    rows: Sequence[DeviceHour]
    sums: CardSums
    energy: Mapping[Key, DeviceEnergy]
    """Of the hours whose energy was reported."""


def report_capacity(session: Session, window: Interval, *, cluster: str | None = None) -> CapacityReport:
    """Read the closing identities of a window."""
    where = [DeviceHour.hour_ms >= window[0], DeviceHour.hour_ms < window[1]]
    if cluster is not None:
        where.append(DeviceHour.cluster == cluster)
    order = (DeviceHour.cluster, DeviceHour.hour_ms, DeviceHour.node_uid, DeviceHour.device_uuid)
    rows = session.scalars(select(DeviceHour).where(*where).order_by(*order)).all()
    of_energy = [DeviceEnergy.hour_ms >= window[0], DeviceEnergy.hour_ms < window[1]]
    if cluster is not None:
        of_energy.append(DeviceEnergy.cluster == cluster)
    energy = {_key(row): row for row in session.scalars(select(DeviceEnergy).where(*of_energy))}
    return CapacityReport(window, rated_as_of_ms(session), rows, sums_of_hours(rows), energy)


def sums_of_hours(rows: Sequence[DeviceHour]) -> CardSums:
    """Added up in Python: a fleet's month does not fit into 64 bits."""
    return CardSums(
        present_ppm_ms=sum(row.present_ppm_ms for row in rows),
        charged_ppm_ms=sum(row.charged_ppm_ms for row in rows),
        idle_ppm_ms=sum(row.idle_ppm_ms for row in rows),
        down_ppm_ms=sum(row.down_ppm_ms for row in rows),
        confirmed_ms=sum(row.confirmed_ms for row in rows),
    )


_ENERGY = (
    "energy_mj",
    "active_mj",
    "unallocated_mj",
    "unattributed_mj",
    "idle_mj",
    "idle_held_mj",
    "residual_mj",
)


def _energy_sums(energy: Iterable[DeviceEnergy]) -> Document | None:
    """Where energy went; null: not measured. What no report explains is the residual, of either sign."""
    rows = list(energy)
    return {name: sum(getattr(row, name) for row in rows) for name in _ENERGY} if rows else None


def _key(row: DeviceHour | DeviceEnergy) -> Key:
    return row.cluster, row.hour_ms, row.node_uid, row.device_uuid


def capacity_document(report: CapacityReport, asked: Asked = EVERYTHING) -> Document:
    """The report as JSON: one page of rows, totals over all of them."""
    sums = report.sums
    page = page_of(report.rows, _key, asked)
    unexplained = sums.present_ppm_ms - sums.charged_ppm_ms - sums.idle_ppm_ms - sums.down_ppm_ms
    return {
        "from": at_text(report.window[0]),
        "to": at_text(report.window[1]),
        "as_of": instant(report.as_of_ms),
        "rows": [
            {
                "cluster": row.cluster,
                "hour": at_text(row.hour_ms),
                "node": row.node,
                "node_uid": row.node_uid,
                "device_uuid": row.device_uuid,
                "model": row.model,
                "present_ppm_ms": row.present_ppm_ms,
                "charged_ppm_ms": row.charged_ppm_ms,
                "idle_ppm_ms": row.idle_ppm_ms,
                "down_ppm_ms": row.down_ppm_ms,
                "confirmed_ms": row.confirmed_ms,
                "energy": _energy_sums([report.energy[_key(row)]] if _key(row) in report.energy else ()),
            }
            for row in page.rows
        ],
        "next": page.next,
        "totals": card_sums_document(sums),
        "energy": _energy_sums(report.energy.values()),
        "reconciliation": {
            **card_sums_document(sums),
            "unexplained_ppm_ms": unexplained,
            "coverage": card_coverage_document(Coverage(sums.confirmed_ms, sums.present_ppm_ms // PPM)),
        },
    }
