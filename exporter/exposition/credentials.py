"""Whose password or token opens the pages; pure but for the time that bcrypt takes.

Invariants: nobody learns from the answer's time whether a user exists; a checked password is remembered
only as a keyed digest; one hash is computed at a time, so guessing costs at most one core.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

Verdict: TypeAlias = Literal["welcome", "unknown", "busy"]

_BCRYPT_BYTES: Final = 72
"""All that bcrypt looks at; htpasswd and Go cut longer passwords there too."""

_REMEMBERED: Final = 100
_PATIENCE_S: Final = 5.0


class Credentials:
    """Decides by the `Authorization` header.

    Args:
        users: Bcrypt hashes by user name.
        token: The bearer token; None = there is none.
    """

    def __init__(self, users: Mapping[str, str], token: str | None = None) -> None:
        self._users = dict(users)
        self._token = None if token is None else token.encode()
        self._secret = secrets.token_bytes(32)
        self._verdicts: OrderedDict[bytes, bool] = OrderedDict()
        self._verdicts_lock = threading.Lock()
        self._hashing = threading.Lock()

    @property
    def challenges(self) -> tuple[str, ...]:
        """Values of `WWW-Authenticate`; empty when everybody may come."""
        basic = ("Basic",) if self._users else ()
        return basic if self._token is None else (*basic, "Bearer")

    def judge(self, authorization: str | None) -> Verdict:
        """Whether the header's bearer may come in; "busy" when other passwords are being checked."""
        if not self.challenges:
            return "welcome"
        scheme, _, value = (authorization or "").strip().partition(" ")
        if scheme.lower() == "bearer" and self._token is not None:
            # The digests have one length: comparing them tells nothing of the token's.
            given, wanted = (hashlib.sha256(each).digest() for each in (value.strip().encode(), self._token))
            return "welcome" if hmac.compare_digest(given, wanted) else "unknown"
        if scheme.lower() == "basic" and self._users:
            return self._judge_password(value.strip())
        return "unknown"

    def _judge_password(self, value: str) -> Verdict:
        try:
            user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return "unknown"
        if not colon:
            return "unknown"
        digest = hashlib.blake2b(f"{user}:{password}".encode(), key=self._secret).digest()
        with self._verdicts_lock:
            is_right = self._verdicts.get(digest)
        if is_right is None:
            if not self._hashing.acquire(timeout=_PATIENCE_S):
                return "busy"
            try:
                is_right = self._check(user, password)
            finally:
                self._hashing.release()
            with self._verdicts_lock:
                self._verdicts[digest] = is_right
                while len(self._verdicts) > _REMEMBERED:
                    self._forget_one()
        return "welcome" if is_right else "unknown"

    def _check(self, user: str, password: str) -> bool:
        import bcrypt  # noqa: PLC0415 - only where there are users

        known = self._users.get(user)
        # An unknown user's password is hashed too, at the cost that the known ones have.
        hashed = known or next(iter(self._users.values()))
        is_right = bcrypt.checkpw(password.encode()[:_BCRYPT_BYTES], hashed.encode())
        return is_right and known is not None

    def _forget_one(self) -> None:
        """Forget the oldest wrong guess; who guesses must not push out who knows."""
        oldest = next((key for key, is_right in self._verdicts.items() if not is_right), None)
        self._verdicts.pop(next(iter(self._verdicts)) if oldest is None else oldest)
