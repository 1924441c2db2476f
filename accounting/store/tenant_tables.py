"""Tables of who is who: the tree of tenants, and the dated rules and moves that lead to it.

Rules and moves are versions, as prices are: never edited, superseded with a reason, live ones of one
priority (or one tenant) never overlapping. One that was withdrawn has no tenant and holds nothing.

Source: `reference/ledger.md §4, §7`.
"""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from accounting.store.base import Base, Code, Ms, Name, OptionalMs, Word, not_negative, one_of


def _live_start(table: str, key: str) -> Index:
    """No two live versions of one thing begin at one instant; triggers keep them from overlapping at all."""
    live = text("superseded_at_ms IS NULL AND tenant_id IS NOT NULL")
    columns = (key, "valid_from_ms")
    return Index(f"uq_{table}_live_start", *columns, unique=True, sqlite_where=live, postgresql_where=live)


class Tenant(Base):
    """A node of the tree organisation → team → project; `path` joins the codes with slashes."""

    __tablename__ = "tenant"
    __table_args__ = (
        UniqueConstraint("path"),
        one_of("kind", "organisation", "team", "project", "leaf", "builtin"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    path: Mapped[str] = mapped_column(String(1000))
    """Names this tenant for ever; a move leads to another."""
    code: Mapped[Name]
    parent_id: Mapped[int | None] = mapped_column(ForeignKey("tenant.id"))
    kind: Mapped[Word]
    """`leaf` is what a tenant key means by itself."""
    account: Mapped[Code] = mapped_column(ForeignKey("billing_account.code"))
    is_unmapped: Mapped[bool]
    """A leaf whose key no rule leads elsewhere for good; listed until somebody says so."""
    created_at_ms: Mapped[Ms]


class TenantRule(Base):
    """Slices that match belong to a tenant over `[valid_from_ms, valid_to_ms)`; the lowest priority wins."""

    __tablename__ = "tenant_rule"
    __table_args__ = (
        not_negative("priority"),
        CheckConstraint("valid_to_ms IS NULL OR valid_from_ms < valid_to_ms", name="validity"),
        _live_start("tenant_rule", "priority"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    priority: Mapped[int]
    cluster: Mapped[Name]
    """A glob, as are the next two: `*` asks for nothing."""
    tenant_key: Mapped[Name]
    namespace: Mapped[Name]
    labels: Mapped[str] = mapped_column(Text)
    """JSON: each label that must be there, with the glob of its value."""
    tenant_id: Mapped[int | None] = mapped_column(ForeignKey("tenant.id"))
    valid_from_ms: Mapped[Ms]
    valid_to_ms: Mapped[OptionalMs]
    recorded_at_ms: Mapped[Ms]
    recorded_by: Mapped[Name]
    supersedes_id: Mapped[int | None] = mapped_column(ForeignKey("tenant_rule.id"))
    superseded_at_ms: Mapped[OptionalMs]
    reason: Mapped[str | None] = mapped_column(Text)


class TenantMove(Base):
    """What belonged to one tenant, and all below it, belongs to another over a validity."""

    __tablename__ = "tenant_move"
    __table_args__ = (
        CheckConstraint("valid_to_ms IS NULL OR valid_from_ms < valid_to_ms", name="validity"),
        CheckConstraint("tenant_id IS NULL OR from_tenant_id <> tenant_id", name="elsewhere"),
        _live_start("tenant_move", "from_tenant_id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    from_tenant_id: Mapped[int] = mapped_column(ForeignKey("tenant.id"))
    tenant_id: Mapped[int | None] = mapped_column(ForeignKey("tenant.id"))
    valid_from_ms: Mapped[Ms]
    valid_to_ms: Mapped[OptionalMs]
    recorded_at_ms: Mapped[Ms]
    recorded_by: Mapped[Name]
    supersedes_id: Mapped[int | None] = mapped_column(ForeignKey("tenant_move.id"))
    superseded_at_ms: Mapped[OptionalMs]
    reason: Mapped[str | None] = mapped_column(Text)
