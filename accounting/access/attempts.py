"""Failed sign-ins, counted by address, so that nobody may try tokens as fast as the service answers.

A token has 256 random bits and is not guessed; the limit keeps the database and the signature checks from
whoever tries anyway, or whose expired token is sent in a loop. Invariant: a bearer who signed in with this
token a moment ago is never held up by others at the same address (a proxy's, above all), and however many
addresses there are, the memory that this takes is bounded.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

MAX_FAILURES = 20
PER_MS = 60_000
"""So many within a minute; each is forgotten after that time."""

_MAX_ADDRESSES = 10_000
_MAX_TOKENS = 10_000


class FailedSignIns:
    """The failures of one running service."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: OrderedDict[str, list[int]] = OrderedDict()
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def wait_ms(self, address: str, token: str, *, now_ms: int) -> int:
        """How long this address has to wait before a token is looked at; 0: not at all."""
        with self._lock:
            if _digest(token) in self._good:
                return 0
            recent = self._recent(address, now_ms)
            return recent[0] + PER_MS - now_ms if len(recent) >= MAX_FAILURES else 0

    def failed(self, address: str, token: str, *, now_ms: int) -> None:
        """Count a failure; the token is not known as good any more."""
        with self._lock:
            self._good.pop(_digest(token), None)
            recent = self._recent(address, now_ms)
            recent.append(now_ms)
            self._failures[address] = recent[-MAX_FAILURES:]
            _bound(self._failures, address, _MAX_ADDRESSES)

    def succeeded(self, token: str) -> None:
        """Remember that a token is good: it is checked again each time, but never held up."""
        with self._lock:
            digest = _digest(token)
            self._good[digest] = None
            _bound(self._good, digest, _MAX_TOKENS)

    def _recent(self, address: str, now_ms: int) -> list[int]:
        return [at_ms for at_ms in self._failures.get(address, ()) if now_ms - PER_MS < at_ms <= now_ms]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _bound(
    kept: OrderedDict[str, list[int]] | OrderedDict[bytes, None], newest: str | bytes, most: int
) -> None:
    kept.move_to_end(newest)  # type: ignore[arg-type]
    while len(kept) > most:
        kept.popitem(last=False)
