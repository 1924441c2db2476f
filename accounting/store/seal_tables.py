"""Tables of what is sealed: statements by number, corrections, and the days that came too late.

`statement` and `correction` are insert-only (triggers): a statement is voided by a credit note, a row of
its own. Source: `reference/ledger.md §7, §9`.
"""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy import CheckConstraint, ForeignKey, Index, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from accounting.store.base import Base, Code, Ms, Name, Word, not_negative, one_of
from accounting.store.columns import Exact


class IssuedStatement(Base):
    """A numbered document of a closed period: a statement, or the credit note that voids one."""

    __tablename__ = "statement"
    __table_args__ = (
        UniqueConstraint("issuer", "number"),
        # One credit note a statement, and another statement only after it: see `periods.issuing`.
        UniqueConstraint("period_id", "kind", "revision"),
        one_of("kind", "statement", "credit_note"),
        CheckConstraint("number > 0 AND revision >= 0", name="counted"),
        CheckConstraint(
            "(kind = 'credit_note') = (corrects_id IS NOT NULL AND reason IS NOT NULL)",
            name="note_has_origin",
        ),
        CheckConstraint("(currency IS NULL) = (total IS NULL)", name="total_has_currency"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    issuer: Mapped[Code]
    number: Mapped[int]
    """1, 2, 3 … of its issuer: no hole, no reuse."""
    account: Mapped[Code] = mapped_column(ForeignKey("billing_account.code"))
    period_id: Mapped[int] = mapped_column(ForeignKey("billing_period.id"))
    kind: Mapped[Word]
    revision: Mapped[int]
    """0: the first statement of the period and its credit note; n: the n-th after a void."""
    corrects_id: Mapped[int | None] = mapped_column(ForeignKey("statement.id"))
    """Of a credit note: the statement that it voids."""
    currency: Mapped[str | None] = mapped_column(String(3))
    total: Mapped[Decimal | None] = mapped_column(Exact())
    """Null in a showback account."""
    issued_at_ms: Mapped[Ms]
    issued_by: Mapped[Name]
    reason: Mapped[str | None] = mapped_column(Text)
    sha256: Mapped[str] = mapped_column(String(64))
    """Of the document before it was compressed."""
    document: Mapped[bytes] = mapped_column(LargeBinary)


class SealedUse(Base):
    """What was measured beside a tenant's lines when its period was sealed: shown, never billed."""

    __tablename__ = "sealed_use"

    period_id: Mapped[int] = mapped_column(ForeignKey("billing_period.id"), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenant.id"), primary_key=True)
    sha256: Mapped[str] = mapped_column(String(64))
    """Of the document before it was compressed."""
    document: Mapped[bytes] = mapped_column(LargeBinary)


class StatementNumber(Base):
    """The last number that an issuer gave out; raised in the transaction that issues."""

    __tablename__ = "statement_number"
    __table_args__ = (not_negative("last_number"),)

    issuer: Mapped[Code] = mapped_column(primary_key=True)
    last_number: Mapped[int]


class Correction(Base):
    """One run of `correct` that found differences: what it took in, and where it posted."""

    __tablename__ = "correction"
    __table_args__ = (UniqueConstraint("period_id", "revision"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    account: Mapped[Code] = mapped_column(ForeignKey("billing_account.code"))
    period_id: Mapped[int] = mapped_column(ForeignKey("billing_period.id"))
    revision: Mapped[int]
    into_period_id: Mapped[int] = mapped_column(ForeignKey("billing_period.id"))
    as_of_ms: Mapped[Ms]
    ingest_watermark: Mapped[int]
    versions: Mapped[str] = mapped_column(Text)
    """What it computed with: those of the seal, or newer ones when it was asked to."""
    reason: Mapped[str] = mapped_column(Text)
    corrected_at_ms: Mapped[Ms]
    corrected_by: Mapped[Name]


class LateDay(Base):
    """A UTC day of a device that facts touched when one of its periods was sealed already.

    The rating deletes its marks when it is done; a sealed period needs to know for ever up to which
    ingest number a day was touched, to tell what is late from what was tampered with.
    """

    __tablename__ = "late_day"
    __table_args__ = (Index(None, "day_ms"),)

    cluster: Mapped[Code] = mapped_column(primary_key=True)
    node_uid: Mapped[Name] = mapped_column(primary_key=True)
    device_uuid: Mapped[Name] = mapped_column(primary_key=True)
    day_ms: Mapped[Ms] = mapped_column(primary_key=True)
    ingest_seq: Mapped[int]
