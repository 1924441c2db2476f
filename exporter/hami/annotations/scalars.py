"""The scalars inside annotations, read as strictly as Go reads them: numbers, booleans, times, ids.

Anyone who may edit a pod may write these texts. Python's own `int` and `bool` would also take Unicode
digits, underscores and 4,000-digit numbers; nothing here does. Invariant: text in, a value or None out.
"""

from __future__ import annotations

import re

from exporter.kube.objects import parse_time_ms

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_INT32_MAX = 2**31 - 1
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_ID_CHARACTERS = 128
_TEXT_CHARACTERS = 256


def whole(value: object, *, at_least: int = 0) -> int | None:
    """A whole number of 32 bits from text or JSON, not below `at_least`; HAMi parses with 32 bits too."""
    if isinstance(value, str):
        number = int(value) if _INTEGER.fullmatch(value) else None
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        number = None
    return number if number is not None and at_least <= number <= _INT32_MAX else None


def boolean(text: str) -> bool | None:
    """A boolean in the spellings of Go's `strconv.ParseBool`."""
    return _BOOLEANS.get(text)


def rfc3339_ms(text: str) -> int | None:
    """Unix milliseconds of a time that Go's RFC 3339 layout accepts; blanks around it are no part of it."""
    return parse_time_ms(text) if _RFC3339.fullmatch(text) else None


def is_id(text: str) -> bool:
    """True for a text fit to be a device id: short, printable, without blanks."""
    return 0 < len(text) <= _ID_CHARACTERS and text.isprintable() and " " not in text


def is_text(value: object) -> bool:
    """True for a short printable text (a model name, a mode)."""
    return isinstance(value, str) and len(value) <= _TEXT_CHARACTERS and value.isprintable()
