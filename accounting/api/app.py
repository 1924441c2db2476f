"""The application factory: one function that puts routes, problems and metrics together.

The clock is an argument, so that a test may live in another month; the service passes the real one.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Depends, FastAPI

from accounting.access.oidc_provider import Provider
from accounting.api import (
    books,
    budgets,
    closing,
    explain,
    exports,
    facts,
    health,
    pricing,
    problems,
    quality,
    quotes,
    reporters,
    reports,
    statements,
    tenants,
    waste,
)
from accounting.api.dependencies import Clock, Service
from accounting.api.headers import SecurityHeaders
from accounting.api.limits import RequestLimits
from accounting.api.metrics import ServiceMetrics
from accounting.api.money import Money
from accounting.api.parameters import refuse_unknown_parameters
from accounting.settings import Settings
from accounting.store.database import Database
from contract.version import VERSION

ROUTERS: Sequence[APIRouter] = (
    facts.router,
    reporters.router,
    statements.router,
    reports.router,
    books.router,
    explain.router,
    quotes.router,
    exports.router,
    closing.router,
    pricing.router,
    tenants.router,
    quality.router,
    budgets.router,
    waste.router,
)
"""Every router of the API proper; probes and scrapers may add parameters of their own."""


def create_app(
    settings: Settings, *, database: Database, clock: Clock, money: Money | None = None
) -> FastAPI:
    """Make the application.

    Args:
        settings: What the operator set.
        database: One of the schema of this program; the caller closes it.
        clock: Now, in Unix milliseconds.
        money: Where whoever rates publishes figures for `/metrics`.
    """
    app = FastAPI(
        title="Slicemeter accounting",
        version=VERSION,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = Service(
        database,
        settings,
        clock,
        ServiceMetrics(database, money or Money()),
        provider=None if settings.oidc is None else Provider(settings.oidc),
    )
    problems.install(app)
    app.add_middleware(RequestLimits)
    app.add_middleware(SecurityHeaders)
    app.include_router(health.router)
    for router in ROUTERS:
        app.include_router(router, dependencies=[Depends(refuse_unknown_parameters)])
    return app
