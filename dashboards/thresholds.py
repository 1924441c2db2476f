"""Thresholds that dashboards, rules and the chart share: one number, one place.

Invariant: rules put a threshold into an expression or a text as it stands and never calculate with it,
so that the same rules can be written with a chart's placeholders in the numbers' places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, cast


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
    lock_timeout_seconds: int = 300
    """HAMi's own timeout of the node lock; an older one that nobody waits for has leaked."""
    lock_timeout_window: str = "30m"
    """How long an expired lock stays worth a message."""
    region_lock_held_seconds: int = 60
    """A region's lock that one process holds for longer blocks every allocation in its container."""
    near_limit_ratio: float = 0.95
    """Used memory over the enforced limit from which the next allocation is likely refused."""
    xid_window_seconds: int = 600
    """How long an XID error stays worth a message."""
    unallocated_memory_bytes: int = 268_435_456
    """GPU memory of a pod without an allocation from which it counts as a bypass."""
    coverage_ratio: float = 0.95
    """Confirmed share of device time under which a period does not close."""
    snapshot_age_seconds: int = 60
    """Age of an exporter's snapshot from which its page is out of date."""
    kube_view_age_seconds: int = 300
    """Age of the last good view of the Kubernetes API from which names and ends are guesses."""
    outbox_late_seconds: int = 3_600
    """Age of the oldest waiting fact from which accounting is behind."""
    outbox_lost_seconds: int = 86_400
    """Age from which somebody must act before the outbox is full."""
    over_limit_seconds: int = 60
    """Seconds over the memory limit within 15 minutes from which it is no blip."""
    blocked_ratio: float = 0.50
    """Share of the time that a slice is held back by a higher priority."""
    unattributed_ratio: float = 0.10
    """Part of a card, in memory or SM time, that no known pod accounts for."""
    stranded_ratio: float = 0.25
    """Part of a node's GPU memory that no pod can get."""
    quota_ratio: float = 0.90
    """Used part of a quota from which the next pod is likely refused."""
    budget_ratio: float = 0.90
    """Spent part of a budget."""
    close_late_seconds: int = 86_400
    """How long after its due time an open period is late."""


DEFAULT = Thresholds()


def with_changes(changes: Mapping[str, object]) -> Thresholds:
    """The defaults with some of them replaced, as read from a file.

    Args:
        changes: Name to value; a number where the default is one, a duration's text where it is a text.

    Raises:
        ValueError: A name that is no threshold, or a ratio that is none.
        TypeError: A value of another kind.
    """
    known = {each.name: getattr(DEFAULT, each.name) for each in fields(Thresholds)}
    for name, value in changes.items():
        if name not in known:
            raise ValueError(f'no threshold "{name}"; they are: {", ".join(sorted(known))}')
        wanted = str if isinstance(known[name], str) else int | float
        if isinstance(value, bool) or not isinstance(value, wanted):
            raise TypeError(f'threshold "{name}": {value!r} is not of the kind of {known[name]!r}')
        if name.endswith("_ratio") and not (isinstance(value, int | float) and 0 <= value <= 1):
            raise ValueError(f'threshold "{name}": {value!r} is no ratio from 0 to 1; 95 % is 0.95')
    return replace(DEFAULT, **cast("dict[str, Any]", dict(changes)))


def as_mapping(limits: Thresholds = DEFAULT) -> dict[str, float | str]:
    """Name to value, in the order in which they stand here."""
    return asdict(limits)
