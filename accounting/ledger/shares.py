"""The one function that computes a share: page, API, export, explain and the sweep all call it.

In whole numbers only: with a card of `D` units every share is a whole number of units, and a stretch of
time is divided by those units with the largest remainder, so nothing is ever sold twice or lost.
Source: `reference/ledger.md §2` (Integers).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from contract.apportion import apportion
from contract.units import PPM

Policy = Literal["dominant", "memory", "whole_card"]
"""What a slice pays for: what it blocks most of, its memory, or an equal part of the card."""

POLICIES: tuple[Policy, ...] = ("dominant", "memory", "whole_card")

CORE_PERCENT_OF_CARD = 100
_DEFAULT_MIG_SLICES = 7
_FOUR_SLICE_MODELS = re.compile(r"\bA30\b")
_MIG_PROFILE = re.compile(r"\b(\d)g\.")


class Grant(NamedTuple):
    """What a slice was given of its card."""

    mem_mib: int
    core_percent: int
    mig_slices: int = 0
    """Slices of its MIG instance; 0 when it holds none, or one whose profile is unknown."""


class Division(NamedTuple):
    """A stretch of card time, divided: `sum(charged) + idle` is the whole stretch."""

    charged: tuple[int, ...]
    own: tuple[int, ...]
    """What each slice would pay alone; never less than it is charged."""
    idle: int


def mig_slices(mig: str | None) -> int:
    """How many of a card's slices a MIG instance takes, from its profile (`3g.40gb`: 3); 0 if unknown."""
    if not mig:
        return 0
    match = _MIG_PROFILE.search(mig)
    return int(match.group(1)) if match else 0


@lru_cache(maxsize=1024)
def mig_slices_of_card(model: str) -> int:
    """How many slices a card of this model can be cut into."""
    return 4 if _FOUR_SLICE_MODELS.search(model) else _DEFAULT_MIG_SLICES


def card_units(capacity_mib: int, model: str = "") -> int:
    """The number of units in one whole card: every share on it is a whole number of them."""
    return capacity_mib * CORE_PERCENT_OF_CARD * mig_slices_of_card(model)


def share_units(grant: Grant, capacity_mib: int, model: str = "", policy: Policy = "dominant") -> int:
    """A slice's own share of its card, in the units of `card_units`.

    A grant larger than the card counts as the whole card.
    """
    whole = card_units(capacity_mib, model)
    of_card = mig_slices_of_card(model)
    if policy == "whole_card":
        return whole
    if grant.mig_slices:
        return min(whole, grant.mig_slices * capacity_mib * CORE_PERCENT_OF_CARD)
    memory = grant.mem_mib * CORE_PERCENT_OF_CARD * of_card
    if policy == "memory":
        return min(whole, memory)
    return min(whole, max(memory, core_units(grant, capacity_mib, model)))


def core_units(grant: Grant, capacity_mib: int, model: str = "") -> int:
    """A slice's part of the card's cores, in the units of `card_units`; for planning, no policy bills it."""
    if grant.mig_slices:
        return share_units(grant, capacity_mib, model)
    cores = grant.core_percent * capacity_mib * mig_slices_of_card(model)
    return min(card_units(capacity_mib, model), cores)


def divide(length_ms: int, units: Sequence[int], whole: int) -> Division:
    """Divide a card's time over `length_ms` among slices with these own shares.

    Args:
        length_ms: Length of the segment.
        units: Own shares (`share_units`), in the order of the slices' keys, which decides ties.
        whole: `card_units` of the card; above 0.

    Returns:
        Whole ppm·ms. On a card that is not over-booked charged equals own; on one that is, every slice
        pays its part of the one card and own tells what it would have paid without neighbours.
    """
    stretch = length_ms * PPM
    taken = sum(units)
    if taken <= whole:
        *charged, idle = apportion(stretch, [*units, whole - taken])
        return Division(tuple(charged), tuple(charged), idle)
    charged = apportion(stretch, units)
    own = tuple(-(-stretch * unit // whole) for unit in units)
    return Division(tuple(charged), own, 0)
