"""Query parameters that a route does not know are refused: a filter with a typing error would show all.

Invariant: an answer to a narrowed question is never the answer to a wider one.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from accounting.api.problems import Problem


async def refuse_unknown_parameters(request: Request) -> None:
    """A dependency of every route of the API.

    Raises:
        Problem: 422, naming the parameter and those that the route knows.
    """
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute):
        return
    known = sorted(set(_names(route.dependant)))
    for name in request.query_params:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(known) or 'none'}"
            raise Problem(422, f'query parameter "{name[:100]}" is unknown here; {hint}')


def _names(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        yield field.alias
    for inner in dependant.dependencies:
        yield from _names(inner)
