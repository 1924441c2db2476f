"""How FOCUS writes a value of each kind; a reader of text that answers why it is not one.

Invariant: nothing here rounds or repairs: a text either is a value or it is named as what it breaks.
Source: `reference/focus-mapping.md §2`.
"""

from __future__ import annotations

import json
import re
from decimal import Context, Decimal, Inexact
from typing import NoReturn

from accounting.focus.lists import NATIONAL_CURRENCIES
from accounting.ledger.calendar import CalendarError, parse_instant

EXACT = Context(prec=200, traps=[Inexact])
"""Wide enough for a product of two numbers of 38 digits; what does not fit is an error, never rounded."""

MAX_DIGITS = 38
"""Of a decimal that Parquet and every warehouse can hold."""

PLACEHOLDERS = frozenset({"n/a", "-", "--"})
"""What stands for no value in other people's files, and can be no name of anything here."""

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?(E-?[0-9]{1,2})?")
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_NOUN = r"[A-Za-z][A-Za-z0-9]*(?: [A-Z][A-Za-z0-9]*)*"
_SINGULAR_TIMES = frozenset({"Second", "Minute", "Hour", "Day", "Month", "Year"})
_PLURAL_TIMES = frozenset(f"{time}s" for time in _SINGULAR_TIMES)
_SIZES = frozenset(f"{size}{unit}" for size in "KMGTPE" for unit in ("B", "iB", "b", "ib")) | {"B", "b"}
_OWN_ABBREVIATIONS = frozenset({"kWh", "MWh", "Wh"})
_UNIT = re.compile(rf"(?:[1-9][0-9]* )?(?P<noun>{_NOUN})(?P<per>[-/])?(?P<time>[A-Za-z]+)?")


def number(text: str) -> Decimal | None:
    """A decimal as FOCUS writes it; None: it is none, or holds more digits than a decimal may."""
    if not _NUMBER.fullmatch(text):
        return None
    value = Decimal(text)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    del sign
    whole = len(digits) + exponent
    return value if max(whole, 0) + max(-exponent, 0) <= MAX_DIGITS else None


def instant_ms(text: str) -> int | None:
    """An instant in UTC, as `2026-10-01T00:00:00Z`; None: it is none."""
    if not _INSTANT.fullmatch(text):
        return None
    try:
        return parse_instant(text)
    except CalendarError:
        return None


def is_national_currency(text: str) -> bool:
    """Whether it is money of a country or currency union."""
    return text in NATIONAL_CURRENCIES


def is_unit(text: str) -> bool:
    """Whether it is a unit: `Hours`, `GPU-Hours`, `GB/Hour`, `1000 Tokens`, `kWh`."""
    match = _UNIT.fullmatch(text)
    if match is None:
        return False
    noun, per, time = match["noun"], match["per"], match["time"]
    if per is None:
        return time is None and (noun in _SIZES or noun in _OWN_ABBREVIATIONS or _is_plural(noun))
    if noun not in _SIZES and not noun[0].isupper():
        return False
    return time in (_PLURAL_TIMES if per == "-" else _SINGULAR_TIMES)


def _is_plural(noun: str) -> bool:
    return noun[0].isupper() and noun.endswith("s")


class JsonError(ValueError):
    """Not a JSON object with unique keys."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise JsonError("a key stands twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is no JSON")


def _json_number(text: str) -> Decimal:
    """A number of JSON, small enough to be added up exactly."""
    value = number(text.upper().replace("E+", "E"))
    if value is None:
        raise JsonError(f"it holds a number of more than {MAX_DIGITS} digits")
    return value


def json_object(text: str) -> dict[str, object]:
    """A JSON object.

    Raises:
        JsonError: It is none, or a key stands twice in it.
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_json_number,
            parse_int=_json_number,
        )
    except JsonError:
        raise
    except (ValueError, RecursionError):
        raise JsonError("it is no JSON") from None
    if not isinstance(value, dict):
        raise JsonError("it is no JSON object")
    return value


def is_scalar(value: object) -> bool:
    """Whether a value of a key-value column is flat."""
    return value is None or isinstance(value, str | Decimal | bool)
