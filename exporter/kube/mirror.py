"""What we know of a resource, folded from the feed's messages: objects, changes, how sure we are.

Invariants: the view equals the server's collection as of the last message; every difference between
two views was a `Change` exactly once; `confirmed_at_ms` moves with successful answers only.

**An empty list is not believed at once** while objects are known: caches in front of an API server
have answered so. The objects stay, the view is suspect and unconfirmed, and the resource is listed
again past every cache. The third empty list in a row is believed: then all objects have *vanished*, at
the time of the first of them. As long as `may_all_be_gone` says no (GPU processes of containers are
alive) no empty list is believed, the first one after a start included. A list that holds anything is
believed at once, and so are events.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic

from exporter.kube.errors import KubeError
from exporter.kube.feed import Confirmed, Connected, Happened, Listed, Message, Trouble
from exporter.kube.resources import T, Unreadable
from exporter.kube.view import Change, ChangeKind, View

EMPTY_LISTS_BEFORE_BELIEF = 3
MOST_CHANGES_KEPT = 100_000
"""More than a big cluster's pods, so that a first list fits; beyond it the oldest are dropped, and
the reader still finds the truth in the view."""


class Mirror(Generic[T]):
    """The thread-safe place where the feed's thread writes and the sampler reads.

    Args:
        may_all_be_gone: Whether it is possible that no object is left; False keeps a view suspect.
    """

    def __init__(self, may_all_be_gone: Callable[[], bool] = lambda: True) -> None:
        self._may_all_be_gone = may_all_be_gone
        self._lock = threading.Lock()
        self._objects: dict[str, T] = {}
        self._shown: Mapping[str, T] | None = None
        self._snapshot: View[T] | None = View()
        self._changes: deque[Change[T]] = deque(maxlen=MOST_CHANGES_KEPT)
        self._changes_total = 0
        self._is_listed = False
        self._confirmed_at_ms: int | None = None
        self._empty_lists = 0
        self._first_empty_ms = 0
        self._failure: KubeError | None = None

    @property
    def is_suspect(self) -> bool:
        """Whether the last list was empty and is not believed."""
        return self._empty_lists > 0

    @property
    def failure(self) -> KubeError | None:
        """Why the view stands still; None while all is well."""
        return self._failure

    def view(self) -> View[T]:
        """The present view; built when asked for, so that an event costs nothing per object known."""
        with self._lock:
            if self._snapshot is None:
                if self._shown is None:
                    self._shown = MappingProxyType(dict(self._objects))
                self._snapshot = View(self._shown, self._is_listed, self._confirmed_at_ms, self.is_suspect)
            return self._snapshot

    def drain(self) -> list[Change[T]]:
        """The changes since the last call, oldest first."""
        with self._lock:
            changes = list(self._changes)
            self._changes.clear()
            return changes

    def fold(self, message: Message[T], now_ms: int) -> bool:
        """Take a message in; True if a reader would see something new besides the confirmation."""
        # Asked outside the lock: whoever answers may look at this very view.
        may_be_empty = isinstance(message, Listed) and self._may_all_be_gone()
        with self._lock:
            before = (self._changes_total, self._is_listed, self.is_suspect)
            match message:
                case Listed():
                    self._take_list(message, now_ms, may_be_empty=may_be_empty)
                case Happened():
                    self._take_event(message, now_ms)
                case Confirmed():
                    self._confirm(now_ms)
                case Connected():
                    self._failure = None
                case Trouble(error):
                    self._failure = error
            return before != (self._changes_total, self._is_listed, self.is_suspect)

    def _take_list(self, listed: Listed[T], now_ms: int, *, may_be_empty: bool) -> None:
        is_empty = not listed.objects and not listed.unreadable
        gone_at_ms = now_ms
        if is_empty and (self._objects or not may_be_empty):
            if self._empty_lists == 0:
                self._first_empty_ms = now_ms
            self._empty_lists += 1
            self._snapshot = None
            self._failure = None
            if self._empty_lists < EMPTY_LISTS_BEFORE_BELIEF or not may_be_empty:
                return
            gone_at_ms = self._first_empty_ms
        self._empty_lists = 0
        present = {found.metadata.uid for found in listed.objects} | {lost.uid for lost in listed.unreadable}
        # An object without a readable UID may be any of those we know: then none of them is gone.
        absent = [] if "" in present else [uid for uid in self._objects if uid not in present]
        for uid in absent:
            self._record("vanished", self._objects.pop(uid), gone_at_ms)
        for found in listed.objects:
            self._put(found, now_ms)
        self._is_listed = True
        self._confirm(now_ms)

    def _take_event(self, event: Happened[T], now_ms: int) -> None:
        self._confirm(now_ms)
        found = event.object
        if isinstance(found, Unreadable):
            known = self._objects.get(found.uid)
            if known is None or event.kind != "deleted":
                return
            found = known
        if event.kind != "deleted":
            self._put(found, now_ms)
        elif self._objects.pop(found.metadata.uid, None) is not None:
            self._record("deleted", found, now_ms)

    def _put(self, found: T, now_ms: int) -> None:
        uid = found.metadata.uid
        known = self._objects.get(uid)
        if known is not None and known.metadata.resource_version == found.metadata.resource_version:
            return
        self._objects[uid] = found
        self._record("added" if known is None else "modified", found, now_ms)

    def _record(self, kind: ChangeKind, changed: T, now_ms: int) -> None:
        self._shown = None
        self._changes.append(Change(kind, changed, now_ms))
        self._changes_total += 1

    def _confirm(self, now_ms: int) -> None:
        self._confirmed_at_ms = now_ms
        self._snapshot = None
        self._failure = None
