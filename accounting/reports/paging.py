"""Pages of a sorted list, each beginning behind the last key of the one before.

Invariant: whoever walks all pages gets every row that was there from the start exactly once, however many
rows are added meanwhile, because a page begins behind a key and not at a number.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import msgspec

from accounting.errors import InvalidError

MAX_LIMIT = 5_000

_END = 2**47
"""Above any instant and number of a row of ours, by which a database skips."""
_WIDEST = 2**63
"""Beyond what a key may hold, whose list is sorted here: below 0 too, where the largest comes first."""

Key: TypeAlias = tuple[int | str, ...]
"""Unique, and the order of the list."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which page: at most `limit` rows (None: all) behind a cursor."""

    limit: int | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Rows, and the cursor of the next page (None: this was the last)."""

    rows: Sequence[Row]
    next: str | None


EVERYTHING = Asked()


def page_of(rows: Sequence[Row], key_of: Callable[[Row], Key], asked: Asked) -> Page[Row]:
    """Cut one page out of rows that are sorted by their key.

    Raises:
        InvalidError: The cursor is none of ours.
    """
    left = rows
    if asked.cursor is not None:
        after = _read(asked.cursor, key_of(rows[0]) if rows else None)
        left = [row for row in rows if key_of(row) > after]
    return page_cut(left, key_of, asked)


def cursor_after(asked: Asked, *, like: Key) -> Key | None:
    """The key behind which the page begins, for a database that skips by itself; None: at the start.

    Raises:
        InvalidError: The cursor is none of ours.
    """
    if asked.cursor is None:
        return None
    key = _read(asked.cursor, like)
    if any(isinstance(part, int) and not 0 <= part < _END for part in key):
        raise _refused()
    return key


def page_cut(left: Sequence[Row], key_of: Callable[[Row], Key], asked: Asked) -> Page[Row]:
    """A page out of the rows behind its cursor, of which one more than its limit is enough."""
    if asked.limit is None or len(left) <= asked.limit:
        return Page(left, None)
    cut = left[: asked.limit]
    return Page(cut, _write(key_of(cut[-1])))


def _write(key: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def _read(cursor: str, like: Key | None) -> Key:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        key = tuple(msgspec.json.decode(text, type=list[int | str]))
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise _refused() from None
    if like is not None and [type(part) for part in key] != [type(part) for part in like]:
        raise _refused()
    # What no key of ours holds, and a database would choke on.
    if any("\0" in part if isinstance(part, str) else not -_WIDEST <= part < _WIDEST for part in key):
        raise _refused()
    return key


def _refused() -> InvalidError:
    return InvalidError("the cursor is none of this list; take it from `next` of the page before")
