"""What was there, hour by hour: charged, idle, down. For operators: it speaks of whole cards.

Invariant: charged + idle + down = present, in every row, in every group and in the totals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, func, select, tuple_
from sqlalchemy.orm import Session

from accounting.ledger.calendar import at_text, local_date
from accounting.ledger.intervals import Interval
from accounting.periods.coverage import Coverage
from accounting.periods.rating_state import rated_as_of_ms
from accounting.reports.documents import Document, card_coverage_document, instant
from accounting.reports.grouping import Filters
from accounting.reports.paging import EVERYTHING, Asked, Key, Page, cursor_after, page_cut
from accounting.reports.usage import CardSums, card_sums_document
from accounting.store.models import DeviceEnergy, DeviceHour, RollupHour
from contract.units import PPM

_SUMS = ("present_ppm_ms", "charged_ppm_ms", "idle_ppm_ms", "down_ppm_ms", "confirmed_ms")
_ENERGY = (
    "energy_mj",
    "active_mj",
    "unallocated_mj",
    "unattributed_mj",
    "idle_mj",
    "idle_held_mj",
    "residual_mj",
)
_COLUMNS = {"device": "device_uuid", "day": "hour_ms"}
_KEY = (DeviceHour.cluster, DeviceHour.hour_ms, DeviceHour.node_uid, DeviceHour.device_uuid)
_ON_ROLLUP = frozenset({"cluster", "model", "day"})
_Source: TypeAlias = type[DeviceHour] | type[RollupHour]
_SPLIT = 1_000_000
"""Sums of a fleet's month do not fit into 64 bits: millions and the rest are added apart."""


@dataclass(frozen=True, slots=True)
class CapacityGroup:
    """The hours of some devices, added up."""

    keys: tuple[str, ...]
    hours: int
    sums: CardSums


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """The hours of every device that begin in a window."""

    window: Interval
    as_of_ms: int | None
    page: Page[DeviceHour]
    group_by: tuple[str, ...]
    groups: Sequence[CapacityGroup]
    """Where something was asked to be grouped by; then there are no rows."""
    sums: CardSums
    energy: Mapping[Key, DeviceEnergy]
    """Of the rows whose energy was reported."""
    energy_sums: Mapping[str, int] | None
    """None: not measured."""

    @property
    def rows(self) -> Sequence[DeviceHour]:
        """Of the page."""
        return self.page.rows


def report_capacity(
    session: Session,
    window: Interval,
    *,
    filters: Filters | None = None,
    group_by: Sequence[str] = (),
    time_zone: str = "UTC",
    asked: Asked = EVERYTHING,
) -> CapacityReport:
    """Read the closing identities of a window.

    Args:
        session: A reading transaction.
        window: Hours that begin in it count.
        filters: Only the cards that these let through.
        group_by: Some of `CAPACITY_KEYS`; empty: a row for each hour of each device.
        time_zone: Whose days.
        asked: Which page of the hours.
    """
    columns = (filters or Filters()).columns()
    where = _conditions(DeviceHour, window, columns)
    source = RollupHour if {*group_by, *columns} <= _ON_ROLLUP else DeviceHour
    page: Page[DeviceHour] = Page((), None)
    if not group_by:
        page = _page(session, where, asked)
    groups = _groups(session, source, _conditions(source, window, columns), group_by, time_zone)
    of_energy = [DeviceEnergy.hour_ms >= window[0], DeviceEnergy.hour_ms < window[1]]
    of_energy.append(_energy_of_cards(where, has_filters=bool(columns)))
    return CapacityReport(
        window=window,
        as_of_ms=rated_as_of_ms(session),
        page=page,
        group_by=tuple(group_by),
        groups=groups if group_by else (),
        sums=add_sums(group.sums for group in groups),
        energy=_energy(session, page.rows),
        energy_sums=_energy_sums(session, of_energy),
    )


def _conditions(source: _Source, window: Interval, columns: Mapping[str, str]) -> list[ColumnElement[bool]]:
    of_columns = [getattr(source, name) == value for name, value in columns.items()]
    return [source.hour_ms >= window[0], source.hour_ms < window[1], *of_columns]


def _page(session: Session, where: Sequence[ColumnElement[bool]], asked: Asked) -> Page[DeviceHour]:
    """One page, begun behind the last key of the one before, by the database."""
    query = select(DeviceHour).where(*where).order_by(*_KEY)
    after = cursor_after(asked, like=("", 0, "", ""))
    if after is not None:
        query = query.where(tuple_(*_KEY) > after)
    if asked.limit is not None:
        query = query.limit(asked.limit + 1)
    return page_cut(session.scalars(query).all(), _key, asked)


def _split_sum(column: Any) -> tuple[Any, Any]:
    return func.sum(column // _SPLIT), func.sum(column % _SPLIT)


def _whole(millions: Any, rest: Any) -> int:
    return int(millions or 0) * _SPLIT + int(rest or 0)


def _groups(
    session: Session,
    source: _Source,
    where: Sequence[ColumnElement[bool]],
    group_by: Sequence[str],
    time_zone: str,
) -> list[CapacityGroup]:
    columns = [getattr(source, _COLUMNS.get(key, key)) for key in group_by]
    sums = [part for name in _SUMS for part in _split_sum(getattr(source, name))]
    count: Any = func.sum(RollupHour.device_count) if source is RollupHour else func.count()
    query = select(*columns, count, *sums).where(*where).group_by(*columns)
    value_of: dict[str, Callable[[Any], str]] = {
        "day": lambda hour_ms: local_date(hour_ms, time_zone).isoformat()
    }
    found: dict[tuple[str, ...], CapacityGroup] = {}
    for row in session.execute(query):
        keys = tuple(value_of.get(key, str)(value) for key, value in zip(group_by, row, strict=False))
        hours, *parts = row[len(columns) :]
        if group_by and not hours:
            continue  # taken away, and not merged yet
        quantities = [_whole(*parts[at : at + 2]) for at in range(0, len(parts), 2)]
        one = CapacityGroup(keys, int(hours or 0), CardSums(*quantities))
        known = found.get(keys)
        found[keys] = (
            one
            if known is None
            else CapacityGroup(keys, known.hours + hours, add_sums([known.sums, one.sums]))
        )
    return [found[keys] for keys in sorted(found)]


def add_sums(parts: Any) -> CardSums:
    """Card time, added up in Python: a fleet's month does not fit into 64 bits."""
    all_parts = list(parts)
    return CardSums(*(sum(getattr(one, name) for one in all_parts) for name in _SUMS))


def _energy_of_cards(where: Sequence[ColumnElement[bool]], *, has_filters: bool) -> ColumnElement[bool]:
    """The energy of the hours that conditions on `DeviceHour` let through."""
    key = (DeviceEnergy.cluster, DeviceEnergy.hour_ms, DeviceEnergy.node_uid, DeviceEnergy.device_uuid)
    return tuple_(*key).in_(select(*_KEY).where(*where)) if has_filters else DeviceEnergy.hour_ms >= 0


def _energy_sums(session: Session, where: Sequence[ColumnElement[bool]]) -> dict[str, int] | None:
    sums = [part for name in _ENERGY for part in _split_sum(getattr(DeviceEnergy, name))]
    count, *parts = session.execute(select(func.count(), *sums).where(*where)).one()
    if not count:
        return None
    return {name: _whole(*parts[2 * at : 2 * at + 2]) for at, name in enumerate(_ENERGY)}


def _energy(session: Session, rows: Sequence[DeviceHour]) -> dict[Key, DeviceEnergy]:
    """The energy of some hours."""
    if not rows:
        return {}
    wanted = {_key(row) for row in rows}
    hours = [row.hour_ms for row in rows]
    query = select(DeviceEnergy).where(
        DeviceEnergy.cluster.in_({row.cluster for row in rows}),
        DeviceEnergy.hour_ms >= min(hours),
        DeviceEnergy.hour_ms <= max(hours),
    )
    return {_key(one): one for one in session.scalars(query) if _key(one) in wanted}


def _key(row: DeviceHour | DeviceEnergy) -> Key:
    return row.cluster, row.hour_ms, row.node_uid, row.device_uuid


def capacity_document(report: CapacityReport) -> Document:
    """The report as JSON: one page of rows or groups, totals over all of them."""
    sums = report.sums
    unexplained = sums.present_ppm_ms - sums.charged_ppm_ms - sums.idle_ppm_ms - sums.down_ppm_ms
    energy = None if report.energy_sums is None else dict(report.energy_sums)
    return {
        "from": at_text(report.window[0]),
        "to": at_text(report.window[1]),
        "as_of": instant(report.as_of_ms),
        "group_by": list(report.group_by),
        "rows": [_group_row(group, report.group_by) for group in report.groups]
        or [_hour_row(row, report) for row in report.rows],
        "next": report.page.next,
        "totals": card_sums_document(sums),
        "energy": energy,
        "reconciliation": {
            **card_sums_document(sums),
            "unexplained_ppm_ms": unexplained,
            "coverage": card_coverage_document(Coverage(sums.confirmed_ms, sums.present_ppm_ms // PPM)),
        },
    }


def _group_row(group: CapacityGroup, names: Sequence[str]) -> Document:
    return {
        **dict(zip(names, group.keys, strict=True)),
        "device_hours": group.hours,
        **card_sums_document(group.sums),
    }


def _hour_row(row: DeviceHour, report: CapacityReport) -> Document:
    energy = report.energy.get(_key(row))
    return {
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
        "energy": None if energy is None else {name: getattr(energy, name) for name in _ENERGY},
    }
