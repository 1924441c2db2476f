"""The lines of an account's month one after the other, for whatever is too long to hold.

Invariant: the order depends on the lines' own values alone, compared as bytes, so that it is the same on
either database; memory holds one batch of lines, and of a closed month what was measured of one tenant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

from sqlalchemy import ColumnElement, Row, func, select, true
from sqlalchemy.orm import Session

from accounting.access.viewer import Viewer, is_at_or_below
from accounting.ledger.calendar import Month, month_bounds_ms, month_of
from accounting.periods.coverage import Coverage
from accounting.periods.hashing import STATEMENT
from accounting.periods.months import CLOSED, find_period
from accounting.periods.rating_state import rated_as_of_ms
from accounting.periods.sealed import Sealed, read_sealed
from accounting.periods.statement import NEVER_RATED, asked_of
from accounting.periods.use import SliceUses, Use, measured_windows
from accounting.progress import Progress, unseen
from accounting.store.models import (
    BillingAccount,
    BillingPeriod,
    DeviceHour,
    IssuedStatement,
    LedgerLine,
    Tenant,
)
from accounting.store.walls import CARDS, EVERYTHING, seeing
from accounting.tenants.tree import account_root
from contract.units import PPM

_ROWS_AT_A_TIME = 2_000

Device: TypeAlias = tuple[str, str, str]
"""Cluster, node UID and device UUID."""

_Row: TypeAlias = Row[LedgerLine, str, str]
"""A line with the path and the code of its tenant."""


@dataclass(frozen=True, slots=True)
class Document:
    """A numbered statement of a closed month, and the credit note that voids it, if one does."""

    number: str
    issued_at_ms: int
    note: str | None = None
    note_issued_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """What is streamed: a tenant with all below it, or a whole account, in one month."""

    account: str
    issuer: str
    currency: str | None
    time_zone: str
    period: str
    starts_at_ms: int
    ends_at_ms: int
    state: str
    as_of_ms: int | None
    """The instant up to which its lines were rated; None: never."""
    closed_at_ms: int | None
    root: str
    """The path of the tenant, or the one above all tenants of the account."""
    root_name: str
    documents: Sequence[Document]
    """Of a closed month, first to last."""
    period_id: int | None
    """None: nothing was ever rated."""
    sealed_total: Decimal | None
    """What the statement of a whole, closed account says."""
    is_whole: bool
    """All tenants of the account, also those that do not lie below its root."""

    @property
    def is_closed(self) -> bool:
        """Whether its lines are sealed."""
        return self.state == CLOSED


@dataclass(frozen=True, slots=True)
class Streamed:
    """One line, whose it is, and what stands beside it."""

    line: LedgerLine
    tenant: str
    tenant_name: str
    corrects_period: str | None
    use: Use | None = None
    """None: not measured, or not asked for."""


def open_frame(
    session: Session, viewer: Viewer, month: Month, tenant_name: str | None, account_code: str | None
) -> Frame:
    """Find what a viewer asks for.

    Raises:
        NotFoundError: No such tenant or account, or none that the viewer may see.
        InvalidError: Several tenants have the code, or neither a tenant nor an account was named.
    """
    tenant, account = asked_of(session, viewer, tenant_name, account_code)
    starts_at_ms, ends_at_ms = month_bounds_ms(month, account.time_zone)
    period = find_period(session, account, month)
    documents = _documents(session, period)
    sealed = None if period is None else read_sealed(session, period)
    is_closed = period is not None and period.state == CLOSED
    return Frame(
        account=account.code,
        issuer=documents[-1][0] if documents else account.issuer,
        currency=account.currency,
        time_zone=account.time_zone,
        period=str(month),
        starts_at_ms=starts_at_ms,
        ends_at_ms=ends_at_ms,
        state=NEVER_RATED if period is None else period.state,
        as_of_ms=period.as_of_ms if period is not None and is_closed else rated_as_of_ms(session),
        closed_at_ms=None if period is None else period.closed_at_ms,
        root=account_root(account.code) if tenant is None else tenant.path,
        root_name=account.code if tenant is None else tenant.code,
        documents=[document for _, document in documents],
        period_id=None if period is None else period.id,
        sealed_total=sealed.document.total if sealed is not None and tenant is None else None,
        is_whole=tenant is None,
    )


def _documents(session: Session, period: BillingPeriod | None) -> list[tuple[str, Document]]:
    """The statements of a closed period, with their issuers."""
    if period is None or period.state != CLOSED:
        return []
    # Statements are the account's; a tenant is told their numbers and never their totals.
    with seeing(session, EVERYTHING):
        rows = session.scalars(
            select(IssuedStatement)
            .where(IssuedStatement.period_id == period.id)
            .order_by(IssuedStatement.revision, IssuedStatement.id)
        ).all()
    notes = {row.corrects_id: row for row in rows if row.corrects_id is not None}
    found = []
    for row in rows:
        if row.kind == STATEMENT:
            note = notes.get(row.id)
            document = Document(
                _number(row),
                row.issued_at_ms,
                None if note is None else _number(note),
                None if note is None else note.issued_at_ms,
            )
            found.append((row.issuer, document))
    return found


def _number(row: IssuedStatement) -> str:
    return f"{row.issuer}-{row.number:06d}"


def stream_lines(
    session: Session, frame: Frame, *, with_use: bool = False, progress: Progress = unseen
) -> Iterator[Streamed]:
    """The lines of a frame, by tenant, container, resource and time.

    Args:
        session: One reading transaction, for as long as lines are taken.
        frame: Of this transaction.
        with_use: Whether what was measured stands beside the lines of slices.
        progress: Who wants to know how far it is.
    """
    if frame.period_id is None:
        return
    where = LedgerLine.period_id == frame.period_id, _of_root(frame)
    of_tenants = LedgerLine.tenant_id == Tenant.id
    total = session.scalar(
        select(func.count()).select_from(LedgerLine).join(Tenant, of_tenants).where(*where)
    )
    months = _months(session, frame)
    uses = _Uses(session, frame) if with_use else None
    done = 0
    for rows in _batches(session, where):
        measured = {} if uses is None else uses.beside(rows)
        for line, path, name in rows:
            month = None if line.corrects_period_id is None else months[line.corrects_period_id]
            yield Streamed(line, path, name, month, measured.get(line.id))
        done += len(rows)
        progress("exporting lines", done, total or 0)


def _of_root(frame: Frame) -> ColumnElement[bool]:
    return true() if frame.is_whole else is_at_or_below(frame.root)


def _batches(session: Session, where: Sequence[ColumnElement[bool]]) -> Iterator[Sequence[_Row]]:
    """Lines in batches that divide no resource of a tenant."""
    collation = "C" if session.get_bind().dialect.name == "postgresql" else "BINARY"
    texts = (Tenant.path, LedgerLine.namespace, LedgerLine.pod, LedgerLine.container, LedgerLine.resource_key)
    statement = (
        select(LedgerLine, Tenant.path, Tenant.code)
        .join(Tenant, Tenant.id == LedgerLine.tenant_id)
        .where(*where)
        .order_by(
            *(text.collate(collation) for text in texts),
            LedgerLine.day_ms,
            LedgerLine.charge_from_ms,
            LedgerLine.kind.collate(collation),
            LedgerLine.sku.collate(collation),
            LedgerLine.revision,
        )
        .execution_options(yield_per=_ROWS_AT_A_TIME)
    )
    batch: list[_Row] = []
    for row in session.execute(statement):
        if len(batch) >= _ROWS_AT_A_TIME and _resource(row) != _resource(batch[-1]):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _resource(row: _Row) -> tuple[str, str]:
    return row[1], row[0].resource_key


def _months(session: Session, frame: Frame) -> dict[int, str]:
    """By id: the periods that lines of this one correct."""
    corrected = (
        select(LedgerLine.corrects_period_id)
        .where(LedgerLine.period_id == frame.period_id, LedgerLine.corrects_period_id.is_not(None))
        .distinct()
    )
    rows = session.execute(
        select(BillingPeriod.id, BillingPeriod.starts_at_ms, BillingAccount.time_zone)
        .join(BillingAccount, BillingAccount.code == BillingPeriod.account)
        .where(BillingPeriod.id.in_(corrected))
    )
    return {period_id: str(month_of(starts_at_ms, zone)) for period_id, starts_at_ms, zone in rows}


class _Uses:
    """What was measured beside lines: sealed, or of the facts as they are now."""

    def __init__(self, session: Session, frame: Frame) -> None:
        self._session = session
        self._frame = frame
        self._sealed = self._read_sealed()
        self._of_tenant: tuple[int, dict[int, Use]] = (0, {})

    def _read_sealed(self) -> Sealed | None:
        period = self._session.get_one(BillingPeriod, self._frame.period_id)
        return read_sealed(self._session, period)

    def beside(self, rows: Sequence[_Row]) -> dict[int, Use]:
        """By line."""
        if self._sealed is not None:
            found = ((row[0].id, self._kept(row[0].tenant_id).get(row[0].id)) for row in rows)
            return {line_id: use for line_id, use in found if use is not None}
        of_slices = [row[0] for row in rows if row[0].kind == "usage"]
        window = (self._frame.starts_at_ms, self._frame.ends_at_ms)
        slices = {(line.cluster, UUID(line.resource_key)) for line in of_slices}
        with seeing(self._session, CARDS):
            measured = SliceUses(self._session, slices, window)
        windows = measured_windows(of_slices, self._frame.time_zone)
        asked = ((line.id, measured.of(UUID(line.resource_key), windows[line.id])) for line in of_slices)
        return {line_id: use for line_id, use in asked if use is not None}

    def _kept(self, tenant_id: int) -> dict[int, Use]:
        assert self._sealed is not None
        if self._of_tenant[0] != tenant_id:
            self._of_tenant = tenant_id, self._sealed.uses(self._session, {tenant_id})
        return self._of_tenant[1]


def coverage_of_devices(session: Session, frame: Frame) -> dict[Device, Coverage]:
    """How much of each card's presence in the month was confirmed; sealed, or as it is now."""
    if frame.period_id is None:
        return {}
    sealed = read_sealed(session, session.get_one(BillingPeriod, frame.period_id))
    if sealed is not None:
        return {
            (one.cluster, one.node_uid, one.device_uuid): Coverage(one.confirmed_ms, one.present_ms)
            for one in sealed.document.devices
        }
    clusters = session.scalars(
        select(LedgerLine.cluster).where(LedgerLine.period_id == frame.period_id).distinct()
    ).all()
    device = (DeviceHour.cluster, DeviceHour.node_uid, DeviceHour.device_uuid)
    query = (
        select(*device, func.sum(DeviceHour.confirmed_ms), func.sum(DeviceHour.present_ppm_ms // PPM))
        .where(
            DeviceHour.cluster.in_(clusters),
            DeviceHour.hour_ms >= frame.starts_at_ms,
            DeviceHour.hour_ms < frame.ends_at_ms,
        )
        .group_by(*device)
    )
    with seeing(session, CARDS):
        rows = session.execute(query).all()
    return {(row[0], row[1], row[2]): Coverage(int(row[3]), int(row[4])) for row in rows}
