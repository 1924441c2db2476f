"""Hashes over what was sealed: every column of every line, and the documents.

Invariant: equal content has one hash on every database and at every time, and no cell of a line, no line
and no document can change without changing it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from accounting.ledger.rounding import EXACT
from accounting.progress import Progress, unseen
from accounting.store.models import BillingPeriod, IssuedStatement, LedgerLine, SealedUse

STATEMENT = "statement"
CREDIT_NOTE = "credit_note"

_ROWS_AT_A_TIME = 2_000


@dataclass(frozen=True, slots=True)
class Blob:
    """A document as it is kept."""

    sha256: str
    compressed: bytes

    @classmethod
    def of(cls, content: bytes) -> Blob:
        """Compress a document."""
        return cls(hashlib.sha256(content).hexdigest(), zlib.compress(content))


def content_hash(compressed: bytes) -> str:
    """SHA-256 of a kept document; of nothing that was ever sealed when it cannot be read."""
    try:
        return hashlib.sha256(zlib.decompress(compressed)).hexdigest()
    except zlib.error:
        return ""


def first_statement(session: Session, period_id: int) -> IssuedStatement | None:
    """The statement that closed a period."""
    return session.scalar(
        select(IssuedStatement).where(
            IssuedStatement.period_id == period_id,
            IssuedStatement.kind == STATEMENT,
            IssuedStatement.revision == 0,
        )
    )


def seal_hash(
    period: BillingPeriod, columns: str, lines_sha256: str, statement_sha256: str, measured: Mapping[int, str]
) -> str:
    """The hash that closes a period: over its frame, its lines and its documents."""
    frame = {
        "account": period.account,
        "starts_at_ms": period.starts_at_ms,
        "ends_at_ms": period.ends_at_ms,
        "as_of_ms": period.as_of_ms,
        "grace_ms": period.grace_ms,
        "ingest_watermark": period.ingest_watermark,
        "versions": period.versions,
        "override_reason": period.override_reason,
        "columns": columns,
        "lines": lines_sha256,
        "statement": statement_sha256,
        "measured": sorted(measured.items()),
    }
    return hashlib.sha256(msgspec.json.encode(frame, order="sorted")).hexdigest()


def broken_seal(session: Session, period: BillingPeriod, *, progress: Progress = unseen) -> str | None:
    """What of a closed period is not as it was sealed; None: all of it is."""
    assert period.sealed_columns is not None
    statement = first_statement(session, period.id)
    if statement is None:
        return "its statement is gone"
    measured = {}
    for kept in session.scalars(select(SealedUse).where(SealedUse.period_id == period.id)):
        measured[kept.tenant_id] = content_hash(kept.document)
    lines = hash_lines(session, period, period.sealed_columns, progress=progress)
    again = seal_hash(period, period.sealed_columns, lines, content_hash(statement.document), measured)
    return None if again == period.sha256 else "lines or documents are not those that were sealed"


def hash_lines(
    session: Session,
    period: BillingPeriod,
    columns: str,
    *,
    each: Callable[[Any], None] | None = None,
    progress: Progress = unseen,
) -> str:
    """SHA-256 over the named columns of every line of a period, in the order of their ids."""
    digest = hashlib.sha256()
    names = columns.split(",")
    total = session.scalar(select(func.count()).where(LedgerLine.period_id == period.id)) or 0
    done = 0
    for rows in _lines(session, period, names):
        for row in rows:
            digest.update(_canonical(row))
            if each is not None:
                each(row)
        done += len(rows)
        progress("hashing lines", done, total)
    return digest.hexdigest()


def _lines(session: Session, period: BillingPeriod, names: Sequence[str]) -> Iterator[Sequence[Any]]:
    table = LedgerLine.__table__
    statement = (
        select(*(table.columns[name] for name in names))
        .where(LedgerLine.period_id == period.id)
        .order_by(LedgerLine.id)
        .execution_options(yield_per=_ROWS_AT_A_TIME)
    )
    yield from session.execute(statement).partitions()


def _canonical(row: Sequence[object]) -> bytes:
    # The same amount has the same bytes, whatever number of zeros a database gives back with it.
    values = [f"{value.normalize(EXACT):f}" if isinstance(value, Decimal) else value for value in row]
    return msgspec.json.encode(values) + b"\n"
