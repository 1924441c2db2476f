"""Column types: the only ways a time or an amount may be stored, so that no float can slip in.

Invariant: a time is a whole number of Unix milliseconds (UTC), an amount is a `Decimal`; both come back
exactly as they went in. SQLite's NUMERIC is a float, so amounts are text there, and sums over them are
made in Python (`reference/ledger.md §13`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from sqlalchemy import BigInteger, Dialect, Integer, Numeric, String
from sqlalchemy.types import TypeDecorator, TypeEngine

MAX_UNIX_MS = 253_402_300_800_000
"""The year 10000: anything at or beyond it is no time of ours."""

LONG_ID = BigInteger().with_variant(Integer(), "sqlite")
"""A 64-bit identity; SQLite counts up by itself only in a column of type INTEGER."""


class UnixMs(TypeDecorator[int]):
    """An instant as whole Unix milliseconds, UTC."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:  # noqa: ARG002 - SQLAlchemy's signature
        """Refuse what is no whole number of milliseconds, a float above all."""
        if value is None:
            return None
        if type(value) is not int:
            raise TypeError(f"a time is a whole number of Unix milliseconds, not {value!r}")
        if not 0 <= value < MAX_UNIX_MS:
            raise ValueError(f"{value} is no time in Unix milliseconds")
        return value


class Exact(TypeDecorator[Decimal]):
    """An amount or price: a finite `Decimal`, exact to its last digit."""

    impl = String(60)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Text where NUMERIC is a float, NUMERIC elsewhere."""
        return dialect.type_descriptor(String(60) if dialect.name == "sqlite" else Numeric(38, 17))

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> str | Decimal | None:
        """Refuse what is no finite `Decimal`."""
        if value is None:
            return None
        if not isinstance(value, Decimal):
            raise TypeError(f"an amount is a Decimal, not {value!r}")
        if not value.is_finite():
            raise ValueError(f"an amount is finite, not {value}")
        return format(value, "f") if dialect.name == "sqlite" else value

    def process_result_value(self, value: str | Decimal | None, dialect: Dialect) -> Decimal | None:  # noqa: ARG002 - SQLAlchemy's signature
        """Give back the `Decimal` that went in."""
        return None if value is None else Decimal(value)
