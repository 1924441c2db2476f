"""Tokens of a company's OpenID provider: genuine or refused, and what their bearer may do here.

Invariant: nothing in a token is believed before a key that the provider publishes signed it, by an
algorithm of public keys that is also that key's own; so `none` and a public key taken for a shared secret
prove nothing. Source: OpenID Connect Core 1.0 §3.1.3.7; RFC 8725.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK

from accounting.access.oidc_settings import OidcSettings
from accounting.access.refusal import TokenRefusedError
from accounting.access.service_accounts import MIN_RSA_BITS
from accounting.access.viewer import Viewer
from accounting.errors import InvalidError

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_OF_RSA = ALGORITHMS[:6]
MAX_TOKEN = 16_384
EARLY_MS = 60_000
"""How far the provider's clock may be ahead of ours; behind it none is: a token ends when it says."""

_MAX_KEYS = 50
_MAX_GROUPS = 1_000
_MAX_NAME = 90
_MAX_SUBJECT = 140
_SHOWN_GROUPS = 10


@dataclass(frozen=True, slots=True)
class Header:
    """What a token says of itself before anything of it is believed."""

    algorithm: str
    key_id: str | None


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key that signs tokens.

    Attributes:
        key_id: What the provider calls it.
        public: The key.
        algorithms: What it may sign with.
    """

    key_id: str | None
    public: Any
    algorithms: frozenset[str]


class _Claims(msgspec.Struct):
    """The claims that are looked at beside those that PyJWT checks."""

    sub: str
    exp: int | float
    iat: int | float | None = None
    nbf: int | float | None = None
    nonce: str | None = None
    azp: str | None = None
    aud: str | list[str] = ""


class UnknownPersonError(TokenRefusedError):
    """Genuine, and nobody here: the provider knows them, no mapping does."""


def read_keys(jwks: bytes) -> tuple[SigningKey, ...]:
    """The keys of a provider that sign tokens; those for other uses or of other kinds are passed over.

    Raises:
        InvalidError: It is no JWKS document, or no key in it signs tokens.
    """
    try:
        found = [dict(one) for one in msgspec.json.decode(jwks, type=dict[str, Any])["keys"]]
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        raise InvalidError("the provider's keys are no JWKS document that can be read") from None
    keys = []
    for one in found[:_MAX_KEYS]:
        if one.get("use", "sig") != "sig" or "k" in one or "d" in one:
            continue
        try:
            key = PyJWK(one)
        except (jwt.PyJWTError, NotImplementedError, KeyError, TypeError, ValueError):
            continue
        is_rsa = isinstance(key.key, RSAPublicKey)
        if is_rsa and key.key.key_size < MIN_RSA_BITS:
            continue
        # One of RSA that names no algorithm is for each of RSA; others have one by their curve.
        own = _OF_RSA if is_rsa and "alg" not in one else {key.algorithm_name}
        keys.append(SigningKey(key.key_id, key.key, frozenset(own) & frozenset(ALGORITHMS)))
    if not keys:
        raise InvalidError("the provider publishes no key that signs tokens")
    return tuple(keys)


def header_of(token: str) -> Header:
    """A token's header.

    Raises:
        TokenRefusedError: It is no token that a public key could have signed.
    """
    if len(token) > MAX_TOKEN:
        raise TokenRefusedError
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise TokenRefusedError from None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS or "crit" in header or not isinstance(key_id, str | None):
        raise TokenRefusedError
    return Header(algorithm, key_id)


def issuer_of(token: str) -> str | None:
    """Whose a token says it is, believed by nobody yet."""
    if len(token) > MAX_TOKEN:
        return None
    try:
        issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None
    return issuer if isinstance(issuer, str) else None


def verify(
    token: str,
    keys: Sequence[SigningKey],
    *,
    issuer: str,
    audience: str,
    nonce: str | None = None,
    now_ms: int,
) -> dict[str, Any]:
    """The claims of a genuine token.

    Args:
        token: The JWT.
        keys: The provider's.
        issuer: What its `iss` must be.
        audience: What its `aud` must name.
        nonce: What its `nonce` must be; None: it is no answer to a sign-in of ours.
        now_ms: The clock.

    Raises:
        TokenRefusedError: It is not genuine, not for us, not for now, or not of this sign-in.
    """
    header = header_of(token)
    for key in keys:
        if header.key_id is not None and key.key_id != header.key_id:
            continue
        if header.algorithm not in key.algorithms:
            continue
        try:
            said = jwt.decode(
                token,
                key.public,
                algorithms=[header.algorithm],
                audience=audience,
                issuer=issuer,
                # The clock is the caller's.
                options={
                    "require": ["exp", "aud", "iss", "sub"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
            claims = msgspec.convert(said, _Claims)
        except (jwt.PyJWTError, msgspec.ValidationError, ValueError, TypeError):
            continue
        _require_now(claims, now_ms)
        _require_ours(claims, audience, nonce)
        return said
    raise TokenRefusedError


def person_of(claims: dict[str, Any], settings: OidcSettings) -> Viewer:
    """What a person may do here by the first mapping that names a group of theirs.

    Raises:
        UnknownPersonError: None does.
    """
    name = _name_of(claims, settings)
    groups = _groups_of(claims, settings.groups_claim)
    if groups is None:
        raise UnknownPersonError(
            f"you are {name}, but the provider says nothing of your groups; ask who runs it to send the "
            f'claim "{settings.groups_claim}" to this service'
        )
    for one in settings.mapping:
        if one.group in groups:
            tenant = None if one.tenant is None else one.tenant.strip("/")
            return Viewer(name, one.role, tenant_path=tenant)
    shown = ", ".join(groups[:_SHOWN_GROUPS]) or "none"
    more = f" and {len(groups) - _SHOWN_GROUPS} more" if len(groups) > _SHOWN_GROUPS else ""
    raise UnknownPersonError(
        f"you are {name}, but none of your groups opens anything here (yours: {shown}{more}); ask an "
        "operator of this service to map one of them, or who runs the provider to add you to one that is "
        "mapped"
    )


def _require_now(claims: _Claims, now_ms: int) -> None:
    is_over = not claims.exp * 1000 > now_ms  # so that what is no number is over
    latest_ms = max(claims.nbf or 0, claims.iat or 0) * 1000
    if is_over or latest_ms > now_ms + EARLY_MS:
        raise TokenRefusedError


def _require_ours(claims: _Claims, audience: str, nonce: str | None) -> None:
    if nonce is None:
        return
    if claims.nonce is None or not hmac.compare_digest(claims.nonce.encode(), nonce.encode()):
        raise TokenRefusedError
    has_others = isinstance(claims.aud, list) and len(claims.aud) > 1
    if (has_others or claims.azp is not None) and claims.azp != audience:
        raise TokenRefusedError


def _name_of(claims: dict[str, Any], settings: OidcSettings) -> str:
    """For the audit log: what people call them, and the one thing that is theirs for ever."""
    subject = str(claims["sub"])
    if not subject.strip() or not subject.isprintable():
        raise TokenRefusedError
    if len(subject) > _MAX_SUBJECT:
        subject = hashlib.sha256(subject.encode()).hexdigest()
    name = claims.get(settings.name_claim) or claims.get("email")
    if not isinstance(name, str) or not name.isprintable() or name == subject:
        return f"oidc:{subject}"
    return f"oidc:{name[:_MAX_NAME]} ({subject})"


def _groups_of(claims: dict[str, Any], claim: str) -> list[str] | None:
    """A person's groups; None: nothing is said of them."""
    value: object = claims.get(claim)
    if value is None:
        value = claims
        for part in claim.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        return None
    return [one for one in value[:_MAX_GROUPS] if isinstance(one, str)]
