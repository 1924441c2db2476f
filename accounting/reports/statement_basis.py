"""What a statement rests on: versions of prices and policies, and use beside what was paid for.

Invariant: every version that made a line of the statement is named, and no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from accounting.periods.statement import Statement
from accounting.reports.units import price_text


@dataclass(frozen=True, slots=True)
class PriceUsed:
    """One price that lines were made with."""

    sku: str
    model: str
    unit_price: Decimal
    version: int
    lines: int
    text: str
    """The price, with at least the digits of its currency."""


@dataclass(frozen=True, slots=True)
class Basis:
    """What the figures of a statement rest on."""

    prices: tuple[PriceUsed, ...]
    policies: tuple[int, ...]
    """Versions; lines made by a policy's default name none."""
    has_default_policy: bool
    measured_lines: int
    slice_lines: int
    above_share_ppm_ms: int | None
    """SM time beyond the own share, day by day; None: nothing was measured."""
    measured_own_ppm_ms: int
    """The own share of the lines beside which use was measured."""


def basis_of(statement: Statement) -> Basis:
    """Read it off the lines."""
    prices: dict[tuple[str, str, Decimal, int], int] = {}
    for line in statement.lines:
        if line.unit_price is not None and line.price_version is not None:
            key = line.sku, line.model, line.unit_price, line.price_version
            prices[key] = prices.get(key, 0) + 1
    of_slices = [line for line in statement.lines if line.kind == "usage"]
    above = [max(0, line.use.sm_ppm_ms - line.own_ppm_ms) for line in of_slices if line.use is not None]
    ruled = [line for line in statement.lines if line.kind in {"usage", "energy", "unallocated"}]
    return Basis(
        prices=tuple(
            PriceUsed(*key, count, price_text(key[2], statement.currency))
            for key, count in sorted(prices.items())
        ),
        policies=tuple(sorted({one.policy_version for one in statement.lines if one.policy_version})),
        has_default_policy=any(line.policy_version is None for line in ruled),
        measured_lines=len(above),
        slice_lines=len(of_slices),
        above_share_ppm_ms=sum(above) if above else None,
        measured_own_ppm_ms=sum(line.own_ppm_ms for line in of_slices if line.use is not None),
    )
