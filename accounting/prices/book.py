"""Price versions in the store: read as `Price`, set with their reason, never edited.

Invariant: live versions of one (book, SKU, model, currency) never overlap. A version that is replaced
stays readable, with who replaced it, when and why. Source: `reference/ledger.md §4`.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.access.audit import record
from accounting.access.viewer import Viewer
from accounting.errors import InvalidError
from accounting.ledger.calendar import at_text
from accounting.ledger.pricing import EVERY_MODEL, UNITS, Price, plain_model
from accounting.ledger.rounding import plain
from accounting.numbers import plain_decimal
from accounting.prices.versioning import Recording, Validity, make_room, mark_rated_days
from accounting.store.models import PriceBook, PriceVersion
from accounting.store.versions import Known, is_live

DEFAULT_BOOK = "list"
MAX_MODEL = 253
SKUS = tuple(UNITS)

MAX_PRICE = Decimal(10) ** 9


def parse_unit_price(text: str) -> Decimal:
    """Read a price per card-hour, exactly.

    Raises:
        InvalidError: It is no number, negative, absurd, or finer than 16 digits.
    """
    try:
        unit_price = plain_decimal(text)
    except InvalidOperation:
        raise InvalidError(f'price "{text}" is no number; write it like 2.40') from None
    if not unit_price.is_finite() or not 0 <= unit_price <= MAX_PRICE:
        raise InvalidError(f'price "{text}" is not between 0 and {MAX_PRICE:f} a card-hour')
    exponent = unit_price.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -16:
        raise InvalidError(f'price "{text}" is finer than 16 digits after the point')
    return unit_price


def parse_currency(text: str) -> str:
    """Read a currency code.

    Raises:
        InvalidError: It is not three letters.
    """
    code = text.upper()
    if len(code) != 3 or not code.isascii() or not code.isalpha():
        raise InvalidError(f'currency "{text}" is no ISO 4217 code; write it like EUR')
    return code


def live_prices(session: Session, known: Known | None = None) -> list[Price]:
    """The versions that nobody superseded: now, or as far as was `known`."""
    rows = session.scalars(select(PriceVersion).where(is_live(PriceVersion, known)).order_by(PriceVersion.id))
    return [_price(row) for row in rows]


def list_versions(session: Session) -> Sequence[PriceVersion]:
    """Every version, superseded ones included, in the order in which they were recorded."""
    return session.scalars(select(PriceVersion).order_by(PriceVersion.id)).all()


def _price(row: PriceVersion) -> Price:
    return Price(
        id=row.id,
        book=row.book,
        sku=row.sku,
        model=row.model,
        currency=row.currency,
        unit_price=row.unit_price,
        valid_from_ms=row.valid_from_ms,
        valid_to_ms=row.valid_to_ms,
    )


def set_price(
    session: Session,
    *,
    sku: str,
    model: str,
    currency: str,
    unit_price: Decimal,
    valid_from_ms: int,
    by: Viewer,
    now_ms: int,
    valid_to_ms: int | None = None,
    reason: str | None = None,
    book: str = DEFAULT_BOOK,
) -> PriceVersion:
    """Record a price; over the same validity as a live version it supersedes that one.

    A price that begins within an open-ended one ends it there.

    Days already rated that it touches are marked, so the next rating applies it to open periods.

    Args:
        session: A writing transaction.
        sku: One of `SKUS`.
        model: A GPU model as registered; empty for every model.
        currency: ISO 4217.
        unit_price: Per card-hour, or per kWh of energy.
        valid_from_ms: The first instant of use that it holds for.
        by: Who sets it.
        now_ms: The clock.
        valid_to_ms: The first instant that it no longer holds for; None: until further notice.
        reason: Why; must be given to supersede.
        book: The price book.

    Raises:
        InvalidError: An unknown SKU, an empty validity, or no reason to supersede.
        ConflictError: It overlaps a live version of another validity.
    """
    if sku not in SKUS:
        raise InvalidError(f'SKU "{sku}" is unknown; there are {", ".join(SKUS)}')
    model = plain_model(model)
    if len(model) > MAX_MODEL or not model.isprintable():
        raise InvalidError(f"a model has at most {MAX_MODEL} printable characters, as in a node's register")
    validity = Validity(valid_from_ms, valid_to_ms)
    validity.require("a price")
    same = (
        PriceVersion.book == book,
        PriceVersion.sku == sku,
        PriceVersion.model == model,
        PriceVersion.currency == currency,
    )
    recording = Recording(by, now_ms, reason)
    room = make_room(session, PriceVersion, same, validity, recording, described=_described)
    ensure_book(session, book, now_ms=now_ms)
    version = PriceVersion(
        book=book,
        sku=sku,
        model=model,
        currency=currency,
        unit=UNITS[sku],
        unit_price=unit_price,
        valid_from_ms=valid_from_ms,
        valid_to_ms=valid_to_ms,
        recorded_at_ms=now_ms,
        recorded_by=by.name,
        supersedes_id=room.supersedes_id,
        reason=reason,
    )
    session.add(version)
    session.flush()
    mark_rated_days(session, room.from_ms, valid_to_ms, model=None if model == EVERY_MODEL else model)
    after = {"unit_price": format(unit_price, "f"), "valid_from": at_text(valid_from_ms), "reason": reason}
    what = "/".join([book, sku, model or "*", currency])
    record(session, at_ms=now_ms, by=by, action="price set", what=what, after=after)
    return version


def ensure_book(session: Session, code: str, *, now_ms: int) -> None:
    """Make a price book at its first use."""
    if session.get(PriceBook, code) is None:
        session.add(PriceBook(code=code, created_at_ms=now_ms))
        session.flush()


def _described(row: PriceVersion) -> str:
    what = f'{row.sku} of "{row.model or "every model"}" costs {plain(row.unit_price)} {row.currency}'
    return f"{what} {Validity(row.valid_from_ms, row.valid_to_ms).text()} (version {row.id})"
