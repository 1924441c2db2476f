"""The provider over the network: where it is, its keys as they are now, and codes turned into tokens.

Invariant: it is asked only at addresses that TLS or loopback protects, answers are bounded, and however
many requests come, keys and addresses are fetched at most once in `_RETRY_SECONDS`.
Source: OpenID Connect Discovery 1.0; RFC 6749 §4.1.3; RFC 7636.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import msgspec

from accounting.access.oidc_settings import OidcSettings, client_secret, is_trustworthy
from accounting.access.oidc_tokens import (
    Header,
    SigningKey,
    header_of,
    issuer_of,
    person_of,
    read_keys,
    verify,
)
from accounting.access.refusal import TokenRefusedError
from accounting.access.viewer import Viewer
from accounting.errors import AccountingError, InvalidError

_log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 10
_MAX_BYTES = 512 * 1024
_KEPT_SECONDS = 3_600
_RETRY_SECONDS = 15
_WELL_KNOWN = "/.well-known/openid-configuration"


class ProviderUnreachableError(AccountingError):
    """The provider does not answer, or not as one: nobody is refused by that, nobody gets in either."""


class _Discovered(msgspec.Struct):
    """What the provider says of itself."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: list[str] = msgspec.field(
        default_factory=lambda: ["client_secret_basic"]
    )
    authorization_response_iss_parameter_supported: bool = False


class _Tokens(msgspec.Struct):
    id_token: str


@dataclass(frozen=True, slots=True)
class _Known:
    """What was fetched, and when by the monotonic clock."""

    provider: _Discovered
    keys: tuple[SigningKey, ...]
    fetched_at: float


class Provider:
    """One provider.

    Args:
        settings: What the operator said of it.
        monotonic: Seconds that never go back.
    """

    def __init__(self, settings: OidcSettings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: _Known | None = None
        self._tried_at: float | None = None
        self._trusted: ssl.SSLContext | None = None

    def authorization_url(self, *, state: str, nonce: str, challenge: str) -> str:
        """Where a person is sent to sign in.

        Raises:
            ProviderUnreachableError: The provider does not say where.
        """
        endpoint = self._current().provider.authorization_endpoint
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect_url,
            "scope": " ".join(self.settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    def person_by_code(
        self, code: str, *, told_issuer: str | None, verifier: str, nonce: str, now_ms: int
    ) -> Viewer:
        """Who came back with a code.

        Args:
            code: What the provider gave them.
            told_issuer: The parameter `iss` that came along (RFC 9207).
            verifier: What only whoever began this sign-in knows (PKCE).
            nonce: What the token must name.
            now_ms: The clock.

        Raises:
            TokenRefusedError: Code or token are not genuine, or the person is unknown here.
            ProviderUnreachableError: The provider does not answer.
        """
        known = self._current()
        is_required = known.provider.authorization_response_iss_parameter_supported
        if told_issuer != known.provider.issuer and (is_required or told_issuer is not None):
            raise TokenRefusedError
        token = self._redeem(known.provider, code, verifier)
        claims = verify(
            token,
            self._keys_for(header_of(token)),
            issuer=self.settings.issuer,
            audience=self.settings.client_id,
            nonce=nonce,
            now_ms=now_ms,
        )
        return person_of(claims, self.settings)

    def issued(self, token: str) -> bool:
        """Whether a JWT says that it is of this provider."""
        return issuer_of(token) == self.settings.issuer

    def person_by_token(self, token: str, *, now_ms: int) -> Viewer:
        """Who bears a token at the API.

        Raises:
            TokenRefusedError: It is not genuine or not for the API, or the person is unknown here.
            ProviderUnreachableError: The provider's keys cannot be had.
        """
        claims = verify(
            token,
            self._keys_for(header_of(token)),
            issuer=self.settings.issuer,
            audience=self.settings.api_audience or self.settings.client_id,
            now_ms=now_ms,
        )
        return person_of(claims, self.settings)

    def _redeem(self, provider: _Discovered, code: str, verifier: str) -> str:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.settings.redirect_url,
            "code_verifier": verifier,
        }
        try:
            secret = client_secret(self.settings)
        except InvalidError as error:
            raise ProviderUnreachableError(_no_answer(str(error))) from None
        auth = None
        if secret is not None and "client_secret_basic" in provider.token_endpoint_auth_methods_supported:
            # RFC 6749 §2.3.1: form-encoded before they are joined.
            auth = httpx.BasicAuth(quote(self.settings.client_id, safe=""), quote(secret, safe=""))
        else:
            form["client_id"] = self.settings.client_id
            if secret is not None:
                form["client_secret"] = secret
        status, body = self._ask("POST", provider.token_endpoint, form=form, auth=auth)
        if 400 <= status < 500:
            _log.warning("the provider refused a code (%d): %s", status, _reason(body))
            raise TokenRefusedError("the provider does not take the code any more; begin the sign-in again")
        if status != 200:
            raise ProviderUnreachableError(_no_answer(f"its token endpoint answered {status}"))
        try:
            return msgspec.json.decode(body, type=_Tokens).id_token
        except msgspec.DecodeError:
            raise ProviderUnreachableError(_no_answer("its token endpoint gave no ID token")) from None

    def _keys_for(self, header: Header) -> tuple[SigningKey, ...]:
        """The keys; fetched again when none has the name, since providers rotate them."""
        known = self._current()
        if header.key_id is not None and all(key.key_id != header.key_id for key in known.keys):
            known = self._current(not_older_than=known.fetched_at)
        return known.keys

    def _current(self, not_older_than: float | None = None) -> _Known:
        """What is known of the provider, fetched when it is old or older than somebody needs."""
        with self._lock:
            now, known = self._monotonic(), self._known
            is_wanted = (
                known is None
                or now - known.fetched_at >= _KEPT_SECONDS
                or (not_older_than is not None and known.fetched_at <= not_older_than)
            )
            may_try = self._tried_at is None or now - self._tried_at >= _RETRY_SECONDS
            if is_wanted and may_try:
                self._tried_at = now
                try:
                    known = self._known = self._fetch(now)
                except ProviderUnreachableError as error:
                    _log.error("OpenID provider %s: %s", self.settings.issuer, error)
            if known is None:
                raise ProviderUnreachableError(_no_answer("it does not describe itself"))
            return known

    def _fetch(self, now: float) -> _Known:
        address = self.settings.issuer.removesuffix("/") + _WELL_KNOWN
        try:
            provider = msgspec.json.decode(self._get(address), type=_Discovered)
        except msgspec.DecodeError as error:
            raise ProviderUnreachableError(_no_answer(f"{address}: {error}")) from None
        if provider.issuer != self.settings.issuer:
            raise ProviderUnreachableError(
                _no_answer(f'it calls itself "{provider.issuer}"; write issuer just so in --oidc-config-file')
            )
        for url in (provider.authorization_endpoint, provider.token_endpoint, provider.jwks_uri):
            if not is_trustworthy(url):
                raise ProviderUnreachableError(_no_answer(f"{url} is no https:// address"))
        try:
            keys = read_keys(self._get(provider.jwks_uri))
        except InvalidError as error:
            raise ProviderUnreachableError(_no_answer(str(error))) from None
        return _Known(provider, keys, now)

    def _get(self, url: str) -> bytes:
        status, body = self._ask("GET", url)
        if status != 200:
            raise ProviderUnreachableError(_no_answer(f"{url} answered {status}"))
        return body

    def _ask(
        self,
        method: str,
        url: str,
        *,
        form: Mapping[str, str] | None = None,
        auth: httpx.BasicAuth | None = None,
    ) -> tuple[int, bytes]:
        body = bytearray()
        try:
            if self._trusted is None:
                self._trusted = ssl.create_default_context(cafile=self.settings.ca_file)
            with (
                httpx.Client(verify=self._trusted, timeout=_TIMEOUT_SECONDS) as client,
                client.stream(method, url, data=form, auth=auth, headers=_ACCEPT) as response,
            ):
                for part in response.iter_bytes():
                    body += part
                    if len(body) > _MAX_BYTES:
                        raise ProviderUnreachableError(_no_answer(f"{url} answers without end"))
                return response.status_code, bytes(body)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise ProviderUnreachableError(_no_answer(f"{url}: {error or type(error).__name__}")) from None


_ACCEPT = {"Accept": "application/json"}


def _no_answer(why: str) -> str:
    return f"the OpenID provider cannot be asked: {why}"


def _reason(body: bytes) -> str:
    """The error's name as RFC 6749 §5.2 has it, for the log."""
    try:
        told = msgspec.json.decode(body, type=dict[str, Any]).get("error")
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = None
    return repr(told)[:100]
