"""A statement's lines by project and model: what a team reads first.

Invariant: the groups are the statement's lines, each in exactly one, so their exact amounts are its amount;
each is rounded by itself, and the statement's total stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from accounting.ledger.rounding import exact_sum, to_currency
from accounting.periods.statement import Statement, StatementLine


@dataclass(frozen=True, slots=True)
class StatementGroup:
    """The lines of one tenant on one model."""

    tenant: str
    model: str
    lines: int
    charged_ppm_ms: int
    """Card time of its lines, idle capacity and what was handed on included."""
    energy_mj: int
    amount: Decimal | None
    shown: Decimal | None


def group_lines(statement: Statement) -> list[StatementGroup]:
    """The lines of a statement by tenant and model; adjustments have no model."""
    groups: dict[tuple[str, str], list[StatementLine]] = {}
    for line in statement.lines:
        groups.setdefault((line.tenant, line.model), []).append(line)
    return [
        _group(tenant, model, lines, statement.currency) for (tenant, model), lines in sorted(groups.items())
    ]


def _group(tenant: str, model: str, lines: list[StatementLine], currency: str | None) -> StatementGroup:
    amounts = [line.amount for line in lines if line.amount is not None]
    # Nothing that has a price is no amount, never 0.
    amount = None if currency is None or not amounts else exact_sum(amounts)
    return StatementGroup(
        tenant=tenant,
        model=model,
        lines=len(lines),
        charged_ppm_ms=sum(line.charged_ppm_ms for line in lines),
        energy_mj=sum(line.energy_mj for line in lines),
        amount=amount,
        shown=None if amount is None or currency is None else to_currency(amount, currency),
    )
