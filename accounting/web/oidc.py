"""`/ui/oidc/start` and `/ui/oidc/callback`: a session by a company's OpenID provider.

A sign-in that was begun is a cookie of a few minutes, known to nobody but the browser; state, nonce and the
PKCE verifier are made out of it, so that an answer fits only the browser that asked. Invariant: a code that
comes without that cookie, or with another's state, is not even shown to the provider.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import RedirectResponse, Response

from accounting.access.oidc_provider import Provider, ProviderUnreachableError
from accounting.access.viewer import Viewer
from accounting.api.dependencies import Service, WholeService, held_up
from accounting.api.problems import Problem
from accounting.web.cookies import forget_sign_in, keep_sign_in, sign_in_cookie
from accounting.web.paths import page_or_home
from accounting.web.signing_in import begin, refuse

router = APIRouter(prefix="/oidc")

_log = logging.getLogger(__name__)

SIGN_IN_SECONDS = 600
_MAX_CODE = 4_096
_BEGUN_AGAIN = "this sign-in was not begun in this browser, or too long ago; begin it again"
_ERROR = re.compile(r"[a-z_]{1,60}")


@dataclass(frozen=True, slots=True)
class Begun:
    """A sign-in that was begun.

    Attributes:
        seed: A random text.
        at_ms: When.
        following: The page to go to afterwards.
    """

    seed: str
    at_ms: int
    following: str

    def cookie(self) -> str:
        """It as a cookie's value."""
        page = base64.urlsafe_b64encode(self.following.encode()).decode().rstrip("=")
        return f"{self.seed}.{self.at_ms}.{page}"

    def made(self, what: str) -> str:
        """43 characters that nobody guesses who has not the cookie, all of it."""
        digest = hashlib.sha256(f"{what} of {self.cookie()}".encode()).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def challenge(self) -> str:
        """What the provider compares the verifier with (RFC 7636, S256)."""
        digest = hashlib.sha256(self.made("verifier").encode()).digest()
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def read_begun(cookie: str) -> Begun | None:
    """A sign-in out of its cookie; None: it is none."""
    match = re.fullmatch(r"([\w-]{43})\.(\d{1,15})\.([\w-]{0,4000})", cookie, re.ASCII)
    if match is None:
        return None
    try:
        page = base64.urlsafe_b64decode(match[3] + "=" * (-len(match[3]) % 4)).decode()
    except ValueError:
        return None
    return Begun(match[1], int(match[2]), page_or_home(page))


@router.get("/start")
def start(
    service: WholeService, next_page: Annotated[str, Query(alias="next", max_length=4_000)] = ""
) -> Response:
    """Send a person to the provider."""
    provider = _provider(service)
    begun = Begun(secrets.token_urlsafe(32), service.clock(), page_or_home(next_page))
    try:
        url = provider.authorization_url(
            state=begun.made("state"), nonce=begun.made("nonce"), challenge=begun.challenge()
        )
    except ProviderUnreachableError as error:
        raise _away(error) from None
    response = RedirectResponse(url, status_code=303)
    keep_sign_in(response, service, begun.cookie(), seconds=SIGN_IN_SECONDS)
    return response


@dataclass(frozen=True, slots=True)
class Answer:
    """What the provider says to a sign-in, as the browser brings it."""

    code: str
    state: str
    issuer: str | None
    error: str


def _answer_of(
    code: Annotated[str, Query(max_length=_MAX_CODE)] = "",
    state: Annotated[str, Query(max_length=200)] = "",
    iss: Annotated[str | None, Query(max_length=500)] = None,
    error: Annotated[str, Query(max_length=200)] = "",
) -> Answer:
    return Answer(code, state, iss, error)


@router.get("/callback")
def callback(
    request: Request, service: WholeService, answer: Annotated[Answer, Depends(_answer_of)]
) -> Response:
    """Begin a session for who comes back from the provider."""
    try:
        begun, viewer = _signed_in(request, service, answer)
    except Problem as problem:
        # The provider knows them, or knew the code: 401 would send them round once more.
        status = 403 if problem.status_code == 401 else problem.status_code
        response = refuse(request, Problem(status, str(problem.detail), problem.headers))
    else:
        response = begin(request, service, viewer, token_prefix=None, following=begun.following)
    forget_sign_in(response, service)
    return response


def _signed_in(request: Request, service: Service, answer: Answer) -> tuple[Begun, Viewer]:
    """Who came back, and from which sign-in.

    Raises:
        Problem: Nobody that is let in; it says why.
    """
    provider = _provider(service)
    begun = read_begun(request.cookies.get(sign_in_cookie(service), ""))
    if begun is None or not _is_answer_to(begun, answer, now_ms=service.clock()):
        raise Problem(403, _BEGUN_AGAIN)
    if answer.error or not answer.code:
        told = answer.error if _ERROR.fullmatch(answer.error) else "no code"
        raise Problem(403, f"the provider did not sign you in: {told}")
    return begun, held_up(request, service, answer.code, lambda: _person(service, provider, begun, answer))


def _is_answer_to(begun: Begun, answer: Answer, *, now_ms: int) -> bool:
    is_of_it = hmac.compare_digest(answer.state.encode(), begun.made("state").encode())
    return is_of_it and 0 <= now_ms - begun.at_ms <= SIGN_IN_SECONDS * 1000


def _person(service: Service, provider: Provider, begun: Begun, answer: Answer) -> Viewer:
    try:
        return provider.person_by_code(
            answer.code,
            told_issuer=answer.issuer,
            verifier=begun.made("verifier"),
            nonce=begun.made("nonce"),
            now_ms=service.clock(),
        )
    except ProviderUnreachableError as error:
        raise _away(error) from None


def _provider(service: Service) -> Provider:
    if service.provider is None:
        raise Problem(404, "no OpenID provider is set up here; sign in with a token")
    return service.provider


def _away(error: ProviderUnreachableError) -> Problem:
    _log.error("%s", error)
    return Problem(503, "the OpenID provider does not answer as it should; try again later, or use a token")
