"""A view: what a watch knows of one kind of object at one moment, immutable.

The watch thread (`exporter/kube/watch.py`) replaces it whole; readers take the reference and never
lock. Invariant: `confirmed_at_ms` is the time of the last successful list or watch message, so a
view that has gone stale says so by standing still.
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
        is_suspect: An empty list came while objects were known: believe it last.
    """

    objects: Mapping[str, Object] = field(default_factory=lambda: MappingProxyType({}))
    listed: bool = False
    confirmed_at_ms: int | None = None
    is_suspect: bool = False
