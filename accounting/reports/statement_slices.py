"""A statement's lines by slice: what each pod came to in the month, and what of it was used.

Invariant: every line of a slice is in exactly one group; what was not measured is counted, never taken for 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from accounting.ledger.rounding import exact_sum, to_currency
from accounting.periods.statement import Statement, StatementLine
from accounting.periods.use import Use, add_uses


@dataclass(frozen=True, slots=True)
class StatementSlice:
    """The lines of one slice of one tenant."""

    allocation_id: str
    tenant: str
    namespace: str
    pod: str
    container: str
    cluster: str
    node: str
    device_uuid: str
    model: str
    from_ms: int
    to_ms: int
    own_ppm_ms: int
    charged_ppm_ms: int
    held_not_running_ppm_ms: int
    measured_charged_ppm_ms: int
    """Of the charge, that of lines beside which use was measured."""
    use: Use | None
    amount: Decimal | None
    shown: Decimal | None


def slices_of(statement: Statement) -> list[StatementSlice]:
    """The slices of a statement, the costliest first."""
    groups: dict[tuple[str, str], list[StatementLine]] = {}
    for line in statement.lines:
        if line.kind == "usage":
            groups.setdefault((line.resource_key, line.tenant), []).append(line)
    found = [_slice(lines, statement.currency) for lines in groups.values()]
    return sorted(
        found, key=lambda one: (-(one.amount or Decimal(0)), -one.charged_ppm_ms, one.namespace, one.pod)
    )


def _slice(lines: list[StatementLine], currency: str | None) -> StatementSlice:
    last = lines[-1]
    amounts = [line.amount for line in lines if line.amount is not None]
    # Nothing that has a price is no amount, never 0.
    amount = None if currency is None or not amounts else exact_sum(amounts)
    return StatementSlice(
        allocation_id=last.resource_key,
        tenant=last.tenant,
        namespace=last.namespace,
        pod=last.pod,
        container=last.container,
        cluster=last.cluster,
        node=last.node,
        device_uuid=last.device_uuid,
        model=last.model,
        from_ms=min(line.charge_from_ms for line in lines),
        to_ms=max(line.charge_to_ms for line in lines),
        own_ppm_ms=sum(line.own_ppm_ms for line in lines),
        charged_ppm_ms=sum(line.charged_ppm_ms for line in lines),
        held_not_running_ppm_ms=sum(line.held_not_running_ppm_ms for line in lines),
        measured_charged_ppm_ms=sum(line.charged_ppm_ms for line in lines if line.use is not None),
        use=add_uses(line.use for line in lines),
        amount=amount,
        shown=None if amount is None or currency is None else to_currency(amount, currency),
    )
