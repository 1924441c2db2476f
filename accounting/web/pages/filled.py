"""What a person filled into a form, read as the API reads its bodies.

Invariant: whatever cannot be read is refused in words that name the field and how to write it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from accounting.access.audit import MAX_REASON
from accounting.errors import AccountingError, ConflictError, InvalidError, NotFoundError
from accounting.ledger.calendar import CalendarError, midnight_ms, parse_instant

MAX_TEXT = 1_000


def text_of(fields: Mapping[str, str], name: str, *, at_most: int = MAX_TEXT) -> str:
    """A field that must be filled.

    Raises:
        InvalidError: It is empty, or too long.
    """
    text = optional_text(fields, name, at_most=at_most)
    if not text:
        raise InvalidError(f"{name.replace('_', ' ')}: fill this in")
    return text


def optional_text(fields: Mapping[str, str], name: str, *, at_most: int = MAX_TEXT) -> str:
    """A field that may be empty.

    Raises:
        InvalidError: It is too long.
    """
    text = fields.get(name, "").strip()
    if len(text) > at_most:
        raise InvalidError(f"{name.replace('_', ' ')}: at most {at_most} characters")
    return text


def reason_of(fields: Mapping[str, str]) -> str | None:
    """The reason, if one was given."""
    return optional_text(fields, "reason", at_most=MAX_REASON) or None


def whole_number(fields: Mapping[str, str], name: str) -> int:
    """A whole number, from 0.

    Raises:
        InvalidError: It is none.
    """
    text = text_of(fields, name)
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InvalidError(f"{name.replace('_', ' ')}: write a whole number, like 100")
    return int(text)


def instant_of(fields: Mapping[str, str], name: str) -> int:
    """An instant, or a day's begin in UTC, in Unix milliseconds.

    Raises:
        InvalidError: It is neither.
    """
    text = text_of(fields, name)
    try:
        if len(text) == len("2026-10-01"):
            return midnight_ms(date.fromisoformat(text), "UTC")
        return parse_instant(text)
    except (CalendarError, ValueError, OverflowError):
        raise InvalidError(
            f'{name}: "{text}" is no instant; write a day in UTC, like 2026-10-01, or an instant with its '
            "offset, like 2026-10-01T00:00:00+02:00"
        ) from None


def optional_instant(fields: Mapping[str, str], name: str) -> int | None:
    """The same where the field may be empty."""
    return instant_of(fields, name) if fields.get(name, "").strip() else None


def status_of(refused: AccountingError) -> int:
    """The status of a page that says so, the one of the API."""
    return 404 if isinstance(refused, NotFoundError) else 409 if isinstance(refused, ConflictError) else 422
