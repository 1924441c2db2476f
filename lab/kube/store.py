"""What the double knows: objects, one growing version, and the history that watches replay.

Invariant: every change has its own version, larger than all before it; a history from version v holds
each change after v exactly once, or the store says that v is too old.
"""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from lab.kube.json_object import JsonObject, copy_of, merge_patch
from lab.kube.kinds import BY_NAME, Kind, Selection

FIRST_VERSION = 1000
"""Any number but 0 and 1, so that nobody mistakes a version for a count."""


LONGEST_HISTORY = 20_000
"""Steps kept; a watch that begins before them is answered with 410."""


class StoreError(Exception):
    """The object exists, or does not, or names no kind of ours."""


class ExpiredError(Exception):
    """The version is older than the history."""


@dataclass(frozen=True, slots=True)
class Step:
    """One change of one object; `before` None: created, `after` None: deleted."""

    version: int
    kind: Kind
    before: JsonObject | None
    after: JsonObject | None


class Store:
    """Objects by kind, namespace and name.

    Args:
        clock: Aware UTC time for creation timestamps.
    """

    def __init__(self, clock: Callable[[], dt.datetime]) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._objects: dict[tuple[str, str, str], JsonObject] = {}
        self._history: list[Step] = []
        self._version = FIRST_VERSION
        self._oldest = FIRST_VERSION

    @property
    def version(self) -> int:
        """The version of the last change."""
        return self._version

    def create(self, kind: str, new: JsonObject) -> JsonObject:
        """Add an object; uid, creationTimestamp and a larger resourceVersion are kept if given.

        Raises:
            StoreError: It exists, has no name, or its kind is unknown.
        """
        with self._changed:
            key = _key(kind, new)
            if key in self._objects:
                raise StoreError(f"{kind} {key[1]}/{key[2]} exists")
            return self._put(key, None, copy_of(new))

    def apply(self, kind: str, new: JsonObject) -> JsonObject:
        """Create the object or replace all of it but its identity."""
        with self._changed:
            key = _key(kind, new)
            return self._put(key, self._objects.get(key), copy_of(new))

    def patch(self, kind: str, namespace: str, name: str, change: JsonObject) -> JsonObject:
        """Change an object by a merge patch (`null` deletes a key).

        Raises:
            StoreError: There is no such object.
        """
        with self._changed:
            known = self._known(kind, namespace, name)
            return self._put((kind, namespace, name), known, merge_patch(known, copy_of(change)))

    def delete(self, kind: str, namespace: str, name: str) -> JsonObject:
        """Remove an object.

        Raises:
            StoreError: There is no such object.
        """
        with self._changed:
            known = self._known(kind, namespace, name)
            del self._objects[kind, namespace, name]
            self._version += 1
            self._remember(Step(self._version, BY_NAME[kind], known, None))
            return copy_of(known)

    def get(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """A copy of one object, or None."""
        with self._changed:
            found = self._objects.get((kind, namespace, name))
            return None if found is None else copy_of(found)

    def select(self, selection: Selection) -> tuple[int, list[JsonObject]]:
        """The store's version and the objects selected, in order of namespace and name.

        The objects are the stored ones: for reading only.
        """
        with self._changed:
            keys = sorted(key for key in self._objects if key[0] == selection.kind.name)
            return self._version, [self._objects[key] for key in keys if selection.has(self._objects[key])]

    def steps_after(self, version: int) -> list[Step]:
        """All later changes, oldest first.

        Raises:
            ExpiredError: Some of them are forgotten.
        """
        with self._changed:
            if version < self._oldest:
                raise ExpiredError(f"too old resource version: {version} ({self._oldest})")
            begin = len(self._history)
            while begin and self._history[begin - 1].version > version:
                begin -= 1
            return self._history[begin:]

    def wait_beyond(self, version: int, timeout_s: float, is_over: Callable[[], bool]) -> None:
        """Wait for a change after a version, or until it `is_over` (looked at after each `wake`)."""
        with self._changed:
            self._changed.wait_for(lambda: self._version > version or is_over(), timeout_s)

    def wake(self) -> None:
        """Let those who wait look again."""
        with self._changed:
            self._changed.notify_all()

    def compact(self) -> None:
        """Forget the history: every version but the present one is gone.

        A watch that has seen everything goes on, as it does when etcd compacts.
        """
        with self._changed:
            self._oldest = self._version
            self._history.clear()

    def _known(self, kind: str, namespace: str, name: str) -> JsonObject:
        try:
            return self._objects[kind, namespace, name]
        except KeyError:
            raise StoreError(f"there is no {kind} {namespace}/{name}") from None

    def _put(self, key: tuple[str, str, str], known: JsonObject | None, new: JsonObject) -> JsonObject:
        kind = BY_NAME[key[0]]
        # A patch without metadata leaves the known object's own in place, and that is history by now.
        metadata = dict(new["metadata"])
        if known is not None:
            metadata |= {name: known["metadata"][name] for name in ("uid", "creationTimestamp")}
            metadata["resourceVersion"] = known["metadata"]["resourceVersion"]
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", self._clock().strftime("%Y-%m-%dT%H:%M:%SZ"))
        new = {"apiVersion": "v1", "kind": kind.name} | new | {"metadata": metadata}
        if new != known:
            given = int(metadata.get("resourceVersion", 0)) if known is None else 0
            self._version = max(self._version + 1, given)
            metadata["resourceVersion"] = str(self._version)
            self._objects[key] = new
            self._remember(Step(self._version, kind, known, new))
        return copy_of(new)

    def _remember(self, step: Step) -> None:
        self._history.append(step)
        if len(self._history) > LONGEST_HISTORY:
            forgotten = self._history[: LONGEST_HISTORY // 2]
            self._oldest = forgotten[-1].version
            del self._history[: len(forgotten)]
        self._changed.notify_all()


def _key(kind: str, new: JsonObject) -> tuple[str, str, str]:
    if kind not in BY_NAME:
        raise StoreError(f'kind "{kind}" is not served; there are: {", ".join(BY_NAME)}')
    metadata = new.get("metadata", {})
    name = metadata.get("name")
    if not name:
        raise StoreError(f"a {kind} needs metadata.name")
    namespace = metadata.get("namespace", "")
    if BY_NAME[kind].is_namespaced != bool(namespace):
        raise StoreError(
            f"{kind} {name}: metadata.namespace is {'missing' if not namespace else 'wrong here'}"
        )
    return kind, namespace, name
