"""How the double answers a GET: token, path, fault, then list, get or watch.

Invariant: what a client sees is what an API server of Kubernetes 1.31 sends on the same objects, but
for the faults that were asked for. Parameters that the double does not know are refused, not ignored.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from lab.kube.faults import (
    Answer,
    CutLine,
    Drop,
    EmptyList,
    ErrorEvent,
    Fault,
    Garbage,
    Pieces,
    Silence,
    Verb,
)
from lab.kube.json_object import JsonObject
from lab.kube.kinds import (
    API_PREFIX,
    BY_PLURAL,
    BadSelectorError,
    Kind,
    Selection,
    parse_field_selector,
)
from lab.kube.paging import ContinuationExpiredError
from lab.kube.replies import listing, only_metadata, status, wants_metadata_only
from lab.kube.request_log import Logged
from lab.kube.store import ExpiredError
from lab.kube.watching import Frame, WatchOrder, watch

if TYPE_CHECKING:
    from lab.kube.double import ApiDouble

DEFAULT_WATCH_S = 1800.0
GARBAGE = b"<html><body>502 Bad Gateway</body></html>\n"
KNOWN_PARAMETERS = {
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "watch",
}


class _RefusedError(Exception):
    def __init__(self, code: int, message: str = "", retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


class _HangUpError(Exception):
    pass


@dataclass(frozen=True, slots=True)
class _Target:
    """What a path names; `name` is empty for a collection."""

    kind: Kind
    namespace: str = ""
    name: str = ""


class Handler(BaseHTTPRequestHandler):
    """One connection; `double` is set by a subclass made for each double."""

    double: ApiDouble
    _asked: tuple[Verb, str] | None = None
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep the double quiet: its log is `ApiDouble.request_log`."""

    def do_GET(self) -> None:
        """Answer one request."""
        try:
            self._answer()
        except _RefusedError as refused:
            self._send(
                refused.code,
                status(refused.code, refused.message, refused.retry_after_s),
                retry_after_s=refused.retry_after_s,
            )
        except _HangUpError:
            self.close_connection = True

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if not self.double.accepts(self.headers.get("Authorization", "")):
            raise _RefusedError(401)
        target = _parse_path(parts.path)
        is_watch = query.get("watch", "") in {"1", "true"}
        verb: Verb = "get" if target.name else "watch" if is_watch else "list"
        self._asked = (verb, target.kind.plural)
        self.double.request_log.add(Logged(verb, parts.path, target.kind.plural, query))
        fault = self.double.faults.strike(verb, target.kind.plural)
        match fault:
            case Answer(code, retry_after_s):
                raise _RefusedError(code, retry_after_s=retry_after_s)
            case Drop():
                raise _HangUpError
            case Silence() if verb != "watch":
                self._await_departure()
        if verb == "get":
            self._get(target, fault)
        elif verb == "watch":
            self._watch(_selection(target, query), query, fault)
        else:
            self._list(_selection(target, query), query, fault)

    def _get(self, target: _Target, fault: Fault | None) -> None:
        found = self.double.store.get(target.kind.name, target.namespace, target.name)
        if found is None:
            raise _RefusedError(404, f'{target.kind.plural} "{target.name}" not found')
        if wants_metadata_only(self.headers.get("Accept", ""), is_list=False):
            found = only_metadata(found)
        self._send(200, found, fault=fault)

    def _list(self, selection: Selection, query: dict[str, str], fault: Fault | None) -> None:
        store = self.double.store
        version, found = store.select(selection)
        asked = _version(query)
        if asked is not None and asked > version:
            raise _RefusedError(504, f"Too large resource version: {asked}, current: {version}", 1)
        limit = _whole_number(query, "limit")
        if query.get("resourceVersion") == "0":
            # From the watch cache, which knows no pages.
            limit = 0
        continuation = query.get("continue", "")
        try:
            page = self.double.pages.page(version, found, limit, continuation)
        except ContinuationExpiredError as error:
            raise _RefusedError(410, str(error)) from error
        body = listing(
            selection.kind,
            () if isinstance(fault, EmptyList) else page.items,
            page.version,
            page.continuation,
            is_metadata_only=wants_metadata_only(self.headers.get("Accept", ""), is_list=True),
        )
        self._send(200, body, fault=fault)

    def _watch(self, selection: Selection, query: dict[str, str], fault: Fault | None) -> None:
        double = self.double
        version = _version(query)
        if version is not None:
            if version > double.store.version:
                raise _RefusedError(504, f"Too large resource version: {version}", 1)
            if double.gone_as == "status":
                try:
                    double.store.steps_after(version)
                except ExpiredError as error:
                    raise _RefusedError(410, str(error)) from error
        order = WatchOrder(
            selection,
            version,
            float(_whole_number(query, "timeoutSeconds") or DEFAULT_WATCH_S),
            query.get("allowWatchBookmarks", "") in {"1", "true"},
            wants_metadata_only(self.headers.get("Accept", ""), is_list=False),
        )
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if isinstance(fault, Silence):
            self._await_departure()
        frames = watch(
            double.store,
            order,
            bookmark_interval_s=double.bookmark_interval_s,
            monotonic=time.monotonic,
            is_over=lambda: double.is_stopping,
        )
        self._send_frames(frames, selection.kind.plural, fault if isinstance(fault, Pieces) else None)
        if double.is_stopping:
            # An outage: the stream must not end as if its time were up.
            raise _HangUpError
        self.wfile.write(b"0\r\n\r\n")

    def _send_frames(self, frames: Iterable[Frame], resource: str, pieces: Pieces | None) -> None:
        for frame in frames:
            line = msgspec.json.encode({"type": frame.type, "object": frame.object}) + b"\n"
            fault = None if frame.type == "BOOKMARK" else self.double.faults.strike("event", resource)
            match fault:
                case CutLine():
                    self._write_chunk(line[: len(line) // 2])
                    raise _HangUpError
                case ErrorEvent(code, retry_after_s):
                    error = {"type": "ERROR", "object": status(code, retry_after_s=retry_after_s)}
                    self._write_chunk(msgspec.json.encode(error) + b"\n")
                    return
                case Garbage():
                    line = GARBAGE
                case Drop():
                    raise _HangUpError
                case Silence():
                    self._await_departure()
            for piece in _cut(line, pieces):
                self._pause(pieces)
                self._write_chunk(piece)

    def _write_chunk(self, data: bytes) -> None:
        self._count(data)
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _pause(self, pieces: Pieces | None) -> None:
        if pieces is not None and pieces.pause_s:
            self.double.wait_stopping(pieces.pause_s)

    def _await_departure(self) -> None:
        # A client that waits for us sends nothing, so this returns when it leaves or we are severed.
        self.connection.recv(1)
        raise _HangUpError

    def _send(
        self, code: int, body: JsonObject, *, retry_after_s: int | None = None, fault: Fault | None = None
    ) -> None:
        data = GARBAGE if isinstance(fault, Garbage) else msgspec.json.encode(body)
        pieces = fault if isinstance(fault, Pieces) else None
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry_after_s is not None:
            self.send_header("Retry-After", str(retry_after_s))
        self.end_headers()
        for piece in _cut(data, pieces):
            self._pause(pieces)
            self._count(piece)
            self.wfile.write(piece)

    def _count(self, sent: bytes) -> None:
        if self._asked is not None:
            self.double.request_log.add_sent(*self._asked, len(sent))


def _cut(data: bytes, pieces: Pieces | None) -> Iterable[bytes]:
    if pieces is None:
        return (data,)
    return (data[begin : begin + pieces.size_bytes] for begin in range(0, len(data), pieces.size_bytes))


def _parse_path(path: str) -> _Target:
    steps = [unquote(step) for step in path.removeprefix(API_PREFIX).strip("/").split("/")]
    if not path.startswith(API_PREFIX + "/"):
        raise _RefusedError(404, f"the double serves {API_PREFIX} only")
    namespace = ""
    if len(steps) >= 3 and steps[0] == "namespaces":
        namespace, steps = steps[1], steps[2:]
    kind = BY_PLURAL.get(steps[0])
    if kind is None or len(steps) > 2 or (namespace and not kind.is_namespaced):
        raise _RefusedError(404, "the server could not find the requested resource")
    return _Target(kind, namespace, steps[1] if len(steps) == 2 else "")


def _selection(target: _Target, query: dict[str, str]) -> Selection:
    unknown = query.keys() - KNOWN_PARAMETERS
    if unknown:
        raise _RefusedError(400, f"the double does not know the parameter {min(unknown)}")
    if query.get("resourceVersionMatch", "NotOlderThan") != "NotOlderThan":
        raise _RefusedError(400, "the double knows resourceVersionMatch=NotOlderThan only")
    try:
        requirements = parse_field_selector(target.kind, query.get("fieldSelector", ""))
    except BadSelectorError as error:
        raise _RefusedError(400, str(error)) from error
    return Selection(target.kind, target.namespace, requirements)


def _version(query: dict[str, str]) -> int | None:
    return _whole_number(query, "resourceVersion") or None


def _whole_number(query: dict[str, str], name: str) -> int:
    text = query.get(name, "") or "0"
    if not (text.isascii() and text.isdigit()):
        raise _RefusedError(400, f'{name} "{text}" is no whole number')
    return int(text)
