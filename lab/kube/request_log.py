"""Who asked what and how much was sent, for claims like "a scrape asks the API nothing"."""

from __future__ import annotations

import threading
from collections import Counter
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
        self._sent: Counter[tuple[Verb, str]] = Counter()

    def add(self, entry: Logged) -> None:
        """Remember a request."""
        with self._lock:
            self._entries.append(entry)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._entries.clear()
            self._sent.clear()

    def add_sent(self, verb: Verb, resource: str, size_bytes: int) -> None:
        """Count bytes of a body that were sent."""
        with self._lock:
            self._sent[verb, resource] += size_bytes

    def sent_bytes(self, verb: Verb | None = None, resource: str | None = None) -> int:
        """How many bytes of bodies were sent in answer to a verb on a resource; None means any."""
        with self._lock:
            return sum(
                size
                for (one_verb, one_resource), size in self._sent.items()
                if verb in {None, one_verb} and resource in {None, one_resource}
            )

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
