"""What is asked of every page is asked of every page that there is."""

from __future__ import annotations

from fastapi.routing import APIRoute

from accounting.web.pages.routers import ROUTERS
from tests.browser.every_page import PAGES


def test_every_kind_of_page_is_among_them() -> None:
    routes = [one for router in ROUTERS for one in router.routes if isinstance(one, APIRoute)]
    kinds = {one.path.strip("/") for one in routes if "GET" in (one.methods or ())}
    assert kinds == ({path.partition("?")[0] for path in PAGES.values()} | {"line"}) - {"sign-in"}
