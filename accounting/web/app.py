"""The whole service: the API, and beside it the pages under `/ui` and what they are drawn with.

The pages are an application of their own within the API's, so that their errors are pages too and their
headers let a browser load our style and script, and nothing else. Invariant: no page is reached by a
changing request that did not pass `own_form`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.responses import RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from accounting.api.app import create_app
from accounting.api.dependencies import Clock
from accounting.api.money import Money
from accounting.settings import Settings
from accounting.store.database import Database
from accounting.web import oidc, refusals, signing_in
from accounting.web.headers import PageHeaders
from accounting.web.own_forms import own_form
from accounting.web.pages.routers import ROUTERS
from accounting.web.paths import HOME, STATIC, UI

_STATIC_FILES = Path(__file__).parent / "static"


class _OwnFiles(StaticFiles):
    """Style and script, which a browser keeps and asks after: they are nobody's."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """A file, or 304 for whoever has it."""
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response


def create_service(
    settings: Settings, *, database: Database, clock: Clock, money: Money | None = None
) -> FastAPI:
    """Make the API and the pages as one application; the arguments are `create_app`'s."""
    app = create_app(settings, database=database, clock=clock, money=money)
    pages = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, dependencies=[Depends(own_form)])
    pages.state.service = app.state.service
    refusals.install(pages)
    pages.add_middleware(PageHeaders)
    for router in (signing_in.router, oidc.router, *ROUTERS):
        pages.include_router(router)
    app.mount(UI, pages)
    app.mount(STATIC, _OwnFiles(directory=_STATIC_FILES))
    app.add_api_route("/", _home, include_in_schema=False)
    return app


def _home() -> RedirectResponse:
    return RedirectResponse(HOME, status_code=303)
