"""What the provider knows and decides, without a socket: people, keys, codes.

Invariant: a code is good once, for the client and address that asked, within a minute, and only for whoever
has the verifier of its challenge. Source: RFC 6749 §4.1, RFC 7636 §4.6, OpenID Connect Core 1.0 §3.1.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm

CODE_SECONDS = 60
TOKEN_SECONDS = 300
_RSA_BITS = 2_048


class RefusedError(Exception):
    """A request that the provider refuses; its text is an error name of RFC 6749."""


@dataclass(frozen=True, slots=True)
class Person:
    """Who may sign in."""

    name: str
    groups: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """What stays the same of them."""
        return f"lab-{hashlib.sha256(self.name.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Client:
    """The one service that people sign in to; without a secret it is a public client."""

    client_id: str
    redirect_url: str
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key and its name."""

    key_id: str
    private: RSAPrivateKey

    def public_jwk(self) -> dict[str, Any]:
        """What everybody may know of it."""
        known: dict[str, Any] = RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        return known | {"kid": self.key_id, "use": "sig", "alg": "RS256"}


def new_key() -> SigningKey:
    """A random key."""
    return SigningKey(secrets.token_hex(4), generate_private_key(65_537, _RSA_BITS))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A sign-in that ended with a code."""

    person: Person
    redirect_url: str
    challenge: str
    nonce: str | None
    given_at: float


def _as_told(claims: dict[str, Any]) -> dict[str, Any]:
    return claims


@dataclass(slots=True)
class LabProvider:
    """The provider.

    Attributes:
        issuer: Its address.
        client: The service.
        people: Who may sign in.
        clock: Unix seconds.
        key: What it signs with now.
        published: The keys that it publishes.
        alter: What it does to the claims of an ID token before it signs: a test makes it lie.
        sign: How it signs; None: with its key.
    """

    issuer: str
    client: Client
    people: Sequence[Person]
    clock: Callable[[], float]
    key: SigningKey = field(default_factory=new_key)
    published: list[SigningKey] = field(default_factory=list)
    alter: Callable[[dict[str, Any]], dict[str, Any]] = _as_told
    sign: Callable[[dict[str, Any]], str] | None = None
    _codes: dict[str, _Asked] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.published = self.published or [self.key]

    def rotate(self) -> None:
        """Sign with a new key from now on, and publish that alone."""
        self.key = new_key()
        self.published = [self.key]

    def description(self) -> dict[str, Any]:
        """What it says of itself."""
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }

    def keys(self) -> dict[str, Any]:
        """Its public keys as JWKS."""
        return {"keys": [key.public_jwk() for key in self.published]}

    def require_known(self, asked: dict[str, str]) -> None:
        """Look at what a service asks before anybody signs in.

        Raises:
            RefusedError: It is not the client, or it asks without PKCE.
        """
        if asked.get("client_id") != self.client.client_id:
            raise RefusedError("unauthorized_client")
        if asked.get("redirect_uri") != self.client.redirect_url:
            raise RefusedError("invalid_request")
        is_pkce = asked.get("code_challenge_method") == "S256" and asked.get("code_challenge")
        if asked.get("response_type") != "code" or not is_pkce:
            raise RefusedError("invalid_request")
        if "openid" not in asked.get("scope", "").split():
            raise RefusedError("invalid_scope")

    def way_back(self, asked: dict[str, str], name: str) -> str:
        """Where a person who signed in is sent, with a code.

        Raises:
            RefusedError: Nobody has that name, or the question is not well-formed.
        """
        self.require_known(asked)
        person = next((one for one in self.people if one.name == name), None)
        if person is None:
            raise RefusedError("access_denied")
        code = secrets.token_urlsafe(24)
        self._codes[code] = _Asked(
            person, asked["redirect_uri"], asked["code_challenge"], asked.get("nonce"), self.clock()
        )
        told = {"code": code, "iss": self.issuer} | ({"state": asked["state"]} if "state" in asked else {})
        return f"{self.client.redirect_url}?{urlencode(told)}"

    def redeem(self, form: dict[str, str], client_id: str | None, secret: str | None) -> dict[str, Any]:
        """Tokens for a code.

        Args:
            form: What the service sent.
            client_id: Who it says it is.
            secret: How it proves that.

        Raises:
            RefusedError: The client, the code or the verifier is wrong.
        """
        wanted = self.client.secret or ""
        is_client = client_id == self.client.client_id
        if not is_client or not hmac.compare_digest((secret or "").encode(), wanted.encode()):
            raise RefusedError("invalid_client")
        if form.get("grant_type") != "authorization_code":
            raise RefusedError("unsupported_grant_type")
        asked = self._codes.pop(form.get("code", ""), None)
        if asked is None or self.clock() - asked.given_at > CODE_SECONDS:
            raise RefusedError("invalid_grant")
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if form.get("redirect_uri") != asked.redirect_url or challenge != asked.challenge:
            raise RefusedError("invalid_grant")
        return {
            "access_token": secrets.token_urlsafe(24),
            "token_type": "Bearer",
            "expires_in": TOKEN_SECONDS,
            "id_token": self.id_token(asked.person, nonce=asked.nonce),
        }

    def id_token(self, person: Person, *, nonce: str | None = None) -> str:
        """A token that says who a person is."""
        now = int(self.clock())
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "sub": person.subject,
            "aud": self.client.client_id,
            "iat": now,
            "exp": now + TOKEN_SECONDS,
            "preferred_username": person.name,
            "groups": list(person.groups),
        } | ({} if nonce is None else {"nonce": nonce})
        told = self.alter(claims)
        if self.sign is not None:
            return self.sign(told)
        return jwt.encode(told, self.key.private, algorithm="RS256", headers={"kid": self.key.key_id})


def as_json(document: dict[str, Any]) -> bytes:
    """A document as it is answered."""
    return json.dumps(document, indent=2).encode() + b"\n"
