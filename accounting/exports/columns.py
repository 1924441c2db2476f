"""A column of an exported file, and how a value of it reads as text.

Invariant: one value has one text, without exponents or zeros that say nothing, whatever number of digits
its database gives it; a null is no text.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TypeAlias

from accounting.ledger.calendar import at_text
from accounting.ledger.rounding import plain

Value: TypeAlias = str | int | Decimal | None
"""An instant is whole Unix milliseconds."""

Kind: TypeAlias = Literal["text", "count", "decimal", "instant"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: Its heading.
        kind: What its values are.
        digits: Of a decimal: at most so many after the point; more are an error, never rounded.
        keeps_zeros: Of a decimal: shown with all digits that its currency has.
        has_point: Of a decimal: always with a point, for whoever guesses types from what is written.
    """

    name: str
    kind: Kind = "text"
    digits: int = 0
    keeps_zeros: bool = False
    has_point: bool = False

    def text(self, value: Value) -> str:
        """A value as text; a null is empty."""
        if value is None:
            return ""
        if self.kind == "decimal":
            assert isinstance(value, Decimal)
            text = f"{value:f}" if self.keeps_zeros else plain(value)
            return f"{text}.0" if self.has_point and "." not in text else text
        if self.kind == "instant":
            assert isinstance(value, int)
            return at_text(value)
        return str(value)
