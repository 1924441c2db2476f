"""How quantities and instants read for people; the exact figures stand in JSON and CSV."""

from __future__ import annotations

from decimal import Decimal

from accounting.ledger.calendar import at_text, local_text
from accounting.ledger.rounding import card_hours, to_currency
from accounting.periods.coverage import Coverage
from accounting.periods.statement import StatementLine
from accounting.periods.use import Use
from contract.units import MJ_PER_KWH, PPM

NOT_MEASURED = "not measured"


def hours(quantity_ppm_ms: int) -> str:
    """Card time in card-hours, to four digits."""
    return f"{card_hours(quantity_ppm_ms, 4):,f}"


def percent(ratio: Decimal | None) -> str:
    """A ratio as per cent."""
    return "–" if ratio is None else f"{ratio * 100:.2f} %"


def coverage_text(coverage: Coverage) -> str:
    """How much of the presence was confirmed."""
    return percent(coverage.ratio)


def amount_text(amount: Decimal | None) -> str:
    """A rounded amount with thousands apart."""
    return "–" if amount is None else f"{amount:,f}"


def price_text(unit_price: Decimal | None, currency: str | None) -> str:
    """A price per card-hour, with at least the digits of its currency."""
    if unit_price is None or currency is None:
        return "unrated"
    plain = unit_price.normalize()
    least = to_currency(unit_price, currency)
    return f"{least if least == plain else plain:f}"


def price_of(line: StatementLine, currency: str | None) -> str:
    """The price of a line; nothing where an amount has none, as a correction from one price to another."""
    if line.unit_price is None and line.amount is not None:
        return ""
    return price_text(line.unit_price, currency)


def sm_text(use: Use | None) -> str:
    """SM time, in hours of the whole card."""
    return NOT_MEASURED if use is None else hours(use.sm_ppm_ms)


def sm_ratio_text(use: Use | None) -> str:
    """Mean SM use of the card while it was measured."""
    if use is None or not use.covered_ms:
        return NOT_MEASURED
    return percent(Decimal(use.sm_ppm_ms) / Decimal(use.covered_ms * PPM))


def peak_text(use: Use | None) -> str:
    """The memory peak in MiB."""
    return NOT_MEASURED if use is None else f"{use.mem_peak_mib:,} MiB"


def energy_text(use: Use | None) -> str:
    """The active energy in kWh."""
    if use is None:
        return NOT_MEASURED
    return kwh(use.energy_active_mj)


def kwh(energy_mj: int) -> str:
    """Energy in kWh, to four digits."""
    return f"{Decimal(energy_mj) / Decimal(MJ_PER_KWH):,.4f} kWh"


def what(line: StatementLine) -> str:
    """What a line is for."""
    if line.kind == "adjustment":
        return f"adjustment: {line.reason}"
    if line.kind == "correction":
        return f"correction of {line.corrects_day}: {_thing(line, line.corrects_kind or '')}"
    return _thing(line, line.kind)


def _thing(line: StatementLine, kind: str) -> str:
    if line.energy_mj:
        return "energy without an allocation" if kind == "unallocated" else "energy"
    if kind == "idle":
        return "idle capacity"
    if line.kind == "distribution":
        return "idle capacity handed on"
    pod = f"{line.namespace}/{line.pod} · {line.container}"
    return f"{pod}, without an allocation" if kind == "unallocated" else pod


def quantity(line: StatementLine) -> str:
    """What a line is charged for: card-hours, or energy with its unit."""
    return kwh(line.energy_mj) if line.energy_mj else hours(line.charged_ppm_ms)


def when(at_ms: int | None, time_zone: str) -> str:
    """An instant on the clock of a zone."""
    return "never" if at_ms is None else local_text(at_ms, time_zone)


def exactly(at_ms: int | None) -> str:
    """An instant for machines."""
    return "" if at_ms is None else at_text(at_ms)
