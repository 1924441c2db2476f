"""Does a closed period stand as it was sealed, and does it still say what the facts say?

Invariant: it writes nothing. A difference on a card and day that facts touched after the seal (and after
the last correction) is *pending*: run a correction. Any other difference is a failure.
Source: `reference/ledger.md §9`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from decimal import Decimal

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.ledger.calendar import day_bounds_ms, month_of
from accounting.ledger.rounding import EXACT, exact_sum, to_currency
from accounting.periods.compute import MS_PER_DAY
from accounting.periods.findings import Finding, card_named
from accounting.periods.hashing import STATEMENT, broken_seal, content_hash, first_statement
from accounting.periods.issuing import number_text, numbers_with_holes
from accounting.periods.recompute import (
    Difference,
    Recomputation,
    known_to,
    last_correction,
    watermark_of,
)
from accounting.periods.sealing import decode_document
from accounting.periods.totals import totals_by_tenant
from accounting.progress import Progress, unseen
from accounting.store.models import (
    BillingAccount,
    BillingPeriod,
    IssuedStatement,
    LateDay,
    RatingMark,
    Tenant,
)
from accounting.tenants.rules import clusters_of
from contract.ids import ClusterCode, DeviceKey, DeviceUuid, NodeUid


def period_named(account: BillingAccount, period: BillingPeriod) -> str:
    """A closed period, for people."""
    return f"{account.code} {month_of(period.starts_at_ms, account.time_zone)}"


def seal_findings(
    session: Session, account: BillingAccount, period: BillingPeriod, *, progress: Progress = unseen
) -> Iterator[Finding]:
    """Check a closed period against its seal, its documents and its numbers.

    Args:
        session: A reading transaction.
        account: Whose.
        period: Closed.
        progress: Who wants to know how far it is.
    """
    name = period_named(account, period)
    broken = broken_seal(session, period, progress=progress)
    if broken is not None:
        yield Finding("seal", name, f"{broken} (sealed as {period.sha256})")
    yield from _documents(session, period)
    yield from _totals(session, period, name)
    for issuer in numbers_with_holes(session):
        if issuer == account.issuer:
            yield Finding("statement_numbers", issuer, "its numbers are not 1 to its last, each once")


class SealedAgain:
    """A closed period computed again, and which of the differences facts explain that came after the seal."""

    def __init__(self, session: Session, account: BillingAccount, period: BillingPeriod) -> None:
        last = last_correction(session, period)
        self.recomputation = Recomputation(session, account, period, known_to(period, last))
        self._late = _LateDays(session, watermark_of(period, last), self.recomputation.window)
        self.clusters = frozenset(clusters_of(session, account.code))
        self._name = period_named(account, period)
        self._time_zone = account.time_zone

    def judge(self, one: Difference) -> Finding | str:
        """What is wrong; or what is late, and waits for a correction."""
        subject = f"{one.key.kind} of {one.key.tenant} on {card_named(one.card, one.key.day_ms)}"
        if self._late.touches(one.card, day_bounds_ms(one.key.day_ms, self._time_zone)):
            return f"{subject} in {self._name}"
        return Finding("line_recomputed", f"{subject} in {self._name}", _figures(one))


def _figures(one: Difference) -> str:
    stands, again = one.stands.figures, one.again.figures
    return (
        f"sealed and posted {stands[0]}, {stands[1]}, {stands[2]:f}; "
        f"the facts give {again[0]}, {again[1]}, {again[2]:f} (own and charged quantity, amount)"
    )


def _documents(session: Session, period: BillingPeriod) -> Iterator[Finding]:
    """Each document has its hash, and says what its row says; a reissued one is the first one again."""
    first = first_statement(session, period.id)
    issued = session.scalars(select(IssuedStatement).where(IssuedStatement.period_id == period.id))
    for one in issued:
        number = number_text(one)
        if content_hash(one.document) != one.sha256:
            yield Finding("statement_document", number, "the document is not the one that was issued")
        elif one.kind == STATEMENT and first is not None:
            if one.sha256 != first.sha256:
                yield Finding("statement_document", number, "it is not what its period was sealed with")
            elif one.total != decode_document(one.document).total:
                yield Finding("statement_document", number, f"its total {one.total} is not the document's")
        elif one.corrects_id is not None:
            voided = session.get(IssuedStatement, one.corrects_id)
            if voided is None or voided.total != (None if one.total is None else EXACT.minus(one.total)):
                yield Finding("statement_document", number, "it does not credit what it voids")


def _totals(session: Session, period: BillingPeriod, name: str) -> Iterator[Finding]:
    """Lines, added up again tenant by tenant, and the rounding line come to the statement's total."""
    first = first_statement(session, period.id)
    if first is None:
        return
    try:
        document = decode_document(first.document)
    except (zlib.error, msgspec.DecodeError):
        return  # found already: its hash does not hold
    if document.currency is None or document.total is None or document.rounding is None:
        return
    paths = {tenant.id: tenant.path for tenant in session.scalars(select(Tenant))}
    totals = totals_by_tenant(session, period.id, document.currency)
    sums = {one.tenant: one.amount for one in document.tenants}
    again = dict.fromkeys(sums, Decimal(0)) | {paths[of]: one.amount for of, one in totals.items()}
    shown = EXACT.add(document.rounding, exact_sum(one.shown for one in totals.values()))
    total = to_currency(exact_sum(again.values()), document.currency)
    if again != sums or total != document.total or shown != document.total:
        differing = sorted(path for path in again.keys() | sums.keys() if again.get(path) != sums.get(path))
        yield Finding(
            "statement_adds_up",
            f"{name}: {', '.join(differing) or 'rounding'}",
            f"lines come to {total}, with rounding shown as {shown}; the statement says {document.total}",
        )


class _LateDays:
    """Days of cards that facts touched after an ingest number."""

    def __init__(self, session: Session, watermark: int, window: tuple[int, int]) -> None:
        self._days: dict[DeviceKey, set[int]] = {}
        reach = (window[0] - MS_PER_DAY, window[1] + MS_PER_DAY)
        tables: tuple[type[LateDay | RatingMark], ...] = (LateDay, RatingMark)
        for table in tables:
            rows = session.execute(
                select(table.cluster, table.node_uid, table.device_uuid, table.day_ms).where(
                    table.ingest_seq > watermark, table.day_ms >= reach[0], table.day_ms < reach[1]
                )
            )
            for cluster, node_uid, device_uuid, day_ms in rows:
                key = DeviceKey(ClusterCode(cluster), NodeUid(node_uid), DeviceUuid(device_uuid))
                self._days.setdefault(key, set()).add(day_ms)

    def touches(self, card: DeviceKey, day: tuple[int, int]) -> bool:
        """Whether a local day of a card has a UTC day that was touched."""
        return any(at_ms < day[1] and day[0] < at_ms + MS_PER_DAY for at_ms in self._days.get(card, ()))


def closed_periods(
    session: Session, windows: dict[str, tuple[int, int]], states: Sequence[str]
) -> dict[str, BillingPeriod]:
    """By account: the period that begins with its window, if it is in one of these states."""
    rows = session.scalars(
        select(BillingPeriod).where(
            BillingPeriod.starts_at_ms.in_({start for start, _ in windows.values()}),
            BillingPeriod.state.in_(states),
        )
    )
    return {row.account: row for row in rows if windows.get(row.account, (None,))[0] == row.starts_at_ms}
