"""Recording rules that dashboards and people's own rules read: use, energy and capacity by level.

Each level sums the one below, which took the maximum over repeated scrapes first. No rule computes
money or billable hours: those are accounting's own series.
"""

from __future__ import annotations

from dashboards.names import ST, N, metric, once, rate
from dashboards.rules.rule import Recording

WINDOWS = ("5m", "1h")


def level_recordings() -> tuple[Recording, ...]:
    """SM use and energy of slices, tenants, nodes and clusters over 5 minutes and an hour; efficiency."""
    rules: list[Recording] = []
    for window in WINDOWS:
        use, energy = f"slice:slicemeter_sm_use:rate{window}", f"slice:slicemeter_energy:rate{window}"
        if window != "5m":
            rules.append(Recording(use, rate("slice_sm_seconds_total", ST, window)))
        rules.append(
            Recording(energy, f"sum by ({ST}) ({rate('slice_energy_joules_total', f'{ST}, kind', window)})")
        )
        for level, by in (("tenant", "cluster, tenant"), ("node", N), ("cluster", "cluster")):
            rules += [
                Recording(f"{level}:slicemeter_sm_use:rate{window}", f"sum by ({by}) ({use})"),
                Recording(f"{level}:slicemeter_energy:rate{window}", f"sum by ({by}) ({energy})"),
            ]
    return (*rules, *_memory())


def _memory() -> tuple[Recording, ...]:
    used, held = once("slice_memory_used_bytes", ST), once("slice_memory_allocated_bytes", ST)
    device = "cluster, node, device_uuid"
    allocated = once("device_memory_allocated_bytes", device)
    registered = once("device_memory_registered_bytes", device)
    return (
        Recording(
            "tenant:slicemeter_memory_efficiency:ratio",
            f"sum by (cluster, tenant) ({used})\n/ sum by (cluster, tenant) ({held} and on ({ST}) "
            f"{metric('slice_memory_used_bytes')})",
        ),
        Recording(
            "node:slicemeter_memory_allocated:ratio",
            f"sum by ({N}) ({allocated})\n/ sum by ({N}) ({registered})",
        ),
        Recording(
            "cluster:slicemeter_memory_allocated:ratio",
            f"sum by (cluster) ({allocated})\n/ sum by (cluster) ({registered})",
        ),
    )
