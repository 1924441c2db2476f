"""What a slice costs at most, whoever shares its card.

Invariant: the card time that a sweep charges a slice is never more than what is quoted for its size and
length. A share is rounded up to a whole millionth of the card, so that not even the rounding of however
many segments can exceed it. Source: `reference/ledger.md §2` (own share), behaviour 10.
"""

from __future__ import annotations

from accounting.ledger.shares import Grant, Policy, card_units, share_units
from contract.units import PPM


def share_bound_ppm(grant: Grant, registered_mib: int, model: str, policy: Policy) -> int:
    """A slice's own share of its card in millionths, rounded up; neighbours can only lower it."""
    units = share_units(grant, registered_mib, model, policy)
    return -(-PPM * units // card_units(registered_mib, model))
