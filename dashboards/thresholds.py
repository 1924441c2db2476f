"""Thresholds that dashboards, rules and the chart share: one number, one place."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When something is bad. Ratios are 0-1 of a whole card unless said otherwise.

    Source of the defaults: `reference/dashboards.md §9`.
    """

    over_entitlement_ratio: float = 0.10
    """Use above the entitlement from which a slice counts as an aggressor."""
    starved_ratio: float = 0.30
    """Missing share of a slice's own entitlement from which it counts as a victim."""
    busy_ratio: float = 0.90
    """A card below this has room for everybody: nobody starves on it."""
    unknown_ratio: float = 0.05
    """Unknown share of the time above which a slice is no witness."""
    active_ratio: float = 0.01
    """Use below this is no use."""
    lock_held_seconds: int = 60
    """A node lock that is older, while pods wait for it, blocks scheduling."""
    lock_timeout_window: str = "30m"
    """How long an expired lock stays worth a message."""


DEFAULT = Thresholds()
