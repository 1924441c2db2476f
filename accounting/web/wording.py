"""How the pages write figures: the words of the statement, and amounts that carry their currency.

Invariant: a filter rounds for showing what the report gives exactly, as the statement does, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

from accounting.ledger.calendar import at_text, local_text
from accounting.ledger.rounding import card_factor, card_hours, plain, six_digits, to_currency
from accounting.reports import units
from accounting.web.links import api, link
from contract.units import MS_PER_HOUR

MIB_PER_GIB = 1024


def money(amount: Decimal | None, currency: str | None) -> str:
    """A rounded amount with its currency; a dash where there is none."""
    return "–" if amount is None or currency is None else f"{amount:,f} {currency}"


def exact_money(amount: Decimal | None, currency: str | None) -> str:
    """An exact amount, with all its digits but at least those of its currency."""
    if amount is None or currency is None:
        return "–"
    shown = to_currency(amount, currency)
    return f"{shown if shown == amount else amount.normalize():,f} {currency}"


def rounded_money(amount: Decimal | None, currency: str | None) -> str:
    """An exact amount, rounded to its currency's digits."""
    return money(None if amount is None or currency is None else to_currency(amount, currency), currency)


def money_text(amount: str | None, currency: str | None) -> str:
    """An amount of a document, already rounded."""
    return money(None if amount is None else Decimal(amount), currency)


def utc(at_ms: int | None) -> str:
    """An instant in UTC, to the minute."""
    return "never" if at_ms is None else local_text(at_ms, "UTC")


def clock(at_ms: int, time_zone: str) -> str:
    """The time of day of an instant."""
    return local_text(at_ms, time_zone)[11:16]


def time_in_hours(span_ms: int) -> str:
    """A length of time."""
    return f"{Decimal(span_ms) / MS_PER_HOUR:,.2f} h"


def ratio_text(ratio: str | None) -> str:
    """A ratio of a document as per cent."""
    return units.percent(None if ratio is None else Decimal(ratio))


def gib_hours(quantity_mib_ms: int) -> str:
    """Memory over time."""
    return f"{Decimal(quantity_mib_ms) / (MIB_PER_GIB * MS_PER_HOUR):,.1f}"


def signed(text: str) -> str:
    """A figure that is a difference: with its sign, a true minus."""
    if text.startswith("-"):
        return "−" + text[1:]
    return text if text == "–" or not text.strip("0., ABCDEFGHIJKLMNOPQRSTUVWXYZ") else f"+{text}"


def short_hours(quantity_ppm_ms: int) -> str:
    """Card-hours with no more digits than they need."""
    text = f"{card_hours(quantity_ppm_ms, 2):,f}"
    return text.rstrip("0").rstrip(".")


FILTERS: Mapping[str, Callable[..., object]] = {
    "hours": units.hours,
    "short_hours": short_hours,
    "quantity": units.quantity,
    "plain": plain,
    "gib_hours": gib_hours,
    "kwh": units.kwh,
    "percent": units.percent,
    "coverage": units.coverage_text,
    "price_of": units.price_of,
    "price": units.price_text,
    "ratio_text": ratio_text,
    "sm": units.sm_text,
    "sm_ratio": units.sm_ratio_text,
    "peak": units.peak_text,
    "energy": units.energy_text,
    "what": units.what,
    "when": units.when,
    "utc": utc,
    "instant": at_text,
    "clock": clock,
    "span": time_in_hours,
    "money": money,
    "exact": exact_money,
    "rounded": rounded_money,
    "budget": exact_money,
    "money_text": money_text,
    "signed": signed,
}

GLOBALS: Mapping[str, object] = {
    "api": api,
    "link": link,
    "not_measured": units.NOT_MEASURED,
    "factor": card_factor,
    "ratio": six_digits,
}
