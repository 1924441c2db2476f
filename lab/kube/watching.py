"""One watch of the double: history first, then what happens, with bookmarks in between.

Invariant: frames come in the order of their versions, each change once, seen through the selection:
an object that begins to match is ADDED, one that ceases to match is DELETED, as an API server does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lab.kube.json_object import JsonObject
from lab.kube.kinds import Selection
from lab.kube.replies import bookmark, only_metadata, status
from lab.kube.store import ExpiredError, Step, Store

FrameType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a watch."""

    type: FrameType
    object: JsonObject


@dataclass(frozen=True, slots=True)
class WatchOrder:
    """What a client asked for.

    Attributes:
        selection: Which objects.
        version: After which version; None begins with all objects as ADDED.
        seconds: When the server ends the watch.
        has_bookmarks: Whether bookmarks were allowed.
        is_metadata_only: Whether only metadata was asked for.
    """

    selection: Selection
    version: int | None
    seconds: float
    has_bookmarks: bool
    is_metadata_only: bool


def watch(
    store: Store,
    order: WatchOrder,
    *,
    bookmark_interval_s: float,
    monotonic: Callable[[], float],
    is_over: Callable[[], bool],
) -> Iterator[Frame]:
    """The frames of a watch until its time is up or the server stops."""
    end = monotonic() + order.seconds
    next_bookmark = monotonic() + bookmark_interval_s
    if order.version is None:
        cursor, present = store.select(order.selection)
        for found in present:
            yield Frame("ADDED", _shown(order, found))
    else:
        cursor = order.version
    while not is_over() and (now := monotonic()) < end:
        try:
            steps = store.steps_after(cursor)
        except ExpiredError as error:
            yield Frame("ERROR", status(410, str(error)))
            return
        for step in steps:
            cursor = step.version
            frame = _frame(order, step)
            if frame is not None:
                yield frame
        if order.has_bookmarks and now >= next_bookmark:
            next_bookmark = now + bookmark_interval_s
            yield Frame(
                "BOOKMARK", bookmark(order.selection.kind, cursor, is_metadata_only=order.is_metadata_only)
            )
        until = min(end, next_bookmark) if order.has_bookmarks else end
        store.wait_beyond(cursor, max(0.0, until - monotonic()), is_over)


def _frame(order: WatchOrder, step: Step) -> Frame | None:
    if step.kind is not order.selection.kind:
        return None
    was_selected = order.selection.has(step.before)
    if step.after is not None and order.selection.has(step.after):
        return Frame("MODIFIED" if was_selected else "ADDED", _shown(order, step.after))
    if step.before is None or not was_selected:
        return None
    # The watcher is shown the last state that it was allowed to see, at the version of the change.
    metadata = step.before["metadata"] | {"resourceVersion": str(step.version)}
    return Frame("DELETED", _shown(order, step.before | {"metadata": metadata}))


def _shown(order: WatchOrder, found: JsonObject) -> JsonObject:
    return only_metadata(found) if order.is_metadata_only else found
