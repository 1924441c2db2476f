"""Hashes over what was sealed: every column of every line, and the documents.

Invariant: equal content has one hash on every database and at every time, and no cell of a line, no line
and no document can change without changing it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeAlias

import msgspec
import psycopg
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from accounting.ledger.rounding import EXACT
from accounting.progress import Progress, unseen
from accounting.store.columns import Exact
from accounting.store.models import BillingPeriod, IssuedStatement, LedgerLine, SealedUse

Buffer: TypeAlias = bytes | bytearray | memoryview

STATEMENT = "statement"
CREDIT_NOTE = "credit_note"

_ROWS_AT_A_TIME = 2_000
_LINES_PER_LOOK = 10_000

_ESCAPED = str.maketrans(
    {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
)
"""PostgreSQL's manual, COPY, text format."""


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


def hash_lines(session: Session, period: BillingPeriod, columns: str, *, progress: Progress = unseen) -> str:
    """SHA-256 over the named columns of every line of a period, in the order of their ids.

    A line is written as PostgreSQL's COPY writes it: columns parted by tabs, a line feed at the end, amounts
    without trailing zeros. There it comes from the database as it is, twelve million of them in a minute.
    """
    digest = hashlib.sha256()
    names = columns.split(",")
    line = LedgerLine
    total, first, last = session.execute(
        select(func.count(), func.min(line.id), func.max(line.id)).where(line.period_id == period.id)
    ).one()
    if not total:
        return digest.hexdigest()
    is_postgresql = session.get_bind().dialect.name == "postgresql"
    lines = (
        _copied(session, period, names, (first, last)) if is_postgresql else _written(session, period, names)
    )
    for done, text in enumerate(lines):
        digest.update(text)
        if not done % _LINES_PER_LOOK:
            progress("hashing lines", done, total)
    return digest.hexdigest()


def _copied(
    session: Session, period: BillingPeriod, names: Sequence[str], ids: tuple[int, int]
) -> Iterator[Buffer]:
    driver = session.connection().connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    columns = LedgerLine.__table__.columns
    texts = (f"trim_scale({name})" if isinstance(columns[name].type, Exact) else f"{name}" for name in names)
    # The bounds let it walk the key in order, where it would sort all of the period else.
    query = (
        f"COPY (SELECT {', '.join(texts)} FROM ledger_line WHERE period_id = {int(period.id)} "  # noqa: S608
        f"AND id BETWEEN {int(ids[0])} AND {int(ids[1])} ORDER BY id) TO STDOUT"
    )
    with driver.cursor().copy(query.encode()) as copy:
        yield from copy


def _written(session: Session, period: BillingPeriod, names: Sequence[str]) -> Iterator[Buffer]:
    table = LedgerLine.__table__
    statement = (
        select(*(table.columns[name] for name in names))
        .where(LedgerLine.period_id == period.id)
        .order_by(LedgerLine.id)
        .execution_options(yield_per=_ROWS_AT_A_TIME)
    )
    for row in session.execute(statement):
        yield ("\t".join(map(_text, row)) + "\n").encode()


def _text(value: object) -> str:
    """A value as COPY writes it."""
    if value is None:
        return "\\N"
    if isinstance(value, Decimal):
        # The same amount has the same text, whatever number of zeros a database gives back with it.
        return f"{value.normalize(EXACT):f}"
    return value.translate(_ESCAPED) if isinstance(value, str) else str(value)
