"""The dashboards, one module each with a module-level `dashboard`."""

from __future__ import annotations

from dashboards.views import card, chargeback, energy, fleet, neighbours, pipeline, pod, tenant

VIEWS = {
    "fleet": fleet.dashboard,
    "card": card.dashboard,
    "tenant": tenant.dashboard,
    "pod": pod.dashboard,
    "neighbours": neighbours.dashboard,
    "energy": energy.dashboard,
    "chargeback": chargeback.dashboard,
    "pipeline": pipeline.dashboard,
}
"""File name (without `.json`) to dashboard."""
