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
from accounting.errors import ConflictError, InvalidError
from accounting.ledger.calendar import at_text
from accounting.ledger.pricing import EVERY_MODEL, SKU_IDLE, SKU_SLICE, Price, plain_model
from accounting.store.models import DeviceHour, PriceBook, PriceVersion, RatingMark
from accounting.store.versions import Known, is_live
from contract.units import MS_PER_HOUR

DEFAULT_BOOK = "list"
UNIT = "card-hour"
SKUS = (SKU_SLICE, SKU_IDLE)

MAX_PRICE = Decimal(10) ** 9
_MS_PER_DAY = 24 * MS_PER_HOUR
_MARKED_BY_PRICE = 1
"""Any number above 0 says that the day must be rated again."""


def parse_unit_price(text: str) -> Decimal:
    """Read a price per card-hour, exactly.

    Raises:
        InvalidError: It is no number, negative, absurd, or finer than 16 digits.
    """
    try:
        unit_price = Decimal(text)
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
        sku: `gpu-slice` or `gpu-idle`.
        model: A GPU model as registered; empty for every model.
        currency: ISO 4217.
        unit_price: Per card-hour.
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
        raise InvalidError(f'SKU "{sku}" is unknown; there are {" and ".join(SKUS)}')
    if valid_to_ms is not None and valid_to_ms <= valid_from_ms:
        raise InvalidError(f"a price from {at_text(valid_from_ms)} cannot end at {at_text(valid_to_ms)}")
    model = plain_model(model)
    wanted = Price(0, book, sku, model, currency, unit_price, valid_from_ms, valid_to_ms)
    supersedes_id = _make_room(session, wanted, reason, by, now_ms)
    if session.get(PriceBook, book) is None:
        session.add(PriceBook(code=book, created_at_ms=now_ms))
        session.flush()
    version = PriceVersion(
        book=book,
        sku=sku,
        model=model,
        currency=currency,
        unit=UNIT,
        unit_price=unit_price,
        valid_from_ms=valid_from_ms,
        valid_to_ms=valid_to_ms,
        recorded_at_ms=now_ms,
        recorded_by=by.name,
        supersedes_id=supersedes_id,
        reason=reason,
    )
    session.add(version)
    session.flush()
    _mark_days(session, wanted)
    after = {"unit_price": format(unit_price, "f"), "valid_from": at_text(valid_from_ms), "reason": reason}
    what = "/".join([book, sku, model or "*", currency])
    record(session, at_ms=now_ms, by=by, action="price set", what=what, after=after)
    return version


def _make_room(session: Session, wanted: Price, reason: str | None, by: Viewer, now_ms: int) -> int | None:
    """Supersede what stands in the way; returns the version of the same validity, if there was one.

    An open-ended price ends where a later one begins: its successor says the same, up to there.
    """
    overlapping = [price for price in live_prices(session) if price.overlaps(wanted)]
    if not overlapping:
        return None
    row = session.get_one(PriceVersion, overlapping[0].id)
    if len(overlapping) == 1 and (row.valid_from_ms, row.valid_to_ms) == (
        wanted.valid_from_ms,
        wanted.valid_to_ms,
    ):
        if not reason:
            raise InvalidError(f"{_described(row)} already; to supersede it say why with --reason")
        row.superseded_at_ms = now_ms
        session.flush()
        return row.id
    if len(overlapping) == 1 and row.valid_to_ms is None and row.valid_from_ms < wanted.valid_from_ms:
        row.superseded_at_ms = now_ms
        session.flush()
        ended = PriceVersion(
            **{
                name: getattr(row, name)
                for name in ("book", "sku", "model", "currency", "unit", "unit_price")
            },
            valid_from_ms=row.valid_from_ms,
            valid_to_ms=wanted.valid_from_ms,
            recorded_at_ms=now_ms,
            recorded_by=by.name,
            supersedes_id=row.id,
            reason=reason or f"another price begins on {at_text(wanted.valid_from_ms)}",
        )
        session.add(ended)
        session.flush()
        _mark_days(session, _price(ended))
        return None
    raise ConflictError(
        f"{_described(row)}; versions must not overlap: supersede it over the same validity, "
        "or begin where it ends"
    )


def _described(row: PriceVersion) -> str:
    until = "" if row.valid_to_ms is None else f" to {at_text(row.valid_to_ms)}"
    what = f'{row.sku} of "{row.model or "every model"}" costs {row.unit_price:f} {row.currency}'
    return f"{what} from {at_text(row.valid_from_ms)}{until} (version {row.id})"


def _mark_days(session: Session, price: Price) -> None:
    """Mark every rated day of a card of this model that the price speaks of."""
    where = [DeviceHour.hour_ms + MS_PER_HOUR > price.valid_from_ms]
    if price.valid_to_ms is not None:
        where.append(DeviceHour.hour_ms < price.valid_to_ms)
    if price.model != EVERY_MODEL:
        where.append(DeviceHour.model == price.model)
    columns = (DeviceHour.cluster, DeviceHour.node_uid, DeviceHour.device_uuid, DeviceHour.hour_ms)
    days = {
        (cluster, node_uid, device_uuid, hour_ms - hour_ms % _MS_PER_DAY)
        for cluster, node_uid, device_uuid, hour_ms in session.execute(select(*columns).where(*where))
    }
    for key in sorted(days):
        mark = session.get(RatingMark, key)
        if mark is None:
            cluster, node_uid, device_uuid, day_ms = key
            session.add(
                RatingMark(
                    cluster=cluster,
                    node_uid=node_uid,
                    device_uuid=device_uuid,
                    day_ms=day_ms,
                    ingest_seq=_MARKED_BY_PRICE,
                )
            )
        else:
            mark.ingest_seq = max(mark.ingest_seq, _MARKED_BY_PRICE)
