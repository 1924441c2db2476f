"""Where the pages are, so that each address is written once.

Invariant: whatever a name holds (a slash, a space, an ampersand), its link leads to it and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from accounting.web.paths import UI


def link(page: str, /, **query: object) -> str:
    """The address of a page; what is None or empty is left out."""
    asked = _asked(query)
    path = f"{UI}/{page}"
    return f"{path}?{urlencode(asked)}" if asked else path


def api(route: str, /, **query: object) -> str:
    """The address of a route of the API, which a signed-in browser may read too."""
    asked = _asked(query)
    return f"/api/v1/{route}?{urlencode(asked)}" if asked else f"/api/v1/{route}"


def _asked(query: Mapping[str, object]) -> dict[str, str]:
    return {name.rstrip("_"): str(value) for name, value in query.items() if value not in {None, ""}}
