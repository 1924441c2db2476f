"""Idle capacity handed on to those who held a part of the pool: by how much, to the last unit.

Invariant: what the receivers get is what the pool had, in card time and in money, whatever the order of
the receivers and the digits of the currency. Weights that are all 0 hand nothing on: no division, no
lost total. Source: `reference/ledger.md §3`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from accounting.ledger.rounding import AMOUNT_STEP, EXACT
from contract.apportion import apportion

KEEP, EVEN, BY_ALLOCATION = "keep", "even", "by_allocation"


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Idle card time, and what it costs (None: unrated, or no currency)."""

    quantity_ppm_ms: int
    amount: Decimal | None


def weights_of(held_ppm_ms: Mapping[str, int], policy: str) -> dict[str, int]:
    """What each tenant of the pool bears, in proportion; empty when nobody bears anything.

    Args:
        held_ppm_ms: By tenant its own share × time in the pool; who held nothing is not active there.
        policy: `keep`, `even` (equal parts) or `by_allocation` (by what was held).
    """
    active = {tenant: held for tenant, held in sorted(held_ppm_ms.items()) if held > 0}
    if policy == EVEN:
        return dict.fromkeys(active, 1)
    return active if policy == BY_ALLOCATION else {}


def distribute_idle(idle: IdleTime, weights: Mapping[str, int]) -> dict[str, IdleTime]:
    """Split idle time and its amount by weights; empty when there is nobody to take it."""
    if not any(weights.values()):
        return {}
    tenants = sorted(weights)
    order = [weights[tenant] for tenant in tenants]
    quantities = apportion(idle.quantity_ppm_ms, order)
    amounts: list[Decimal | None] = [None] * len(tenants)
    if idle.amount is not None:
        steps = int(EXACT.divide(idle.amount, AMOUNT_STEP))
        amounts = [EXACT.multiply(Decimal(part), AMOUNT_STEP) for part in apportion(steps, order)]
    return {
        tenant: IdleTime(quantity, amount)
        for tenant, quantity, amount in zip(tenants, quantities, amounts, strict=True)
    }
