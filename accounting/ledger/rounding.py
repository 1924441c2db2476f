"""Rounding of money: half even, once, in sight.

Invariant: a statement's total is the exact sum rounded once, and the shown lines plus the rounding line
equal it. Amounts are `Decimal` from strings, never float. Source: `reference/ledger.md §4, §13`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import lru_cache

from contract.units import CARD_HOUR_PPM_MS, MJ_PER_KWH

EXACT = Context(prec=50, rounding=ROUND_HALF_EVEN)
"""Wide enough for any sum of ours; the default context's 28 digits are not."""

_STEP_EXPONENT = -17

AMOUNT_STEP = Decimal(1).scaleb(_STEP_EXPONENT)
"""The last digit of a stored amount (`numeric(38,17)`)."""

_NOTHING = Decimal(0)

_NO_MINOR_UNIT = frozenset(
    {
        "BIF",
        "CLP",
        "DJF",
        "GNF",
        "ISK",
        "JPY",
        "KMF",
        "KRW",
        "PYG",
        "RWF",
        "UGX",
        "UYI",
        "VND",
        "VUV",
        "XAF",
        "XOF",
        "XPF",
    }
)
_THREE_DIGITS = frozenset({"BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"})


@dataclass(frozen=True, slots=True)
class Rounded:
    """Amounts as shown, and what makes them add up."""

    shown: tuple[Decimal, ...]
    rounding: Decimal
    total: Decimal


def minor_digits(currency: str) -> int:
    """Digits after the point of a currency (ISO 4217): 0, 2 or 3."""
    if currency in _NO_MINOR_UNIT:
        return 0
    return 3 if currency in _THREE_DIGITS else 2


def to_currency(amount: Decimal, currency: str) -> Decimal:
    """An amount with the digits of its currency, half even."""
    return amount.quantize(Decimal(1).scaleb(-minor_digits(currency)), context=EXACT)


def exact_sum(amounts: Iterable[Decimal]) -> Decimal:
    """The sum, in a context that loses no digit."""
    total = Decimal(0)
    for amount in amounts:
        total = EXACT.add(total, amount)
    return total


def round_statement(amounts: Sequence[Decimal], currency: str) -> Rounded:
    """Round each line for showing and the sum once; the difference becomes the rounding line."""
    shown = tuple(to_currency(amount, currency) for amount in amounts)
    total = to_currency(exact_sum(amounts), currency)
    return Rounded(shown=shown, rounding=EXACT.subtract(total, exact_sum(shown)), total=total)


PPM_MS, MJ = "ppm_ms", "mj"

_OF_ONE_UNIT_PRICE = {PPM_MS: CARD_HOUR_PPM_MS, MJ: MJ_PER_KWH}
"""By unit of quantity: how many of them one unit price buys (a card-hour, a kWh)."""


def amount_of(
    quantity: int, unit_price: Decimal, *, unit: str = PPM_MS, percent: Decimal | None = None
) -> Decimal:
    """What a quantity costs, less a discount, to the last digit that is stored.

    Args:
        quantity: Whole ppm·ms or mJ.
        unit_price: Per card-hour or kWh.
        unit: Of the quantity.
        percent: The discount; None is 0.
    """
    numerator, divisor = _steps_of_one(unit_price, unit, percent or _NOTHING)
    steps, rest = divmod(quantity * numerator, divisor)
    if 2 * rest > divisor or (2 * rest == divisor and steps % 2):
        steps += 1
    return Decimal(steps).scaleb(_STEP_EXPONENT, EXACT)


@lru_cache(maxsize=4096)
def _steps_of_one(unit_price: Decimal, unit: str, percent: Decimal) -> tuple[int, int]:
    """How many of the last digits that are stored one unit of quantity costs, as a fraction."""
    price, of_price = unit_price.as_integer_ratio()
    part, of_part = EXACT.subtract(Decimal(100), percent).as_integer_ratio()
    return price * part * 10**-_STEP_EXPONENT, of_price * of_part * 100 * _OF_ONE_UNIT_PRICE[unit]


def plain(number: Decimal) -> str:
    """A number without exponent or trailing zeros, however many digits its store gives it; 0 has no sign."""
    return f"{number.normalize(EXACT):f}" if number else "0"


def card_hours(quantity_ppm_ms: int, digits: int = 6) -> Decimal:
    """Card time in card-hours, for showing; the whole number beside it is the exact value."""
    exact = EXACT.divide(Decimal(quantity_ppm_ms), Decimal(CARD_HOUR_PPM_MS))
    return exact.quantize(Decimal(1).scaleb(-digits), context=EXACT)


_SIX_DIGITS = Decimal("0.000001")


def six_digits(part: int, whole: int) -> Decimal | None:
    """A part of a whole to six digits, for showing; None: of nothing."""
    return EXACT.divide(Decimal(part), Decimal(whole)).quantize(_SIX_DIGITS, context=EXACT) if whole else None


def card_factor(own_quantity: int, charged_quantity: int) -> Decimal | None:
    """What over-booking left of the own share: charged of own, to six digits; None: nothing was held."""
    return six_digits(charged_quantity, own_quantity)
