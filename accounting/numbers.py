"""Numbers as people write them in prices, discounts and amounts: one spelling, read exactly.

Invariant: what is read is what a person sees. `Decimal` alone also reads `1_0`, `1E+1`, `-0`, `NaN`, blanks
around a number, and the digits of every script.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

_PLAIN = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


def plain_decimal(text: str) -> Decimal:
    """Read digits, with a point and digits behind it or without, and a minus in front of what is below 0.

    Raises:
        InvalidOperation: It is anything else, as from `Decimal`.
    """
    number = Decimal(text) if _PLAIN.fullmatch(text) else Decimal("NaN")
    if number.is_nan() or (not number and number.is_signed()):
        raise InvalidOperation(f"{text!r} is no plain number")
    return number
