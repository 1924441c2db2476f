"""Every router of pages for who is signed in; none has a path of signing in."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter

from accounting.web.pages import (
    cards,
    closing,
    day,
    line,
    overview,
    prices,
    slices,
    sources,
    statement,
    tenancy,
    tenant,
    waste,
)

ROUTERS: Sequence[APIRouter] = (
    overview.router,
    tenant.router,
    day.router,
    line.router,
    statement.router,
    waste.router,
    cards.router,
    slices.router,
    tenancy.router,
    prices.router,
    sources.router,
    closing.router,
)
"""One for each page."""
