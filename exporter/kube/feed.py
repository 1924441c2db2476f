"""List, then watch, for ever: four small generators, each the loop around the one before it.

`list_objects` asks once; `connection` is one watch request; `life` follows one list through as many
connections as its version allows; `messages` lists again when that ends. Invariant: after a `Listed`
the messages up to the next `Listed` hold every later change exactly in the server's order, because a
watch always goes on from the version of the last thing that was yielded.

Facts about the protocol: `reference/metering.md §6`.
"""

from __future__ import annotations

import http
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from random import Random
from typing import Generic, Literal, TypeAlias

import msgspec

from exporter.kube.backoff import Backoff
from exporter.kube.cancellation import Cancellation
from exporter.kube.client import ApiClient, Request, complete_lines
from exporter.kube.errors import KubeError, refusal
from exporter.kube.resources import Resource, T, Unreadable, identity_of

ANY_VERSION = "0"
"""A list from the API server's cache: cheap for a thousand nodes that start at once."""
NEWEST_VERSION = ""
"""A list of the present state, past every cache of the API server."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How patient a watch is; all in seconds.

    Attributes:
        silence_s: A watch that brings nothing for so long is dead; above the bookmark interval of an
            API server (one minute).
        watch_min_s: Lower end of the `timeoutSeconds` we ask for; the server ends the watch then, so
            that even a resource without bookmarks is confirmed before `silence_s`.
        watch_max_s: Upper end.
        list_silence_s: The same as silence_s for a list.
        first_wait_s: First back-off.
        ceiling_s: Longest back-off.
        doubt_s: Between two lists while an empty one is not believed.
        relist_after_s: After this long without a word a watch is not resumed but begun with a list: a
            resumed one would tell of a deletion of an hour ago as if it happened now.
        page_objects: Objects asked for at once.
    """

    silence_s: float = 90.0
    watch_min_s: float = 45.0
    watch_max_s: float = 75.0
    list_silence_s: float = 60.0
    first_wait_s: float = 0.5
    ceiling_s: float = 30.0
    doubt_s: float = 20.0
    relist_after_s: float = 120.0
    page_objects: int = 500


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """The whole collection at one version."""

    objects: tuple[T, ...]
    unreadable: tuple[Unreadable, ...]
    version: str


@dataclass(frozen=True, slots=True)
class Happened(Generic[T]):
    """A watch event."""

    kind: Literal["added", "modified", "deleted"]
    object: T | Unreadable
    version: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The server said that nothing else happened: a bookmark, or a watch that it ended in order."""

    version: str = ""


@dataclass(frozen=True, slots=True)
class Connected:
    """A watch was accepted; nothing is known yet, but the server is there."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A request failed; the feed goes on by itself."""

    error: KubeError


Message: TypeAlias = Listed[T] | Happened[T] | Confirmed | Connected | Trouble


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""
    details: _Details | None = None


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_KINDS: dict[str, Literal["added", "modified", "deleted"]] = {
    "ADDED": "added",
    "MODIFIED": "modified",
    "DELETED": "deleted",
}
_PAGE = msgspec.json.Decoder(_Page)
_LINE = msgspec.json.Decoder(_Line)
_STATUS = msgspec.json.Decoder(_Status)


class Feed(Generic[T]):
    """The endless stream of what happens to one resource.

    Args:
        client: Asks the API server.
        resource: What to list and watch.
        cancellation: Ends every wait and with it the stream.
        is_believed: Asked after each list: False lists again instead of watching.
        timing: How patient to be.
        random: Source of all jitter.
        monotonic: Seconds of a clock that never steps.
    """

    def __init__(
        self,
        client: ApiClient,
        resource: Resource[T],
        cancellation: Cancellation,
        *,
        is_believed: Callable[[], bool] = lambda: True,
        timing: Timing | None = None,
        random: Random | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._resource = resource
        self._cancellation = cancellation
        self._is_believed = is_believed
        self._timing = timing or Timing()
        self._random = random or Random()  # noqa: S311 - jitter is no secret
        self._monotonic = monotonic
        self._backoff = Backoff(self._timing.first_wait_s, self._timing.ceiling_s, self._random)

    def messages(self) -> Iterator[Message[T]]:
        """List and follow, again and again, until cancelled; never raises a `KubeError`."""
        is_paged = self._resource.is_paged
        version, in_pages = NEWEST_VERSION if is_paged else ANY_VERSION, True
        while not self._cancellation.is_cancelled:
            try:
                listed = self.list_objects(version, in_pages=in_pages)
            except KubeError as error:
                version = NEWEST_VERSION if error.needs_list else version
                # Pages that expire before the last one was read: only a list in one piece can succeed.
                in_pages = in_pages and error.status != http.HTTPStatus.GONE
                yield from self._give_way(error)
                continue
            yield listed
            version = NEWEST_VERSION
            if self._is_believed():
                version = yield from self.life(listed.version)
            else:
                self._cancellation.wait(self._timing.doubt_s)
            # An API server keeps lists of a known version at hand, but only in one piece.
            in_pages = is_paged or version == NEWEST_VERSION

    def life(self, version: str) -> Generator[Message[T], None, str]:
        """What happens after a list of this version, until only a new list helps.

        Returns:
            The version which that list must not be older than.
        """
        heard_s = self._monotonic()
        while not self._cancellation.is_cancelled:
            began = self._monotonic()
            if began - heard_s > self._timing.relist_after_s:
                return version
            try:
                for message in self.connection(version):
                    heard_s = self._monotonic()
                    if isinstance(message, Happened | Confirmed):
                        version = message.version or version
                        self._backoff.reset()
                    yield message
            except KubeError as error:
                if self._monotonic() - began >= self._timing.ceiling_s:
                    self._backoff.reset()
                if error.status == http.HTTPStatus.GONE:
                    # How a healthy server asks for a new list; but not in step with a thousand others.
                    self._cancellation.wait(self._backoff.next_s())
                    return NEWEST_VERSION
                yield from self._give_way(error)
                if error.needs_list:
                    return NEWEST_VERSION
            else:
                heard_s = self._monotonic()
                yield Confirmed()
                if self._monotonic() - began < self._timing.first_wait_s:
                    # A server that ends each watch at once must not be asked in a tight loop.
                    self._cancellation.wait(self._backoff.next_s())
        return NEWEST_VERSION

    def connection(self, version: str) -> Generator[Message[T], None, None]:
        """One watch request; ends when the server ends it in order.

        Raises:
            KubeError: It was refused, broke, fell silent, or brought an ERROR event.
        """
        seconds = self._random.uniform(self._timing.watch_min_s, self._timing.watch_max_s)
        query = self._selection() | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        accept = self._resource.accept(is_list=False)
        request = Request(self._resource.path, query, accept, self._timing.silence_s)
        with self._client.stream(request, self._cancellation) as pieces:
            yield Connected()
            for line in complete_lines(pieces):
                yield self._read_line(line)

    def list_objects(self, version: str, *, in_pages: bool = True) -> Listed[T]:
        """The whole collection, page by page or in one piece.

        Raises:
            KubeError: A page failed; what came before is dropped, for half a list would end slices.
        """
        objects: list[T] = []
        unreadable: list[Unreadable] = []
        limit = {"limit": str(self._timing.page_objects)} if in_pages else {}
        query = self._selection() | limit
        if version:
            query |= {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
        listed_version = ""
        while True:
            page = self._page(query)
            for raw in page.items or ():
                decoded = self._resource.decode(raw)
                if isinstance(decoded, Unreadable):
                    unreadable.append(decoded)
                else:
                    objects.append(decoded)
            listed_version = listed_version or page.metadata.resource_version
            if not page.metadata.continue_:
                return Listed(tuple(objects), tuple(unreadable), listed_version)
            query = self._selection() | limit | {"continue": page.metadata.continue_}

    def _selection(self) -> dict[str, str]:
        selector = self._resource.field_selector
        return {"fieldSelector": selector} if selector else {}

    def _page(self, query: dict[str, str]) -> _Page:
        accept = self._resource.accept(is_list=True)
        request = Request(self._resource.path, query, accept, self._timing.list_silence_s)
        body = self._client.read(request, self._cancellation)
        try:
            return _PAGE.decode(body)
        except msgspec.MsgspecError as error:
            raise KubeError("malformed", f"list of {self._resource.name}: {error}") from error

    def _read_line(self, line: bytes) -> Message[T]:
        name = self._resource.name
        try:
            parsed = _LINE.decode(line)
            if parsed.type == "ERROR":
                status = _STATUS.decode(parsed.object)
                retry_after_s = status.details.retry_after_seconds if status.details else None
                raise refusal(status.code, f"watch of {name}: {status.code} {status.message}", retry_after_s)
        except msgspec.MsgspecError as error:
            raise KubeError("malformed", f"watch of {name}: {error}") from error
        version = identity_of(parsed.object).resource_version
        if parsed.type == "BOOKMARK":
            return Confirmed(version)
        kind = _KINDS.get(parsed.type)
        if kind is None:
            raise KubeError("malformed", f'watch of {name}: event type "{parsed.type}" is unknown')
        return Happened(kind, self._resource.decode(parsed.object), version)

    def _give_way(self, error: KubeError) -> Iterator[Message[T]]:
        if self._cancellation.is_cancelled:
            return
        yield Trouble(error.detached())
        self._cancellation.wait(self._backoff.next_s(error.retry_after_s))
