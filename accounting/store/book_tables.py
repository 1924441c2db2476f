"""Tables of the books: which accounts there are, at which price, and the ledger itself.

Versioned rows (`PriceVersion`, `PolicyVersion`) are never edited: a successor over the same validity
names the one it supersedes, and the live ones (`superseded_at_ms IS NULL`) never overlap.

Source: `reference/ledger.md §4, §7`.
"""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    Index,
    PrimaryKeyConstraint,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from accounting.store.base import Base, Code, Ms, Name, OptionalMs, Word, not_negative, one_of
from accounting.store.columns import Exact


def _live_start(table: str, *columns: str) -> Index:
    """No two live versions of one thing begin at one instant; triggers keep them from overlapping at all."""
    live = text("superseded_at_ms IS NULL")
    return Index(f"uq_{table}_live_start", *columns, unique=True, sqlite_where=live, postgresql_where=live)


class BillingAccount(Base):
    """Who gets a statement."""

    __tablename__ = "billing_account"
    __table_args__ = (one_of("kind", "tenant", "platform"), not_negative("grace_days"))

    code: Mapped[Code] = mapped_column(primary_key=True)
    kind: Mapped[Word]
    currency: Mapped[str | None] = mapped_column(String(3))
    """ISO 4217; null is a showback account: statements in card-hours."""
    time_zone: Mapped[Name]
    """IANA name."""
    grace_days: Mapped[int]
    """How long after its end a period waits for late facts."""
    issuer: Mapped[Code] = mapped_column(server_default=text("'SM'"))
    """Whose numbers its statements bear: without holes, never used twice."""
    created_at_ms: Mapped[Ms]


class Cluster(Base):
    """A cluster that reports; its code is in every fact and never changes."""

    __tablename__ = "cluster"

    code: Mapped[Code] = mapped_column(primary_key=True)
    kube_system_uid: Mapped[str | None]
    """Bound by the first request of an exporter."""
    account: Mapped[Code] = mapped_column(ForeignKey("billing_account.code"))
    """Where a tenant that is seen for the first time is billed."""
    platform_account: Mapped[Code] = mapped_column(ForeignKey("billing_account.code"))
    """Who bears idle capacity."""
    created_at_ms: Mapped[Ms]
    retired_at_ms: Mapped[OptionalMs]


class PriceBook(Base):
    """A named set of prices."""

    __tablename__ = "price_book"

    code: Mapped[Code] = mapped_column(primary_key=True)
    created_at_ms: Mapped[Ms]


class PriceVersion(Base):
    """The price of one SKU on one GPU model over `[valid_from_ms, valid_to_ms)`."""

    __tablename__ = "price_version"
    __table_args__ = (
        CheckConstraint("valid_to_ms IS NULL OR valid_from_ms < valid_to_ms", name="validity"),
        _live_start("price_version", "book", "sku", "model", "currency", "valid_from_ms"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    book: Mapped[Code] = mapped_column(ForeignKey("price_book.code"))
    sku: Mapped[Word]
    model: Mapped[Name]
    """A GPU model as registered; empty for a price that holds for every model."""
    currency: Mapped[str] = mapped_column(String(3))
    unit: Mapped[Word]
    """What one unit price buys: `card-hour` or `kWh`."""
    unit_price: Mapped[Decimal] = mapped_column(Exact())
    valid_from_ms: Mapped[Ms]
    valid_to_ms: Mapped[OptionalMs]
    recorded_at_ms: Mapped[Ms]
    recorded_by: Mapped[Name]
    supersedes_id: Mapped[int | None] = mapped_column(ForeignKey("price_version.id"))
    superseded_at_ms: Mapped[OptionalMs]
    reason: Mapped[str | None] = mapped_column(Text)


class TenantDiscount(Base):
    """What a tenant, and all below it, pays less than the list price over `[valid_from_ms, valid_to_ms)`."""

    __tablename__ = "tenant_discount"
    __table_args__ = (
        CheckConstraint("valid_to_ms IS NULL OR valid_from_ms < valid_to_ms", name="validity"),
        _live_start("tenant_discount", "tenant_id", "book", "valid_from_ms"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenant.id"))
    book: Mapped[Code] = mapped_column(ForeignKey("price_book.code"))
    percent: Mapped[Decimal] = mapped_column(Exact())
    valid_from_ms: Mapped[Ms]
    valid_to_ms: Mapped[OptionalMs]
    recorded_at_ms: Mapped[Ms]
    recorded_by: Mapped[Name]
    supersedes_id: Mapped[int | None] = mapped_column(ForeignKey("tenant_discount.id"))
    superseded_at_ms: Mapped[OptionalMs]
    reason: Mapped[str | None] = mapped_column(Text)


class PolicyVersion(Base):
    """How shares, idle capacity, energy or unallocated use are treated over a validity."""

    __tablename__ = "policy_version"
    __table_args__ = (
        one_of("kind", "share", "idle", "energy", "unallocated"),
        CheckConstraint("valid_to_ms IS NULL OR valid_from_ms < valid_to_ms", name="validity"),
        _live_start("policy_version", "kind", "valid_from_ms"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    kind: Mapped[Word]
    value: Mapped[Word]
    """`dominant`, `memory`, `whole_card` for shares; `keep` for idle capacity; …"""
    valid_from_ms: Mapped[Ms]
    valid_to_ms: Mapped[OptionalMs]
    recorded_at_ms: Mapped[Ms]
    recorded_by: Mapped[Name]
    supersedes_id: Mapped[int | None] = mapped_column(ForeignKey("policy_version.id"))
    superseded_at_ms: Mapped[OptionalMs]
    reason: Mapped[str | None] = mapped_column(Text)


class BillingPeriod(Base):
    """A month of an account, between local midnights.

    It leaves `open` with all that its lines were rated with, and is `closed` with a hash over them. From
    `closing` on triggers keep its lines as they are, from `closed` on itself too.
    """

    __tablename__ = "billing_period"
    __table_args__ = (
        UniqueConstraint("account", "starts_at_ms"),
        one_of("state", "open", "closing", "closed"),
        CheckConstraint("starts_at_ms < ends_at_ms", name="interval"),
        CheckConstraint("(state = 'open') = (ingest_watermark IS NULL)", name="frozen"),
        CheckConstraint("(state = 'closed') = (sha256 IS NOT NULL)", name="sealed"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    account: Mapped[Code] = mapped_column(ForeignKey("billing_account.code"))
    starts_at_ms: Mapped[Ms]
    ends_at_ms: Mapped[Ms]
    state: Mapped[Word]
    as_of_ms: Mapped[OptionalMs]
    """The instant that its lines were rated for."""
    grace_ms: Mapped[int | None]
    """The grace that they were rated with."""
    ingest_watermark: Mapped[int | None]
    """The ingest number up to which facts are in them."""
    versions: Mapped[str | None] = mapped_column(Text)
    """`versions.Known` as text: the prices, policies and discounts that were known."""
    override_reason: Mapped[str | None] = mapped_column(Text)
    """Why it was closed against what could be passed over."""
    sealed_columns: Mapped[str | None] = mapped_column(Text)
    """The columns of a line that the hash covers, by name, so that a later column leaves it valid."""
    sha256: Mapped[str | None] = mapped_column(String(64))
    closed_at_ms: Mapped[OptionalMs]
    closed_by: Mapped[str | None]


RATED_KINDS = ("usage", "energy", "idle", "unallocated")
"""What rating makes of facts."""

SIGNED_KINDS = ("distribution", "correction", "adjustment")
"""What moves money between lines that stand: these may be below 0."""


class LedgerLine(Base):
    """What one tenant owes for one resource and SKU within one local day of its account.

    Quantities are whole ppm·ms (card time) or mJ (energy), so their sums are exact; the amount is the
    exact product with the price, rounded nowhere. Rounding happens on the statement.
    """

    __tablename__ = "ledger_line"
    __table_args__ = (
        UniqueConstraint(
            # The card and day say nothing more, but keep a card's lines together: rating and the
            # reports take them from one stretch of this index.
            "cluster",
            "node_uid",
            "device_uuid",
            "day_ms",
            "account",
            "period_id",
            "tenant_id",
            "kind",
            "sku",
            "resource_key",
            "charge_from_ms",
            "revision",
            name="uq_ledger_line_grain",
        ),
        one_of("kind", *RATED_KINDS, *SIGNED_KINDS),
        CheckConstraint("charge_from_ms < charge_to_ms", name="interval"),
        not_negative("held_not_running_quantity", "degraded_quantity", "revision"),
        CheckConstraint(
            "(own_quantity >= 0 AND quantity >= 0) OR kind IN ('distribution', 'correction', 'adjustment')",
            name="sign",
        ),
        CheckConstraint("kind <> 'adjustment' OR reason <> ''", name="adjustment_has_reason"),
        CheckConstraint(
            "(kind = 'correction') = (corrects_period_id IS NOT NULL AND corrects_kind IS NOT NULL "
            "AND corrects_day_ms IS NOT NULL)",
            name="correction_has_origin",
        ),
        Index(None, "tenant_id", "day_ms"),
        # Lines of a month lie together; an index of every line would cost rating more than it saves.
        Index(None, "period_id", "day_ms", postgresql_using="brin"),
        Index(
            None,
            "corrects_period_id",
            sqlite_where=text("corrects_period_id IS NOT NULL"),
            postgresql_where=text("corrects_period_id IS NOT NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    account: Mapped[Code] = mapped_column(ForeignKey("billing_account.code"))
    period_id: Mapped[int] = mapped_column(ForeignKey("billing_period.id"))
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenant.id"))
    kind: Mapped[Word]
    sku: Mapped[Word]
    resource_key: Mapped[str] = mapped_column(String(600))
    """A slice (its allocation id) or a card (cluster/node uid/device uuid)."""
    day_ms: Mapped[Ms]
    """Local midnight at which the account's day begins."""
    charge_from_ms: Mapped[Ms]
    charge_to_ms: Mapped[Ms]
    cluster: Mapped[Code]
    node_uid: Mapped[Name]
    node: Mapped[Name]
    device_uuid: Mapped[Name]
    model: Mapped[Name]
    namespace: Mapped[Name]
    """Empty on lines of a whole card, as are pod and container."""
    pod: Mapped[Name]
    container: Mapped[Name]
    own_quantity: Mapped[int]
    quantity: Mapped[int]
    held_not_running_quantity: Mapped[int]
    degraded_quantity: Mapped[int]
    unit: Mapped[Word]
    """`ppm_ms` or `mj`."""
    currency: Mapped[str | None] = mapped_column(String(3))
    price_version_id: Mapped[int | None] = mapped_column(ForeignKey("price_version.id"))
    policy_version_id: Mapped[int | None] = mapped_column(ForeignKey("policy_version.id"))
    unit_price: Mapped[Decimal | None] = mapped_column(Exact())
    """The list price."""
    discount_version_id: Mapped[int | None] = mapped_column(ForeignKey("tenant_discount.id"))
    discount_percent: Mapped[Decimal | None] = mapped_column(Exact())
    amount: Mapped[Decimal | None] = mapped_column(Exact())
    """After the discount. Null: unrated (no price), or a showback account."""
    revision: Mapped[int]
    """0: rated; n on a line of the n-th correction of a period, or the n-th adjustment of an account."""
    corrects_period_id: Mapped[int | None] = mapped_column(ForeignKey("billing_period.id"))
    """Of a correction: the closed period whose lines it makes right."""
    corrects_kind: Mapped[str | None] = mapped_column(String(32))
    corrects_day_ms: Mapped[OptionalMs]
    """The local day there; `day_ms` is the day on which the correction was posted."""
    reason: Mapped[str | None] = mapped_column(Text)


class DeviceHour(Base):
    """The closing identity of one device and UTC hour: charged + idle + down = present."""

    __tablename__ = "device_hour"
    __table_args__ = (
        PrimaryKeyConstraint("cluster", "node_uid", "device_uuid", "hour_ms"),
        Index(None, "cluster", "hour_ms"),
        CheckConstraint("charged_ppm_ms + idle_ppm_ms + down_ppm_ms = present_ppm_ms", name="closes"),
        not_negative("charged_ppm_ms", "idle_ppm_ms", "down_ppm_ms", "present_ppm_ms", "confirmed_ms"),
        CheckConstraint("confirmed_ms * 1000000 <= present_ppm_ms", name="confirmed"),
        CheckConstraint("present_ppm_ms <= 3600000000000", name="one_card_hour"),
    )

    cluster: Mapped[Code]
    hour_ms: Mapped[Ms]
    node_uid: Mapped[Name]
    device_uuid: Mapped[Name]
    node: Mapped[Name]
    model: Mapped[Name]
    present_ppm_ms: Mapped[int]
    charged_ppm_ms: Mapped[int]
    idle_ppm_ms: Mapped[int]
    down_ppm_ms: Mapped[int]
    confirmed_ms: Mapped[int]
    """Presence that a witness confirmed: neither bridged nor grace."""


class DeviceEnergy(Base):
    """Where the energy of one device and UTC hour went, to the millijoule."""

    __tablename__ = "device_energy"
    __table_args__ = (
        PrimaryKeyConstraint("cluster", "node_uid", "device_uuid", "hour_ms"),
        Index(None, "cluster", "hour_ms"),
        CheckConstraint(
            "active_mj + unallocated_mj + unattributed_mj + idle_mj + residual_mj = energy_mj", name="closes"
        ),
        CheckConstraint("idle_held_mj <= idle_mj", name="idle_held"),
        not_negative(
            "energy_mj", "active_mj", "unallocated_mj", "unattributed_mj", "idle_mj", "idle_held_mj"
        ),
    )

    cluster: Mapped[Code]
    hour_ms: Mapped[Ms]
    node_uid: Mapped[Name]
    device_uuid: Mapped[Name]
    energy_mj: Mapped[int]
    """The board's counter."""
    active_mj: Mapped[int]
    """Of slices."""
    unallocated_mj: Mapped[int]
    unattributed_mj: Mapped[int]
    idle_mj: Mapped[int]
    """What the board drew without work, unsplit."""
    idle_held_mj: Mapped[int]
    """The part of it that the policy gives to slices."""
    residual_mj: Mapped[int]
    """What no report explains; below 0 where slices report more than the board. Shown, never billed."""


class RatingState(Base):
    """Up to which instant the open ledger was rated: one row."""

    __tablename__ = "rating_state"
    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    rated_as_of_ms: Mapped[Ms]
    grace_ms: Mapped[int]
    """The grace it was rated with; whoever computes it again takes the same."""
    rated_seq: Mapped[int]
    """The ingest number up to which facts are in."""
