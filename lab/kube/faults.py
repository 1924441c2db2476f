"""What an API server may do to its clients, scripted: each fault is a value, used up when it strikes.

Invariant: a fault strikes as often as it was asked for and only where it was asked for.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal, TypeAlias

Verb: TypeAlias = Literal["get", "list", "watch", "event"]
"""What a fault strikes: a request of one of three kinds, or the next event of an open watch."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Refuse with this HTTP status (429 and 503 may say when to come back)."""

    status: int
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection without an answer."""


@dataclass(frozen=True, slots=True)
class Silence:
    """Accept the request and send nothing more, for a watch after the headers, until the client leaves."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Send the body in small pieces with a pause before each."""

    size_bytes: int
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EmptyList:
    """Answer a list as if there were nothing."""


@dataclass(frozen=True, slots=True)
class CutLine:
    """Send the first half of the next event, then drop the connection."""


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """Send an ERROR event instead of the next event, then end the watch."""

    code: int
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Garbage:
    """Send a proxy's page with status 200, or as a line in place of the next event, where JSON belongs."""


Fault: TypeAlias = Answer | Drop | Silence | Pieces | EmptyList | CutLine | ErrorEvent | Garbage


@dataclass(slots=True)
class _Planned:
    fault: Fault
    times: int | None
    verb: Verb | None
    resource: str | None
    spared: int


class FaultPlan:
    """Faults that wait for their moment, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._planned: list[_Planned] = []

    def add(
        self, fault: Fault, times: int | None, verb: Verb | None, resource: str | None, spared: int
    ) -> None:
        """Plan a fault; `times` None lasts until `clear`, verb or resource None matches any."""
        if verb is None:
            verb = _NATURAL_VERB.get(type(fault))
        with self._lock:
            self._planned.append(_Planned(fault, times, verb, resource, spared))

    def clear(self) -> None:
        """Forget what has not struck yet."""
        with self._lock:
            self._planned.clear()

    def strike(self, verb: Verb, resource: str) -> Fault | None:
        """The fault for this moment, if one is planned."""
        with self._lock:
            for planned in self._planned:
                if planned.resource not in {None, resource}:
                    continue
                if planned.verb != verb and not (planned.verb is None and verb != "event"):
                    continue
                if planned.spared:
                    planned.spared -= 1
                    continue
                if planned.times is not None:
                    planned.times -= 1
                    if planned.times <= 0:
                        self._planned.remove(planned)
                return planned.fault
        return None


_NATURAL_VERB: dict[type, Verb] = {CutLine: "event", ErrorEvent: "event", EmptyList: "list"}
