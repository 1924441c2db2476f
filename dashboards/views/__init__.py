"""The dashboards, one module each with a module-level `dashboard`."""

from __future__ import annotations

from dashboards.views import card

VIEWS = {"card": card.dashboard}
"""File name (without `.json`) to dashboard."""
