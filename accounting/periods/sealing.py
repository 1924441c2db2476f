"""The seal of a period: one pass over its lines that hashes, adds up and keeps what was measured.

What is sealed is small: a document of totals, and per tenant what was measured beside its lines. The lines
themselves stay in the ledger, where triggers keep them and the hash covers every column.

Invariant: for one frozen period the seal is the same whenever it is made again, apart from `measured`
and `devices`, which are taken once, kept, and covered by the hash from then on.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from accounting.ledger.intervals import Interval
from accounting.ledger.rounding import EXACT, exact_sum, to_currency
from accounting.periods.hashing import Blob, hash_lines, seal_hash
from accounting.periods.months import named
from accounting.periods.totals import Totals, totals_by_tenant
from accounting.periods.use import SliceUses, UnallocatedUse, Use, measured_windows, unallocated_uses
from accounting.progress import Progress, unseen
from accounting.store.models import (
    BillingAccount,
    BillingPeriod,
    DeviceHour,
    LedgerLine,
    Tenant,
    UsageFact,
)
from accounting.store.versions import Known
from accounting.tenants.rules import read_owners
from contract.units import PPM

_ROWS_AT_A_TIME = 2_000
_SLICES_AT_A_TIME = 500
_DEVICES_AT_A_TIME = 300


@dataclass(slots=True)
class TenantTotals:
    """What the lines of one tenant come to; corrections and adjustments only in `amount`."""

    tenant: str
    lines: int = 0
    own_ppm_ms: int = 0
    charged_ppm_ms: int = 0
    idle_ppm_ms: int = 0
    amount: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class DeviceCoverage:
    """How much of one device's presence in the period was confirmed."""

    cluster: str
    node_uid: str
    device_uuid: str
    confirmed_ms: int
    present_ms: int


@dataclass(frozen=True, slots=True)
class SealedDocument:
    """What a statement's number stands for; the lines are those of the ledger."""

    account: str
    period: str
    time_zone: str
    starts_at_ms: int
    ends_at_ms: int
    as_of_ms: int
    currency: str | None
    lines: int
    amount: Decimal | None
    rounding: Decimal | None
    total: Decimal | None
    tenants: Sequence[TenantTotals]
    devices: Sequence[DeviceCoverage]
    unallocated: Sequence[UnallocatedUse]


@dataclass(frozen=True, slots=True)
class MeasuredLine:
    """What was measured beside one line."""

    line_id: int
    use: Use


@dataclass(frozen=True, slots=True)
class Seal:
    """Everything that closing a period stores."""

    columns: str
    sha256: str
    document: SealedDocument
    statement: Blob
    measured: Mapping[int, Blob]
    """By tenant id."""


def encode_document(document: SealedDocument | Sequence[MeasuredLine]) -> bytes:
    """A document as the bytes that are hashed."""
    return msgspec.json.encode(document)


def decode_document(compressed: bytes) -> SealedDocument:
    """What `encode_document` wrote."""
    return msgspec.json.decode(zlib.decompress(compressed), type=SealedDocument)


def decode_measured(compressed: bytes) -> list[MeasuredLine]:
    """What `encode_document` wrote."""
    return msgspec.json.decode(zlib.decompress(compressed), type=list[MeasuredLine])


def make_seal(
    session: Session, account: BillingAccount, period: BillingPeriod, *, progress: Progress = unseen
) -> Seal:
    """The seal of a frozen period.

    Args:
        session: A transaction that sees its lines.
        account: Whose period.
        period: In state `closing`.
        progress: Who wants to know how far it is.
    """
    columns = ",".join(sorted(column.name for column in LedgerLine.__table__.columns))
    paths = {tenant.id: tenant.path for tenant in session.scalars(select(Tenant))}
    digest = hash_lines(session, period, columns, progress=progress)
    progress("adding lines up", 0, 0)
    sums = _Sums(account.currency, paths, totals_by_tenant(session, period.id, account.currency))
    window = (period.starts_at_ms, period.ends_at_ms)
    document = sums.document(
        account,
        period,
        devices=_devices(session, period, window),
        unallocated=_unallocated(session, account, period, window),
    )
    statement = Blob.of(encode_document(document))
    measured = {
        tenant_id: Blob.of(encode_document(lines))
        for tenant_id, lines in _measured(session, account, period, progress).items()
    }
    return Seal(
        columns=columns,
        sha256=seal_hash(
            period, columns, digest, statement.sha256, {key: blob.sha256 for key, blob in measured.items()}
        ),
        document=document,
        statement=statement,
        measured=measured,
    )


@dataclass(frozen=True, slots=True)
class _Sums:
    """What the lines come to."""

    currency: str | None
    paths: Mapping[int, str]
    by_tenant: Mapping[int, Totals]

    def document(
        self,
        account: BillingAccount,
        period: BillingPeriod,
        *,
        devices: Sequence[DeviceCoverage],
        unallocated: Sequence[UnallocatedUse],
    ) -> SealedDocument:
        assert period.as_of_ms is not None
        amount: Decimal | None = None
        total: Decimal | None = None
        rounding: Decimal | None = None
        if account.currency is not None:
            amount = exact_sum(one.amount for one in self.by_tenant.values())
            total = to_currency(amount, account.currency)
            rounding = EXACT.subtract(total, exact_sum(one.shown for one in self.by_tenant.values()))
        tenants = [
            TenantTotals(
                self.paths[tenant_id],
                one.lines,
                one.own_ppm_ms,
                one.charged_ppm_ms,
                one.idle_ppm_ms,
                one.amount,
            )
            for tenant_id, one in self.by_tenant.items()
        ]
        return SealedDocument(
            account=account.code,
            period=named(period, account),
            time_zone=account.time_zone,
            starts_at_ms=period.starts_at_ms,
            ends_at_ms=period.ends_at_ms,
            as_of_ms=period.as_of_ms,
            currency=account.currency,
            lines=sum(one.lines for one in tenants),
            amount=None if amount is None else amount.normalize(EXACT),
            rounding=rounding,
            total=total,
            tenants=sorted(tenants, key=lambda totals: totals.tenant),
            devices=devices,
            unallocated=unallocated,
        )


def _devices(session: Session, period: BillingPeriod, window: Interval) -> list[DeviceCoverage]:
    """Confirmed and present time of every device that a line speaks of."""
    columns = (LedgerLine.cluster, LedgerLine.node_uid, LedgerLine.device_uuid)
    keys = session.execute(
        select(*columns)
        .where(LedgerLine.period_id == period.id, LedgerLine.device_uuid != "")
        .distinct()
        .order_by(*columns)
    ).all()
    found: list[DeviceCoverage] = []
    where = (DeviceHour.hour_ms >= window[0], DeviceHour.hour_ms < window[1])
    hour = (DeviceHour.cluster, DeviceHour.node_uid, DeviceHour.device_uuid)
    for start in range(0, len(keys), _DEVICES_AT_A_TIME):
        chunk = [(key[0], key[1], key[2]) for key in keys[start : start + _DEVICES_AT_A_TIME]]
        sums = session.execute(
            select(*hour, func.sum(DeviceHour.confirmed_ms), func.sum(DeviceHour.present_ppm_ms // PPM))
            .where(tuple_(*hour).in_(chunk), *where)
            .group_by(*hour)
        )
        by_device = {(row[0], row[1], row[2]): (int(row[3]), int(row[4])) for row in sums}
        found += [DeviceCoverage(*key, *(by_device.get(key) or (0, 0))) for key in chunk]
    return found


def _unallocated(
    session: Session, account: BillingAccount, period: BillingPeriod, window: Interval
) -> list[UnallocatedUse]:
    found = unallocated_uses(session, read_owners(session, Known.from_text(period.versions or "{}")), window)
    return [one for one in found if one.account == account.code]


def _measured(
    session: Session, account: BillingAccount, period: BillingPeriod, progress: Progress
) -> dict[int, list[MeasuredLine]]:
    """What was measured beside the lines of slices, by tenant; nothing where nothing was."""
    window = (period.starts_at_ms, period.ends_at_ms)
    measured: dict[int, list[MeasuredLine]] = {}
    done = 0
    for rows in _slices(session, period, _clusters_that_measure(session, period, window)):
        slices = {(row.cluster, UUID(row.resource_key)) for row in rows}
        uses = SliceUses(session, slices, window)
        windows = measured_windows(rows, account.time_zone)
        for row in rows:
            use = uses.of(UUID(row.resource_key), windows[row.id])
            if use is not None:
                measured.setdefault(row.tenant_id, []).append(MeasuredLine(row.id, use))
        done += len(rows)
        progress("keeping what was measured", done, 0)
    return measured


def _clusters_that_measure(session: Session, period: BillingPeriod, window: Interval) -> list[str]:
    """The clusters of a period's lines from which any use was reported in a window."""
    clusters = session.scalars(
        select(LedgerLine.cluster).where(LedgerLine.period_id == period.id).distinct().order_by("cluster")
    ).all()
    return [
        cluster
        for cluster in clusters
        if session.scalar(
            select(UsageFact.cluster)
            .where(UsageFact.cluster == cluster, UsageFact.hour_ms < window[1], UsageFact.to_ms > window[0])
            .limit(1)
        )
    ]


def _slices(session: Session, period: BillingPeriod, clusters: Sequence[str]) -> Iterator[Sequence[Any]]:
    """The lines of slices in these clusters, some hundred slices at a time, each slice's together."""
    columns = (
        LedgerLine.id,
        LedgerLine.tenant_id,
        LedgerLine.cluster,
        LedgerLine.resource_key,
        LedgerLine.day_ms,
        LedgerLine.charge_from_ms,
    )
    statement = (
        select(*columns)
        .where(
            LedgerLine.period_id == period.id, LedgerLine.kind == "usage", LedgerLine.cluster.in_(clusters)
        )
        .order_by(LedgerLine.resource_key, LedgerLine.id)
        .execution_options(yield_per=_ROWS_AT_A_TIME)
    )
    rows: list[Any] = []
    keys: set[str] = set()
    for row in session.execute(statement):
        if row.resource_key not in keys and len(keys) == _SLICES_AT_A_TIME:
            yield rows
            rows, keys = [], set()
        rows.append(row)
        keys.add(row.resource_key)
    if rows:
        yield rows
