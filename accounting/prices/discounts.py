"""Tenants' discounts in the store: per cent of the list price, by validity, never edited."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.audit import record
from accounting.access.viewer import Viewer
from accounting.errors import InvalidError
from accounting.ledger.calendar import at_text
from accounting.ledger.pricing import Discount
from accounting.ledger.rounding import plain
from accounting.numbers import plain_decimal
from accounting.prices.book import DEFAULT_BOOK, ensure_book
from accounting.prices.versioning import Recording, Validity, make_room, mark_rated_days
from accounting.store.models import Tenant, TenantDiscount
from accounting.store.versions import Known, is_live

_FINEST = -9


def parse_percent(text: str) -> Decimal:
    """Read a discount in per cent, exactly.

    Raises:
        InvalidError: It is no number from 0 to 100 with at most nine digits after the point.
    """
    try:
        percent = plain_decimal(text)
    except InvalidOperation:
        raise InvalidError(f'discount "{text}" is no number; write per cent, like 12.5') from None
    if not percent.is_finite() or not 0 <= percent <= 100:
        raise InvalidError(f'discount "{text}" is not between 0 and 100 per cent')
    exponent = percent.as_tuple().exponent
    if isinstance(exponent, int) and exponent < _FINEST:
        raise InvalidError(f'discount "{text}" is finer than 9 digits after the point')
    return percent


def live_discounts(session: Session, known: Known | None = None) -> list[Discount]:
    """The versions that nobody superseded: now, or as far as was `known`."""
    rows = session.execute(
        select(TenantDiscount, Tenant.path)
        .join(Tenant, Tenant.id == TenantDiscount.tenant_id)
        .where(is_live(TenantDiscount, known))
        .order_by(TenantDiscount.id)
    )
    return [
        Discount(row.id, row.book, path, row.percent, row.valid_from_ms, row.valid_to_ms)
        for row, path in rows
    ]


def list_discounts(session: Session) -> Sequence[tuple[str, TenantDiscount]]:
    """Every version with its tenant's path, in the order in which they were recorded."""
    rows = session.execute(
        select(Tenant.path, TenantDiscount)
        .join(Tenant, Tenant.id == TenantDiscount.tenant_id)
        .order_by(TenantDiscount.id)
    )
    return [(path, row) for path, row in rows]


def set_discount(
    session: Session,
    tenant: Tenant,
    *,
    percent: Decimal,
    valid_from_ms: int,
    by: Viewer,
    now_ms: int,
    valid_to_ms: int | None = None,
    reason: str | None = None,
    book: str = DEFAULT_BOOK,
) -> TenantDiscount:
    """Record a discount; over the same validity as a live version it supersedes that one.

    It holds for the tenant and all below it, unless one of them has its own. One that begins within an
    open-ended one ends it there.

    Raises:
        InvalidError: An empty validity, or no reason to supersede.
        ConflictError: It overlaps a live version of another validity.
    """
    validity = Validity(valid_from_ms, valid_to_ms)
    validity.require("a discount")

    def described(row: TenantDiscount) -> str:
        when = Validity(row.valid_from_ms, row.valid_to_ms).text()
        return f'tenant "{tenant.path}" has {plain(row.percent)} per cent off {when} (version {row.id})'

    ensure_book(session, book, now_ms=now_ms)
    same = (TenantDiscount.tenant_id == tenant.id, TenantDiscount.book == book)
    recording = Recording(by, now_ms, reason)
    room = make_room(session, TenantDiscount, same, validity, recording, described=described)
    version = TenantDiscount(
        tenant_id=tenant.id,
        book=book,
        percent=percent,
        valid_from_ms=valid_from_ms,
        valid_to_ms=valid_to_ms,
        recorded_at_ms=now_ms,
        recorded_by=by.name,
        supersedes_id=room.supersedes_id,
        reason=reason,
    )
    session.add(version)
    session.flush()
    mark_rated_days(session, room.from_ms, valid_to_ms)
    after = {"percent": plain(percent), "valid_from": at_text(valid_from_ms), "reason": reason}
    record(session, at_ms=now_ms, by=by, action="discount set", what=tenant.path, after=after)
    return version
