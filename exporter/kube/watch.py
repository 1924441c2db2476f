"""One thread that keeps a view of one resource up to date; readers never wait for the API server.

Invariant: when the API server is away the last view stays as it is, and its `confirmed_at_ms` stands
still.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from random import Random
from typing import Generic

from exporter.kube.cancellation import Cancellation
from exporter.kube.client import ApiClient
from exporter.kube.errors import KubeError
from exporter.kube.feed import Feed, Happened, Listed, Message, Timing
from exporter.kube.mirror import Mirror
from exporter.kube.resources import Resource, T, Unreadable
from exporter.kube.view import Change, View

log = logging.getLogger(__name__)

STOP_WAIT_S = 2.0
"""Only a connection attempt outlasts a cancellation; its thread then ends by itself, silently."""


def wall_clock_ms() -> int:
    """Unix milliseconds."""
    return time.time_ns() // 1_000_000


class ObjectWatch(Generic[T]):
    """A list-and-watch in a thread of its own.

    Args:
        client: Asks the API server.
        resource: What to watch (`exporter.kube.resources`).
        timing: How patient to be.
        on_change: Called from the watch's thread after something changed; it must return at once
            (setting an Event is the use).
        may_all_be_gone: Whether an empty list can be true (`exporter.kube.mirror`); asked from the watch's
            thread after each list.
        random: Source of jitter.
        clock_ms: Unix milliseconds, for `seen_at_ms` and `confirmed_at_ms`.
        monotonic: Seconds of a clock that never steps.
    """

    def __init__(
        self,
        client: ApiClient,
        resource: Resource[T],
        *,
        timing: Timing | None = None,
        on_change: Callable[[], None] | None = None,
        may_all_be_gone: Callable[[], bool] = lambda: True,
        random: Random | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = resource.name
        self._on_change = on_change
        self._clock_ms = clock_ms
        self._cancellation = Cancellation()
        self._mirror: Mirror[T] = Mirror(lambda: resource.can_be_empty and may_all_be_gone())
        self._feed = Feed(
            client,
            resource,
            self._cancellation,
            is_believed=lambda: not self._mirror.is_suspect,
            timing=timing,
            random=random,
            monotonic=monotonic,
        )
        self._listed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{resource.name}", daemon=True)

    @property
    def name(self) -> str:
        """The resource's name."""
        return self._name

    @property
    def failure(self) -> KubeError | None:
        """Why the view stands still; None while the API server answers."""
        return self._mirror.failure

    def start(self) -> None:
        """Begin to list and watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it; the last view stays."""
        self._cancellation.cancel()
        if self._thread.is_alive():
            self._thread.join(STOP_WAIT_S)

    def view(self) -> View[T]:
        """What is known now, immutable."""
        return self._mirror.view()

    def drain(self) -> list[Change[T]]:
        """The changes since the last call, oldest first; none is newer than the next `view()`."""
        return self._mirror.drain()

    def wait_listed(self, timeout_s: float) -> bool:
        """Wait for the first list; False if it did not come in time."""
        return self._listed.wait(timeout_s)

    def _run(self) -> None:
        for message in self._feed.messages():
            failure_before = self._mirror.failure
            is_new = self._mirror.fold(message, self._clock_ms())
            for lost in _unreadable_in(message):
                uid = lost.uid or "without a UID"
                log.warning("watch of %s: object %s cannot be read: %s", self._name, uid, lost.detail)
            self._report(failure_before, self._mirror.failure)
            if not self._listed.is_set() and self._mirror.view().listed:
                self._listed.set()
            if is_new and self._on_change is not None:
                self._on_change()

    def _report(self, before: KubeError | None, now: KubeError | None) -> None:
        if now is not None and (before is None or before.reason != now.reason):
            log.warning("watch of %s: %s; the last view stays", self._name, now)
        elif now is None and before is not None:
            log.info("watch of %s: the API server answers again", self._name)


def _unreadable_in(message: Message[T]) -> Iterable[Unreadable]:
    match message:
        case Listed(unreadable=lost):
            return lost
        case Happened(object=Unreadable() as lost):
            return (lost,)
        case _:
            return ()
