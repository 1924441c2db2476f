"""Budgets by validity, and the thresholds that were crossed."""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from accounting.store.base import Base, Ms, Name, OptionalMs
from accounting.store.columns import Exact

_LIVE = text("superseded_at_ms IS NULL")


class Budget(Base):
    """What a tenant, and all below it, may cost in each month of a validity; never edited."""

    __tablename__ = "budget"
    __table_args__ = (
        CheckConstraint("valid_to_ms IS NULL OR valid_from_ms < valid_to_ms", name="validity"),
        Index(
            "uq_budget_live_start",
            "tenant_id",
            "valid_from_ms",
            unique=True,
            sqlite_where=_LIVE,
            postgresql_where=_LIVE,
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenant.id"))
    amount: Mapped[Decimal] = mapped_column(Exact())
    """For a whole month, in the currency of the tenant's account; 0 takes the budget away."""
    currency: Mapped[str] = mapped_column(String(3))
    thresholds: Mapped[str] = mapped_column(Text)
    """JSON: whole per cents of the amount, ascending."""
    valid_from_ms: Mapped[Ms]
    valid_to_ms: Mapped[OptionalMs]
    recorded_at_ms: Mapped[Ms]
    recorded_by: Mapped[Name]
    supersedes_id: Mapped[int | None] = mapped_column(ForeignKey("budget.id"))
    superseded_at_ms: Mapped[OptionalMs]
    reason: Mapped[str | None] = mapped_column(Text)


class BudgetCrossing(Base):
    """A threshold that a month's spending crossed: written once, so it is told once."""

    __tablename__ = "budget_crossing"

    budget_id: Mapped[int] = mapped_column(ForeignKey("budget.id"), primary_key=True)
    period_id: Mapped[int] = mapped_column(ForeignKey("billing_period.id"), primary_key=True)
    percent: Mapped[int] = mapped_column(primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenant.id"))
    """The budget's; here for the wall around it."""
    spent: Mapped[Decimal] = mapped_column(Exact())
    """The month's cost when it was noticed."""
    crossed_at_ms: Mapped[Ms]
