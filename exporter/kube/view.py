"""A view: what a watch knows of one kind of object at one moment, immutable.

`ObjectWatch.view()` (`exporter/kube/watch.py`) hands it out; it never changes afterwards, and while no
object changed, one view after the other has the very same `objects`. Invariant: `confirmed_at_ms` is the
time of the last successful list or watch message, so a view that has gone stale says so by standing still.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, Literal, TypeAlias, TypeVar

Object = TypeVar("Object")

ChangeKind: TypeAlias = Literal["added", "modified", "deleted", "vanished"]
"""`deleted` was seen as an event; `vanished` means absent after a relist (an inferred end)."""


@dataclass(frozen=True, slots=True)
class Change(Generic[Object]):
    """One thing that happened to one object; `seen_at_ms` is our clock, Unix milliseconds."""

    kind: ChangeKind
    object: Object
    seen_at_ms: int


@dataclass(frozen=True, slots=True)
class View(Generic[Object]):
    """Objects by UID.

    Attributes:
        objects: UID to object.
        listed: True once a list has succeeded; before it the view says nothing.
        confirmed_at_ms: The last successful answer, Unix milliseconds; None before the first.
        is_suspect: An empty list came that cannot be true yet: the objects are those known before it
            (`exporter/kube/mirror.py` says when such a list is believed).
    """

    objects: Mapping[str, Object] = field(default_factory=lambda: MappingProxyType({}))
    listed: bool = False
    confirmed_at_ms: int | None = None
    is_suspect: bool = False
