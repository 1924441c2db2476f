"""Pages out of templates: every value is escaped, an unknown name is an error."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse

from accounting.access.viewer import Viewer
from accounting.web.own_forms import FIELD, form_token
from accounting.web.paths import HOME, SIGN_IN, SIGN_OUT, STATIC
from accounting.web.wording import FILTERS, GLOBALS
from contract.version import VERSION


@cache
def environment() -> jinja2.Environment:
    """The templates of this package."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("accounting.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= FILTERS
    made.globals |= GLOBALS
    return made


def render(
    request: Request,
    template: str,
    *,
    viewer: Viewer | None,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: object,
) -> HTMLResponse:
    """A page.

    Args:
        request: The request that it answers.
        template: Its file below `templates/`.
        viewer: Who looks at it; None: nobody is signed in, or it is not known.
        status: Of the answer.
        headers: Of the answer, besides those that every page has.
        values: What the template shows. It also has `viewer`, `csrf_token` and `csrf_field` for forms,
            `path`, `home`, `sign_in`, `sign_out`, `static` (where files lie) and `version`.
    """
    known = {
        "viewer": viewer,
        "csrf_token": form_token(request, request.app.state.service),
        "csrf_field": FIELD,
        "path": request.url.path,
        "home": HOME,
        "sign_in": SIGN_IN,
        "sign_out": SIGN_OUT,
        "static": STATIC,
        "version": VERSION,
    }
    text = environment().get_template(template).render(**known, **values)
    return HTMLResponse(text, status_code=status, headers=dict(headers or {}))
