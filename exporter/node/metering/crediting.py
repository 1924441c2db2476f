"""Credits what an interval or window brought to one owner: its counters, its tenant's, its hour books.

Runs for every owner at every tick. Invariant: what is added to the books of the hours that an interval
touches adds up to what is added to the owner's counter.
"""

from __future__ import annotations

from exporter.node.metering.hours import HourBooks, HourUse, Piece, shares, widen
from exporter.node.metering.seating import Seat
from exporter.node.metering.settling import Close


def credit_memory(books: HourBooks, seat: Seat, cut: list[Piece], elapsed_ms: int) -> None:
    """Credit an interval's memory, and its time if the owner was held back or used more than its limit."""
    given, owner = seat.given, seat.owner
    used_bytes = given.used_bytes or 0
    is_over = given.limit_bytes is not None and used_bytes > given.limit_bytes
    owner.memory_used.add(used_bytes * elapsed_ms)
    if given.is_blocked:
        owner.blocked_ms += elapsed_ms
    if is_over:
        owner.over_limit_ms += elapsed_ms
    for piece in cut:
        length_ms = piece.to_ms - piece.from_ms
        book = _book(books, seat, piece)
        book.memory_used.add(used_bytes * length_ms)
        if used_bytes > book.memory_peak_bytes:  # noqa: PLR1730 - hundreds a tick
            book.memory_peak_bytes = used_bytes
        if given.is_blocked:
            book.blocked_ms += length_ms
        if is_over:
            book.over_limit_ms += length_ms


def credit_sm(
    books: HourBooks, seat: Seat, used_ppm_ms: int, close: Close, cut: list[Piece], *, is_down: bool
) -> None:
    """Credit an owner's part of a window, or its time as unknown.

    Args:
        books: Where the hours are kept.
        seat: The owner.
        used_ppm_ms: Its SM time in the window, made to add up with that of the others.
        close: The window.
        cut: It, cut at hours.
        is_down: The card counts as down.
    """
    owner, reason = seat.owner, close.unknown.get(seat.given.key)
    owner.sm_ppm_ms += used_ppm_ms
    if reason is not None:
        owner.unknown_ms[reason] += close.span_ms
    if seat.tenant is not None:
        seat.tenant.sm_ppm_ms += used_ppm_ms
    if not owner.is_measured:
        return
    for piece, part in zip(cut, shares(used_ppm_ms, cut), strict=True):
        book = _book(books, seat, piece)
        book.sm_ppm_ms += part
        if is_down:
            book.sm_down_ppm_ms += part
        if reason is not None:
            book.unknown_ms += piece.to_ms - piece.from_ms
            continue
        book.covered_ms += piece.to_ms - piece.from_ms
        if book.source != "nvml":
            book.source = close.rung


def credit_active_energy(books: HourBooks, seat: Seat, energy_mj: int, cut: list[Piece]) -> None:
    """Credit the energy that an owner's own work took."""
    seat.owner.energy_active_mj += energy_mj
    if seat.tenant is not None:
        seat.tenant.energy_mj += energy_mj
    for piece, part in zip(cut, shares(energy_mj, cut), strict=True):
        _book(books, seat, piece).energy_active_mj += part


def credit_idle_energy(seat: Seat, energy_mj: int) -> None:
    """Credit a slice's part of what the card takes while it idles."""
    seat.owner.energy_idle_mj += energy_mj
    if seat.tenant is not None:
        seat.tenant.energy_mj += energy_mj


def _book(books: HourBooks, seat: Seat, piece: Piece) -> HourUse:
    """The book of an owner's hour; looked up once a tick, since nearly every tick is in one hour."""
    book = seat.book
    if book is None or book.hour_ms != piece.hour_ms:
        book = seat.book = books.use(seat.given.key, seat.owner, piece)
    else:
        widen(book, piece)
    return book
