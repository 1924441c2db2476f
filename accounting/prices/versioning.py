"""How a versioned row is replaced: prices, policies, discounts, tenant rules, moves, budgets go through here.

Invariant: a version is never edited. Over the same validity a new one supersedes it, with a reason; an
open-ended version ends where a later one begins, by a successor that says the same up to there. Anything
else that would overlap is refused, here with a way out, and by the database.
Source: `reference/ledger.md §4` (supersession).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

from sqlalchemy import ColumnElement, exists, or_, select
from sqlalchemy.orm import Session

from accounting.access.audit import require_reason
from accounting.access.viewer import Viewer
from accounting.errors import ConflictError, InvalidError
from accounting.ledger.calendar import at_text
from accounting.store.models import (
    Budget,
    DeviceEnergy,
    DeviceHour,
    PolicyVersion,
    PriceVersion,
    RatingMark,
    TenantDiscount,
    TenantMove,
    TenantRule,
)
from accounting.store.versions import is_live
from contract.ids import DeviceKey
from contract.units import MS_PER_HOUR

_MS_PER_DAY = 24 * MS_PER_HOUR
_MARKED_BY_VERSION = 1
"""Any number above 0 says that the day must be rated again."""

_OF_THE_RECORDING = frozenset({"id", "valid_to_ms", "recorded_at_ms", "recorded_by", "supersedes_id"})
_OF_THE_END = frozenset({"superseded_at_ms", "reason"})

Versioned: TypeAlias = PriceVersion | PolicyVersion | TenantDiscount | TenantRule | TenantMove | Budget

Row = TypeVar("Row", PriceVersion, PolicyVersion, TenantDiscount, TenantRule, TenantMove, Budget)
RuleOrMove = TypeVar("RuleOrMove", TenantRule, TenantMove)


@dataclass(frozen=True, slots=True)
class Validity:
    """From when to when a version is to hold; `to_ms` None: until further notice."""

    from_ms: int
    to_ms: int | None

    def require(self, what: str) -> None:
        """Refuse an empty one.

        Raises:
            InvalidError: It ends before it begins.
        """
        if self.to_ms is not None and self.to_ms <= self.from_ms:
            raise InvalidError(f"{what} from {at_text(self.from_ms)} cannot end at {at_text(self.to_ms)}")

    def text(self) -> str:
        """As it reads in a message."""
        until = "" if self.to_ms is None else f" to {at_text(self.to_ms)}"
        return f"from {at_text(self.from_ms)}{until}"


@dataclass(frozen=True, slots=True)
class Room:
    """What was moved out of a new version's way."""

    supersedes_id: int | None
    """The version of the same validity, if there was one."""
    from_ms: int
    """From here on lines may name other versions than before."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Who records a version, when and why."""

    by: Viewer
    now_ms: int
    reason: str | None


def make_room(
    session: Session,
    table: type[Row],
    same: Sequence[ColumnElement[bool]],
    validity: Validity,
    recording: Recording,
    *,
    described: Callable[[Row], str],
) -> Room:
    """Supersede what stands in the way of a new version.

    Args:
        session: A writing transaction.
        table: The versions.
        same: What makes a version speak of the same thing.
        validity: Of the new one.
        recording: Of the new one; its reason must be given to supersede.
        described: A version in words, for messages.

    Raises:
        InvalidError: No reason to supersede, or one that nobody can read.
        ConflictError: Live versions of another validity are in the way.
    """
    if recording.reason is not None and recording.reason.strip():
        require_reason(recording.reason, "a version")
    found = session.scalars(
        select(table)
        .where(
            *same,
            is_live(table, None),
            or_(table.valid_to_ms.is_(None), table.valid_to_ms > validity.from_ms),
            *(() if validity.to_ms is None else (table.valid_from_ms < validity.to_ms,)),
        )
        .order_by(table.valid_from_ms)
    ).all()
    if not found:
        return Room(None, validity.from_ms)
    row = found[0]
    if len(found) == 1 and (row.valid_from_ms, row.valid_to_ms) == (validity.from_ms, validity.to_ms):
        if not (recording.reason or "").strip():
            raise InvalidError(f"{described(row)} already; to supersede it say why with --reason")
        _supersede(session, row, recording.now_ms)
        return Room(row.id, validity.from_ms)
    if len(found) == 1 and row.valid_to_ms is None and row.valid_from_ms < validity.from_ms:
        end_version(session, row, validity.from_ms, recording)
        return Room(None, row.valid_from_ms)
    raise ConflictError(
        f"{described(row)}; versions must not overlap: supersede it over the same validity, "
        "or begin where it ends"
    )


def _supersede(session: Session, row: Versioned, now_ms: int) -> None:
    row.superseded_at_ms = now_ms
    session.flush()


def end_version(session: Session, row: Row, at_ms: int, recording: Recording) -> Row:
    """The same once more, up to an instant."""
    reason = recording.reason or f"another begins at {at_text(at_ms)}"
    return _succeed(session, row, replace(recording, reason=reason), valid_to_ms=at_ms)


def withdraw_version(session: Session, row: RuleOrMove, recording: Recording) -> RuleOrMove:
    """The same once more, leading to nobody: what it said never counts again, and stays readable.

    Raises:
        InvalidError: No reason.
    """
    require_reason(recording.reason or "", "a withdrawal")
    return _succeed(session, row, recording, valid_to_ms=row.valid_to_ms, tenant_id=None)


def _succeed(
    session: Session, row: Row, recording: Recording, *, valid_to_ms: int | None, **other: int | None
) -> Row:
    kept = {
        column.key: getattr(row, column.key)
        for column in type(row).__mapper__.column_attrs
        if column.key not in _OF_THE_RECORDING | _OF_THE_END
    }
    _supersede(session, row, recording.now_ms)
    successor = type(row)(
        **(kept | other),
        valid_to_ms=valid_to_ms,
        recorded_at_ms=recording.now_ms,
        recorded_by=recording.by.name,
        supersedes_id=row.id,
        reason=recording.reason,
    )
    session.add(successor)
    session.flush()
    return successor


def mark_rated_days(
    session: Session,
    from_ms: int,
    to_ms: int | None,
    *,
    model: str | None = None,
    device: DeviceKey | None = None,
) -> None:
    """Make rated days of cards due again: all, or those of one GPU model.

    Args:
        session: A writing transaction.
        from_ms: From the day that holds this instant on.
        to_ms: Up to here; None: without end.
        model: Only cards that were this model then.
        device: Only this card.
    """
    of_hours, of_energy = ([table.hour_ms + MS_PER_HOUR > from_ms] for table in (DeviceHour, DeviceEnergy))
    if to_ms is not None:
        of_hours.append(DeviceHour.hour_ms < to_ms)
        of_energy.append(DeviceEnergy.hour_ms < to_ms)
    if model is not None:
        of_hours.append(DeviceHour.model == model)
    # Of a card that was not seen then, energy is all that is rated, and its model stands nowhere.
    of_energy.append(~_is_seen())
    of_marks = [RatingMark.day_ms + _MS_PER_DAY > from_ms]
    if device is not None:
        for table, conditions in ((DeviceHour, of_hours), (DeviceEnergy, of_energy), (RatingMark, of_marks)):
            conditions += [
                table.cluster == device.cluster,
                table.node_uid == device.node_uid,
                table.device_uuid == device.device_uuid,
            ]
    touched = _days_of(session, DeviceHour, of_hours) | _days_of(session, DeviceEnergy, of_energy)
    marks = session.scalars(select(RatingMark).where(*of_marks))
    for mark in marks:
        key = (mark.cluster, mark.node_uid, mark.device_uuid, mark.day_ms)
        if key in touched:
            touched.remove(key)
            mark.ingest_seq = max(mark.ingest_seq, _MARKED_BY_VERSION)
    session.add_all(
        RatingMark(
            cluster=cluster,
            node_uid=node_uid,
            device_uuid=device_uuid,
            day_ms=at_ms,
            ingest_seq=_MARKED_BY_VERSION,
        )
        for cluster, node_uid, device_uuid, at_ms in sorted(touched)
    )
    session.flush()


def _days_of(
    session: Session, table: type[DeviceHour | DeviceEnergy], where: Sequence[ColumnElement[bool]]
) -> set[tuple[str, str, str, int]]:
    day_ms = (table.hour_ms - table.hour_ms % _MS_PER_DAY).label("day_ms")
    days = select(table.cluster, table.node_uid, table.device_uuid, day_ms).where(*where).distinct()
    return {(cluster, node, device, at_ms) for cluster, node, device, at_ms in session.execute(days)}


def _is_seen() -> ColumnElement[bool]:
    """Whether a card was seen in an hour of its energy."""
    hour, energy = DeviceHour, DeviceEnergy
    return exists().where(
        hour.cluster == energy.cluster,
        hour.node_uid == energy.node_uid,
        hour.device_uuid == energy.device_uuid,
        hour.hour_ms == energy.hour_ms,
    )
