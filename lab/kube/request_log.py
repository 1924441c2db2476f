"""Who asked what: the double's memory of requests, for claims like "a scrape asks the API nothing"."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from lab.kube.faults import Verb


@dataclass(frozen=True, slots=True)
class Logged:
    """A request that carried a valid token, with its query as sent."""

    verb: Verb
    path: str
    resource: str
    query: Mapping[str, str]


class RequestLog:
    """All requests since the double was made or the log was cleared."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Logged] = []

    def add(self, entry: Logged) -> None:
        """Remember a request."""
        with self._lock:
            self._entries.append(entry)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._entries.clear()

    def entries(self, verb: Verb | None = None, resource: str | None = None) -> list[Logged]:
        """The requests of a verb on a resource (plural), oldest first; None means any."""
        with self._lock:
            return [
                entry
                for entry in self._entries
                if verb in {None, entry.verb} and resource in {None, entry.resource}
            ]

    def count(self, verb: Verb | None = None, resource: str | None = None) -> int:
        """How many there were."""
        return len(self.entries(verb, resource))
