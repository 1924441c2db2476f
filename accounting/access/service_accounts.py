"""Tokens that Kubernetes gives to exporters, checked against the keys of their cluster without asking it.

A projected ServiceAccount token is a JWT: `sub` says whose, `aud` for whom, and from Kubernetes 1.30 on
`kubernetes.io.node` on which node its pod runs. Invariant: nothing in a token is believed before a
registered key of its issuer signed it, by an algorithm of ours that is also that key's own.

Source: `reference/ledger.md §10`; Kubernetes, "Managing Service Accounts", bound tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK

from accounting.access.refusal import TokenRefusedError
from accounting.access.viewer import Viewer
from accounting.errors import InvalidError

ALGORITHMS = ("RS256", "ES256", "ES384", "ES512")
"""What Kubernetes signs with."""

MAX_TOKEN = 8_192
MAX_JWKS = 65_536
MAX_KEYS = 20
MIN_RSA_BITS = 2_048
EARLY_MS = 60_000
"""How far a cluster's clock may be ahead of ours; behind it none is: a token ends when it says."""

_SUBJECT = "system:serviceaccount:"
_MAX_NAME = 253


@dataclass(frozen=True, slots=True)
class Trust:
    """By which keys and names a cluster's exporters sign in.

    Attributes:
        cluster: Its code.
        issuer: The `iss` of its tokens.
        audience: What their `aud` names.
        jwks: Its public keys as JSON.
        node_exporter: `namespace/name` of the ServiceAccount that speaks for its own node.
        cluster_exporter: `namespace/name` of the one that speaks for the whole cluster.
    """

    cluster: str
    issuer: str
    audience: str
    jwks: str
    node_exporter: str
    cluster_exporter: str


class _Node(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Kubernetes(msgspec.Struct):
    node: _Node = msgspec.field(default_factory=_Node)


class _Claims(msgspec.Struct):
    """The claims that are looked at, all of them signed."""

    sub: str
    exp: int | float
    nbf: int | float | None = None
    kubernetes: _Kubernetes = msgspec.field(name="kubernetes.io", default_factory=_Kubernetes)


@lru_cache(maxsize=256)
def read_keys(jwks: str) -> tuple[PyJWK, ...]:
    """The keys of a JWKS document.

    Raises:
        InvalidError: It is none, or holds a key that no API server publishes: a private or symmetric one, a
            short or unknown one.
    """
    way_out = "take it from: kubectl get --raw /openid/v1/jwks"
    unreadable = f"the keys are no JWKS document that can be read; {way_out}"
    try:
        document = msgspec.json.decode(jwks[: MAX_JWKS + 1], type=dict[str, Any])
        found = [dict(one) for one in document["keys"]]
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        raise InvalidError(unreadable) from None
    if any("d" in one or "k" in one for one in found):
        raise InvalidError(f"a key in the JWKS document is secret; {way_out}, which shows public keys only")
    if not 0 < len(found) <= MAX_KEYS:
        raise InvalidError(f"{len(found)} keys; a JWKS document has 1 to {MAX_KEYS}; {way_out}")
    try:
        keys = tuple(PyJWK(one) for one in found)
    except (jwt.PyJWTError, NotImplementedError, KeyError, TypeError, ValueError):
        raise InvalidError(unreadable) from None
    for key in keys:
        if key.algorithm_name not in ALGORITHMS:
            raise InvalidError(f"a key is for {key.algorithm_name}; known are {', '.join(ALGORITHMS)}")
        if isinstance(key.key, RSAPublicKey) and key.key.key_size < MIN_RSA_BITS:
            raise InvalidError(f"an RSA key has {key.key.key_size} bits; at least {MIN_RSA_BITS}")
    return keys


def key_identities(jwks: str) -> frozenset[bytes]:
    """What makes keys the same, whatever they are called."""
    return frozenset(_identity(key) for key in read_keys(jwks))


def _identity(key: PyJWK) -> bytes:
    numbers = key.key.public_numbers()
    return repr((type(numbers).__name__, numbers)).encode()


def verify(token: str, trusts: Sequence[Trust], *, now_ms: int) -> Viewer:
    """Who bears a projected token.

    Args:
        token: The JWT.
        trusts: The clusters that are trusted.
        now_ms: The clock.

    Raises:
        TokenRefusedError: Nobody that may report. What is wrong is told only of a token that is genuine.
    """
    trust, claims = _genuine(token, trusts)
    is_over = not claims.exp * 1000 > now_ms  # so that what is no number is over
    if is_over or (claims.nbf or 0) * 1000 > now_ms + EARLY_MS:
        raise TokenRefusedError
    account = claims.sub.removeprefix(_SUBJECT).replace(":", "/", 1)
    if not claims.sub.startswith(_SUBJECT):
        raise TokenRefusedError
    name = f"serviceaccount:{trust.cluster}:{account}"[:_MAX_NAME]
    if account == trust.cluster_exporter:
        return Viewer(name, "reporter", trust.cluster)
    if account != trust.node_exporter:
        raise TokenRefusedError(
            f'ServiceAccount {account} may not report for cluster "{trust.cluster}"; '
            "see: slicemeter accounting cluster trust --help"
        )
    node_uid = claims.kubernetes.node.uid
    if not node_uid.strip() or len(node_uid) > _MAX_NAME or not node_uid.isprintable():
        raise TokenRefusedError(
            "the token names no node, as before Kubernetes 1.30; give this node's exporter one of its own: "
            "slicemeter accounting token create --role reporter --node-uid UID"
        )
    return Viewer(name, "reporter", trust.cluster, node_uid)


def _genuine(token: str, trusts: Sequence[Trust]) -> tuple[Trust, _Claims]:
    """The trust whose key signed a token, and what the token says."""
    if len(token) > MAX_TOKEN:
        raise TokenRefusedError
    try:
        header = jwt.get_unverified_header(token)
        issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise TokenRefusedError from None
    for trust, key in _candidates(trusts, issuer, header):
        try:
            said = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm_name],
                audience=trust.audience,
                issuer=trust.issuer,
                # The clock is the caller's.
                options={
                    "require": ["exp", "aud", "iss", "sub"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
            return trust, msgspec.convert(said, _Claims)
        except (jwt.PyJWTError, msgspec.ValidationError, ValueError):
            continue
    raise TokenRefusedError


def _candidates(
    trusts: Sequence[Trust], issuer: object, header: dict[str, Any]
) -> Iterator[tuple[Trust, PyJWK]]:
    if header.get("alg") not in ALGORITHMS or "crit" in header:
        return
    kid = header.get("kid")
    for trust in trusts:
        if trust.issuer != issuer:
            continue
        for key in read_keys(trust.jwks):
            if key.algorithm_name == header["alg"] and kid in {None, key.key_id}:
                yield trust, key
