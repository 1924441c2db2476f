"""Pages of a list: a snapshot taken with the first page, handed out with continue tokens.

Invariant: all pages of one list show one version, whatever changes in between.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from lab.kube.json_object import JsonObject


class ContinuationExpiredError(Exception):
    """The token is not (or no longer) known."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some items, the version of the whole, and the token of the next page ("" for the last)."""

    version: int
    items: Sequence[JsonObject]
    continuation: str


class Pages:
    """Snapshots that wait for their next page."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[int, Sequence[JsonObject]]] = {}

    def forget(self) -> None:
        """Expire all tokens, as a compaction does."""
        with self._lock:
            self._waiting.clear()

    def page(self, version: int, found: Sequence[JsonObject], limit: int, continuation: str) -> Page:
        """The next page: of `found` at `version`, or of the snapshot that a token stands for.

        Raises:
            ContinuationExpiredError: The token is unknown.
        """
        with self._lock:
            if continuation:
                if continuation not in self._waiting:
                    raise ContinuationExpiredError("The provided continue parameter is too old")
                version, found = self._waiting[continuation]
            if not limit or len(found) <= limit:
                return Page(version, found, "")
            token = uuid.uuid4().hex
            self._waiting[token] = (version, found[limit:])
            return Page(version, found[:limit], token)
