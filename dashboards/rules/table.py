"""The table of all rule groups, in the order in which they are written; what is on, and what has a switch."""

from __future__ import annotations

from collections.abc import Collection

from dashboards.rules.books import gap, ledger_alerts
from dashboards.rules.capacity import bypass, capacity_alerts
from dashboards.rules.collection import collection_alerts, outbox_alerts
from dashboards.rules.devices import device_alerts
from dashboards.rules.levels import level_recordings
from dashboards.rules.locks import node_lock, quiet_locks, region_lock
from dashboards.rules.neighbours import neighbour_recordings, noisy_neighbour
from dashboards.rules.presence import absence
from dashboards.rules.rule import Group
from dashboards.rules.slices import near_limit, slice_alerts
from dashboards.thresholds import DEFAULT, Thresholds

SWITCHES = ("collection", "outbox", "slices", "capacity", "ledger")
"""Groups that are off unless asked for."""


def groups(limits: Thresholds = DEFAULT) -> tuple[Group, ...]:
    """Every rule group, with the given thresholds."""
    return (
        Group("slicemeter-neighbours", (*neighbour_recordings(limits), noisy_neighbour(limits))),
        Group("slicemeter-levels", level_recordings()),
        Group("slicemeter-presence", absence()),
        Group("slicemeter-locks", (*node_lock(limits), region_lock(limits))),
        Group("slicemeter-devices", device_alerts(limits)),
        Group("slicemeter-limits", (near_limit(limits), bypass(limits), gap(limits))),
        Group("slicemeter-collection", collection_alerts(limits), "collection"),
        Group("slicemeter-outbox", outbox_alerts(limits), "outbox"),
        Group("slicemeter-slices", slice_alerts(limits), "slices"),
        Group("slicemeter-capacity", (*capacity_alerts(limits), *quiet_locks(limits)), "capacity"),
        Group("slicemeter-ledger", ledger_alerts(limits), "ledger"),
    )


def chosen(switches: Collection[str], limits: Thresholds = DEFAULT) -> tuple[Group, ...]:
    """The groups that are always on, and those whose switch is named.

    Raises:
        ValueError: A name that is no switch.
    """
    unknown = sorted(set(switches) - set(SWITCHES))
    if unknown:
        raise ValueError(f'no group "{unknown[0]}"; they are: {", ".join(SWITCHES)}')
    return tuple(group for group in groups(limits) if group.switch is None or group.switch in switches)
