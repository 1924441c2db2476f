"""A cluster that hands out projected ServiceAccount tokens, as kube-apiserver signs them.

The claims are those of a token of a pod on Kubernetes 1.30 (documentation of bound ServiceAccount tokens);
the signature is made by `cryptography` itself, not by the library that checks it.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

ISSUER = "https://kubernetes.default.svc.cluster.local"
AUDIENCE = "slicemeter-accounting"
NODE = "slicemeter/slicemeter-node"
CLUSTER = "slicemeter/slicemeter-cluster"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def ec_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@dataclass
class Issuer:
    """One cluster's API server."""

    key: Key = field(default_factory=ec_key)
    kid: str = "key-1"

    @property
    def alg(self) -> str:
        return "RS256" if isinstance(self.key, rsa.RSAPrivateKey) else "ES256"

    def jwk(self) -> dict[str, str]:
        """Its public key."""
        known = {"use": "sig", "kid": self.kid, "alg": self.alg}
        if isinstance(self.key, rsa.RSAPrivateKey):
            public = self.key.public_key().public_numbers()
            return known | {"kty": "RSA", "n": number(public.n), "e": number(public.e)}
        point = self.key.public_key().public_numbers()
        x, y = (b64(value.to_bytes(32, "big")) for value in (point.x, point.y))
        return known | {"kty": "EC", "crv": "P-256", "x": x, "y": y}

    def jwks(self, *others: Issuer) -> str:
        """What `kubectl get --raw /openid/v1/jwks` prints."""
        return json.dumps({"keys": [one.jwk() for one in (self, *others)]})

    def claims(
        self, account: str = NODE, *, now_ms: int, node_uid: str | None = "node-uid-1", **changed: object
    ) -> dict[str, object]:
        """What a token says that was given out a minute ago, for an hour."""
        namespace, name = account.split("/")
        kubernetes: dict[str, object] = {
            "namespace": namespace,
            "pod": {"name": f"{name}-x7k2p", "uid": "5e0bd49b-f040-43b0-99b7-22765a53f7f3"},
            "serviceaccount": {"name": name, "uid": "14ee3fa4-a7e2-420f-9f9a-dbc4507c3798"},
            "warnafter": now_ms // 1000 + 3547,
        }
        if node_uid is not None:
            kubernetes["node"] = {"name": "node-1", "uid": node_uid}
        begins = now_ms // 1000 - 60
        known: dict[str, object] = {
            "aud": [AUDIENCE], "exp": begins + 3600, "iat": begins, "nbf": begins, "iss": ISSUER,
            "jti": "ed5be4da-d54e-4e7e-8d67-2d4c7d1b7a3c", "kubernetes.io": kubernetes,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }  # fmt: skip
        return {key: value for key, value in (known | changed).items() if value is not None}

    def token(self, claims: dict[str, object], **header: object) -> str:
        """The claims, signed."""
        head = {"alg": self.alg, "kid": self.kid} | header
        text = ".".join(
            b64(json.dumps({k: v for k, v in part.items() if v is not None}).encode())
            for part in (head, claims)
        )
        return f"{text}.{b64(self._signature(text.encode()))}"

    def _signature(self, text: bytes) -> bytes:
        if isinstance(self.key, rsa.RSAPrivateKey):
            return self.key.sign(text, padding.PKCS1v15(), hashes.SHA256())
        r, s = decode_dss_signature(self.key.sign(text, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
