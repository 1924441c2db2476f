"""The facts of some cards, read together: a query a table for all of them, so that reading a month streams.

Invariant: what is read of a card does not depend on which other cards are read with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from sqlalchemy import ColumnElement, String, and_, cast, exists, or_, select, tuple_
from sqlalchemy.orm import Session, aliased

from accounting.facts import kinds
from accounting.facts.kinds import FactKind
from accounting.ledger.intervals import Interval
from accounting.ledger.merge import Report
from accounting.store.models import (
    AllocationReport,
    DeviceEnergy,
    DeviceFact,
    DeviceHour,
    LedgerLine,
    NodeState,
    PresenceReport,
    RatingMark,
    UnallocatedFact,
    UsageFact,
)
from contract.facts import Fact, NodeStateFact, PresenceFact
from contract.ids import DeviceKey, NodeUid

_CARDS_PER_QUERY = 64
_IDS_PER_QUERY = 500
_WITNESSES = 2
"""Nobody else reports a slice."""

SomeFact = TypeVar("SomeFact", bound=Fact)

_REPORT_COLUMNS: tuple[ColumnElement[Any], ...] = (
    cast(AllocationReport.allocation_id, String),
    *(AllocationReport.__table__.columns[name] for name in Report._fields[1:-1]),
    AllocationReport.__table__.columns["labels"],
)
"""Of a `Report`, in its order; where ids are text already, they have no hyphens."""

OfDevice: TypeAlias = type[
    AllocationReport
    | PresenceReport
    | UsageFact
    | UnallocatedFact
    | DeviceFact
    | DeviceHour
    | DeviceEnergy
    | LedgerLine
    | RatingMark
]
"""Tables whose rows name a device."""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What was reported of one device, and of its node."""

    slices: dict[str, list[Report]] = field(default_factory=dict)
    """All reports of each slice that may be held within reach, by allocation id."""
    presence: list[PresenceFact] = field(default_factory=list)
    states: list[NodeStateFact] = field(default_factory=list)


def read_facts(session: Session, kind: FactKind[SomeFact], *where: ColumnElement[bool]) -> Iterator[SomeFact]:
    """Stored facts of a kind, as they were sent."""
    names = [name for name in kind.fact_type.__struct_fields__ if name != "schema"]
    make: Any = kind.fact_type
    rows = session.execute(select(*(kind.table.columns[name] for name in names)).where(*where))
    if "labels" not in names:
        yield from (make(**dict(zip(names, row, strict=True))) for row in rows)
        return
    for row in rows:
        fields = dict(zip(names, row, strict=True))
        fields["labels"] = _labels(fields["labels"])
        yield make(**fields)


def _labels(text: str) -> dict[str, str]:
    return {} if text == "{}" else msgspec.json.decode(text, type=dict[str, str])


def of_devices(table: OfDevice, keys: Sequence[DeviceKey]) -> ColumnElement[bool]:
    """Rows of these devices, all of one cluster."""
    (cluster,) = {key.cluster for key in keys}
    if len(keys) == 1:
        of_device = and_(table.node_uid == keys[0].node_uid, table.device_uuid == keys[0].device_uuid)
    else:
        pairs = [(key.node_uid, key.device_uuid) for key in keys]
        of_device = tuple_(table.node_uid, table.device_uuid).in_(pairs)
    return and_(table.cluster == cluster, of_device)


def groups_of(session: Session, keys: Iterable[DeviceKey]) -> list[list[DeviceKey]]:
    """Cards that one query asks for: of one cluster, and on SQLite one by one.

    There a list of pairs of values would be looked for in the whole table.
    """
    most = _CARDS_PER_QUERY if session.get_bind().dialect.name == "postgresql" else 1
    groups: list[list[DeviceKey]] = []
    for key in keys:
        if groups and len(groups[-1]) < most and groups[-1][0].cluster == key.cluster:
            groups[-1].append(key)
        else:
            groups.append([key])
    return groups


def held_in(window: Interval, grace_ms: int) -> tuple[ColumnElement[bool], ...]:
    """Reports of slices that may be held in a window."""
    one, other = AllocationReport, aliased(AllocationReport)
    # Until somebody saw it end, a slice is held from the first report to the last, also between the two.
    is_held_on = exists().where(
        other.cluster == one.cluster,
        other.allocation_id == one.allocation_id,
        other.witness != one.witness,
        _reaches(other, window[0], grace_ms),
    )
    has_no_end = or_(one.end_kind.is_(None), one.end_kind != "observed")
    return (
        one.bound_at_ms < window[1],
        or_(_reaches(one, window[0], grace_ms), and_(has_no_end, is_held_on)),
    )


def _reaches(report: type[AllocationReport], at_ms: int, grace_ms: int) -> ColumnElement[bool]:
    return or_(report.ended_at_ms > at_ms, report.confirmed_at_ms + grace_ms > at_ms)


def read_cards_facts(
    session: Session, keys: Sequence[DeviceKey], reach: Interval, *, grace_ms: int
) -> dict[DeviceKey, CardFacts]:
    """The reports that decide when cards were there and who held them within reach."""
    found = {key: CardFacts() for key in keys}
    for group in groups_of(session, keys):
        _read_slices(session, group, reach, grace_ms, found)
        for fact in read_facts(session, kinds.PRESENCE, of_devices(PresenceReport, group)):
            found[DeviceKey(fact.cluster, fact.node_uid, fact.device_uuid)].presence.append(fact)
        states = _states(session, group)
        for key in group:
            found[key].states.extend(states[key.node_uid])
    return found


def _read_slices(
    session: Session,
    group: Sequence[DeviceKey],
    reach: Interval,
    grace_ms: int,
    found: dict[DeviceKey, CardFacts],
) -> None:
    touched = of_devices(AllocationReport, group), *held_in(reach, grace_ms)
    cards = {(key.node_uid, key.device_uuid): found[key].slices for key in group}
    for report in _reports(session, *touched):
        slices = cards[report.node_uid, report.device_uuid]
        reports = slices.get(report.allocation_id)
        if reports is None:
            slices[report.allocation_id] = [report]
        else:
            reports.append(report)
    # What the other witness said of a slice may lie out of reach, or name another node.
    partly: dict[str, list[list[Report]]] = defaultdict(list)
    for card in group:
        for allocation_id, reports in found[card].slices.items():
            if len(reports) < _WITNESSES:
                partly[allocation_id].append(reports)
    for ids in _chunks(sorted(partly)):
        of_ids = AllocationReport.allocation_id.in_([UUID(allocation_id) for allocation_id in ids])
        for report in _reports(session, AllocationReport.cluster == group[0].cluster, of_ids):
            for known in partly[report.allocation_id]:
                if report not in known:
                    known.append(report)


def _reports(session: Session, *where: ColumnElement[bool]) -> Iterator[Report]:
    """Stored reports of slices; not by way of the ORM, which takes longer than reading and merging them."""
    connection = session.connection()
    rows = connection.execute(select(*_REPORT_COLUMNS).where(*where)).all()
    reports = map(Report._make, rows)
    if connection.dialect.name == "postgresql":
        return reports
    return (report._replace(allocation_id=str(UUID(report.allocation_id))) for report in reports)


def _states(session: Session, group: Sequence[DeviceKey]) -> dict[NodeUid, list[NodeStateFact]]:
    nodes = sorted({key.node_uid for key in group})
    states: dict[NodeUid, list[NodeStateFact]] = defaultdict(list)
    where = NodeState.cluster == group[0].cluster, NodeState.node_uid.in_(nodes)
    for fact in read_facts(session, kinds.NODE_STATE, *where):
        states[fact.node_uid].append(fact)
    return states


def _chunks(ids: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (ids[start : start + _IDS_PER_QUERY] for start in range(0, len(ids), _IDS_PER_QUERY))
