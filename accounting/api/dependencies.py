"""What routes ask for: the database, the clock, the settings, and who is asking.

A route that takes a `Reader` answers 401 without a good token and 403 to a reporter; whatever it then
shows it selects through `accounting.access.viewer.only_visible`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeAlias

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.exc import OperationalError

from accounting.access.attempts import FailedSignIns
from accounting.access.oidc_provider import Provider, ProviderUnreachableError
from accounting.access.refusal import TokenRefusedError
from accounting.access.sessions import (
    cookie_name,
    limits_of,
    note_session,
    session_scope,
    viewer_of_session,
)
from accounting.access.sign_in import is_jwt, sign_in, sign_in_scope
from accounting.access.viewer import READERS, Role, Viewer
from accounting.api.batches import Intake
from accounting.api.metrics import ServiceMetrics
from accounting.api.problems import Problem
from accounting.settings import Settings
from accounting.store.database import Database
from contract.units import MS_PER_SECOND

_log = logging.getLogger(__name__)

Clock: TypeAlias = Callable[[], int]
"""Now, in Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class Service:
    """What one running application works with."""

    database: Database
    settings: Settings
    clock: Clock
    metrics: ServiceMetrics
    failures: FailedSignIns = field(default_factory=FailedSignIns)
    intake: Intake = field(default_factory=Intake)
    provider: Provider | None = None


def _service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


WholeService = Annotated[Service, Depends(_service)]
"""With a database that sees everything: for what answers nobody, or finds out who asks."""

_bearer = HTTPBearer(auto_error=False, description="A token made by: slicemeter accounting token create")


Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def viewer_of(request: Request, service: WholeService, credentials: Credentials) -> Viewer:
    """Who bears the request's token, or whose session its cookie is.

    By a cookie alone nothing is changed, unless the page checked first that its own form was sent
    (`request.state.is_own_form`): a browser sends cookies for whoever makes it.

    Raises:
        Problem: 401, nobody; 429, too many failures came from this address.
    """
    token = "" if credentials is None else credentials.credentials
    if token:
        return held_up(request, service, token, lambda: _viewer_of_token(service, token))
    cookie = session_cookie(request, service)
    may_use = request.method in SAFE_METHODS or getattr(request.state, "is_own_form", False)
    if not cookie or not may_use:
        raise _refused(TokenRefusedError())
    return held_up(request, service, cookie, lambda: _viewer_of_cookie(service, cookie))


def held_up(request: Request, service: Service, secret: str, sign_in: Callable[[], Viewer]) -> Viewer:
    """Sign in by a secret, no more often than `FailedSignIns` lets an address fail.

    Raises:
        Problem: 401, nobody; 429, too many failures came from this address.
    """
    address = "" if request.client is None else request.client.host
    now_ms = service.clock()
    wait_ms = service.failures.wait_ms(address, secret, now_ms=now_ms)
    if wait_ms:
        seconds = str(-(-wait_ms // MS_PER_SECOND))
        raise Problem(429, "too many failed sign-ins; try again later", headers={"Retry-After": seconds})
    try:
        viewer = sign_in()
    except TokenRefusedError as error:
        service.failures.failed(address, secret, now_ms=now_ms)
        raise _refused(error) from None
    service.failures.succeeded(secret)
    return viewer


def session_cookie(request: Request, service: Service) -> str:
    """The session's cookie as the browser sent it; empty: none."""
    return request.cookies.get(cookie_name(is_secure=service.settings.are_cookies_secure), "")


def _viewer_of_token(service: Service, token: str) -> Viewer:
    if service.provider is not None and is_jwt(token) and service.provider.issued(token):
        try:
            return service.provider.person_by_token(token, now_ms=service.clock())
        except ProviderUnreachableError as error:
            _log.error("%s", error)
            raise Problem(503, "the OpenID provider's keys cannot be had now; try again later") from None
    with service.database.seen_as(sign_in_scope(token)).reading() as session:
        return sign_in(session, token, now_ms=service.clock())


def _viewer_of_cookie(service: Service, cookie: str) -> Viewer:
    now_ms = service.clock()
    with service.database.seen_as(session_scope(cookie)).reading() as session:
        limits = limits_of(service.settings)
        viewer, is_due = viewer_of_session(session, cookie, limits=limits, now_ms=now_ms)
    if is_due:
        try:
            with service.database.writing(is_beside_books=True) as session:
                note_session(session, cookie, now_ms=now_ms)
        except OperationalError as error:
            # Whoever reads is not to fail because somebody else writes; the next request notes it.
            _log.warning("a session could not be noted as in use: %s", " ".join(str(error.orig).split()))
    return viewer


def _refused(error: TokenRefusedError) -> Problem:
    return Problem(401, str(error), headers={"WWW-Authenticate": "Bearer"})


def _service_for(service: WholeService, viewer: Annotated[Viewer, Depends(viewer_of)]) -> Service:
    return replace(service, database=service.database.seen_as(viewer.scope))


InService = Annotated[Service, Depends(_service_for)]
"""With a database whose every transaction shows what the asker may see, and nothing else (PostgreSQL)."""


def allow(*roles: Role) -> Callable[[Viewer], Viewer]:
    """A dependency that lets these roles pass and answers 403 to all others."""

    def check(viewer: Annotated[Viewer, Depends(viewer_of)]) -> Viewer:
        if viewer.role not in roles:
            raise Problem(403, f"this needs a token of role {' or '.join(roles)}")
        return viewer

    return check


Reader = Annotated[Viewer, Depends(allow(*READERS))]
Operator = Annotated[Viewer, Depends(allow("operator", "admin"))]
Reporter = Annotated[Viewer, Depends(allow("reporter"))]
