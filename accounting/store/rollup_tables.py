"""Tables of sums that are kept beside the rows they add up, so that a report costs what its days cost.

Triggers keep them, in the transaction that changes a row: on PostgreSQL a statement adds rows of its own
for what it changed, which `rollups.merge` puts together later; on SQLite there is one row a key. Invariant:
whatever is committed, the rows of a key add up to the lines, or device hours, of that key.
"""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy import Index, String, text
from sqlalchemy.orm import Mapped, mapped_column

from accounting.store.base import Base, Code, Ms, Name, Word
from accounting.store.columns import Exact

_NOT_MERGED = text("NOT is_merged")


def _not_merged(table: str, *columns: str) -> Index:
    return Index(f"ix_{table}_not_merged", *columns, sqlite_where=_NOT_MERGED, postgresql_where=_NOT_MERGED)


class RollupDay(Base):
    """Lines of one local day that differ in nothing but card, pod and time of day."""

    __tablename__ = "rollup_day"
    __table_args__ = (
        Index(None, "account", "day_ms", "tenant_id"),
        Index(None, "tenant_id", "day_ms"),
        Index(None, "period_id"),
        _not_merged("rollup_day", "account", "day_ms"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    account: Mapped[Code]
    period_id: Mapped[int]
    tenant_id: Mapped[int]
    kind: Mapped[Word]
    sku: Mapped[Word]
    day_ms: Mapped[Ms]
    cluster: Mapped[Code]
    model: Mapped[Name]
    namespace: Mapped[Name]
    unit: Mapped[Word]
    currency: Mapped[str | None] = mapped_column(String(3))
    unit_price: Mapped[Decimal | None] = mapped_column(Exact())
    discount_percent: Mapped[Decimal | None] = mapped_column(Exact())
    corrects_kind: Mapped[str | None] = mapped_column(String(32))
    line_count: Mapped[int]
    """How many lines; below 0 in a row that takes some away."""
    own_quantity: Mapped[int]
    quantity: Mapped[int]
    held_not_running_quantity: Mapped[int]
    degraded_quantity: Mapped[int]
    unrated: Mapped[int]
    """How many of them have no amount."""
    amount: Mapped[Decimal] = mapped_column(Exact())
    is_merged: Mapped[bool]


class RollupHour(Base):
    """The closing identities of all devices of one model and cluster in one UTC hour."""

    __tablename__ = "rollup_hour"
    __table_args__ = (
        Index(None, "cluster", "hour_ms"),
        _not_merged("rollup_hour", "cluster", "hour_ms"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    cluster: Mapped[Code]
    hour_ms: Mapped[Ms]
    model: Mapped[Name]
    device_count: Mapped[int]
    present_ppm_ms: Mapped[int]
    charged_ppm_ms: Mapped[int]
    idle_ppm_ms: Mapped[int]
    down_ppm_ms: Mapped[int]
    confirmed_ms: Mapped[int]
    is_merged: Mapped[bool]
