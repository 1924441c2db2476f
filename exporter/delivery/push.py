"""The push of facts to accounting: one thread, one batch at a time, oldest facts first.

Invariant: a batch leaves the outbox only when accounting answered that it has read it (or that it never
will); every other answer, and none, keeps it. Nothing is sent before the cluster's own uid is known,
because accounting guards by it against a cluster that goes under another's code.

The answers: `reference/ledger.md §5`, table of `POST /api/v1/facts`.
"""

from __future__ import annotations

import gzip
import http.client
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from random import Random
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from contract.facts import (
    CONTENT_TYPE,
    FACTS_PATH,
    HEADER_KUBE_SYSTEM_UID,
    HEADER_SENT_AT,
    HEADER_SOURCE,
    MAX_FACTS_PER_BATCH,
    SCHEMA,
)
from contract.ids import EpochId
from contract.version import VERSION
from exporter.delivery.metrics import DeliveryMetrics
from exporter.delivery.state import Batch, StateFile
from exporter.kube.backoff import Backoff
from exporter.kube.cancellation import Cancellation, shut_down
from exporter.settings import AccountingAccess

POLL_SECONDS: Final = 2.0
"""How often the outbox is looked at; starts and ends must be away within 5 s."""
BACKOFF_FIRST_SECONDS: Final = 1.0
BACKOFF_CEILING_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 60.0
"""For a whole answer, however often a byte of it comes."""
ERROR_BODY_BYTES: Final = 64 * 1024
RECEIPT_BYTES: Final = 16 * 1024 * 1024
"""Far above a batch of which every fact was rejected at length."""
REJECTIONS_SHOWN: Final = 5
SHOWN_CHARACTERS: Final = 300

Result: TypeAlias = Literal["ok", "refused", "unreachable", "set_aside"]

_TOO_LARGE = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
_UNREADABLE = frozenset({HTTPStatus.UNSUPPORTED_MEDIA_TYPE, HTTPStatus.UNPROCESSABLE_ENTITY})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sender:
    """Who pushes; the node's fields are those of the node role."""

    role: Literal["node", "cluster"]
    epoch: EpochId
    kube_system_uid: str
    node: str = ""
    node_uid: str = ""

    def header(self) -> str:
        """The text of the `Slicemeter-Source` header."""
        fields: dict[str, str] = {"role": self.role}
        if self.role == "node":
            fields |= {"node_uid": self.node_uid, "node": self.node}
        fields |= {"epoch": self.epoch, "version": VERSION, "schema": str(SCHEMA)}
        return ";".join(f"{name}={value}" for name, value in fields.items())


class Rejection(msgspec.Struct, frozen=True):
    """One fact that accounting put into quarantine."""

    line: int
    reason: str
    detail: str = ""


class Receipt(msgspec.Struct, frozen=True):
    """What accounting did with a batch."""

    stored: int
    duplicate: int
    rejected: list[Rejection] = []


class _Problem(msgspec.Struct, frozen=True):
    """The part of a problem document (RFC 9457) that a person wants to read."""

    title: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; `status` None = nothing did, and `text` says why."""

    status: int | None
    text: str
    receipt: Receipt | None = None
    retry_after_s: float | None = None


class Pusher:
    """Sends what waits in the outbox, in a thread of its own.

    Args:
        state: The outbox.
        access: Where to send, with which token.
        metrics: Where results are counted.
        sender: Who we are; None while the cluster or the node is not known yet.
        wall_ms: Unix milliseconds, for `sent_at`.
        random: Source of the jitter.
        answer_seconds: How long a whole answer may take.
    """

    def __init__(
        self,
        state: StateFile,
        access: AccountingAccess,
        metrics: DeliveryMetrics,
        *,
        sender: Callable[[], Sender | None],
        wall_ms: Callable[[], int],
        random: Random | None = None,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._state = state
        self._access = access
        self._metrics = metrics
        self._sender = sender
        self._wall_ms = wall_ms
        # A demo confirms every 2 s and must not wait a minute after an outage.
        ceiling_s = min(BACKOFF_CEILING_SECONDS, max(POLL_SECONDS, access.push_interval_seconds / 5))
        self._backoff = Backoff(BACKOFF_FIRST_SECONDS, ceiling_s, random or Random())  # noqa: S311 - jitter
        self._answer_seconds = answer_seconds
        self._limit = MAX_FACTS_PER_BATCH
        self._cancellation = Cancellation()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._trouble: str | None = None

    def start(self) -> None:
        """Begin to push."""
        self._thread = threading.Thread(target=self._run, name="push")
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Try once more to send what waits, for at most `timeout_s`, then end the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
            self._cancellation.cancel()
            self._thread.join()
            self._thread = None

    def push_once(self) -> float:
        """Send one batch, if any waits; returns how many seconds to wait before the next."""
        sender = self._sender()
        batch = self._state.batch(self._limit) if sender is not None else Batch(())
        if sender is None or not batch:
            return POLL_SECONDS
        answer = self._send(batch, sender)
        result, wait_s = self._settle(batch, answer)
        self._metrics.pushed(result)
        return wait_s

    def _run(self) -> None:
        while not self._stopping.wait(self._attempt()):
            pass
        while self._state.pending().count and not self._cancellation.is_cancelled:
            # Only success leads on at once; anything else ends the last attempt.
            if self._attempt() > 0:
                break

    def _attempt(self) -> float:
        """One push; a fault of ours must not end the thread and with it all pushing."""
        try:
            return self.push_once()
        except Exception:  # noqa: BLE001 - whatever it was, the next attempt may go well
            _log.exception("the push broke; facts wait in the outbox")
            return self._backoff.next_s()

    def _settle(self, batch: Batch, answer: Answer) -> tuple[Result, float]:
        """What an answer means for the batch, and how long to wait after it."""
        if answer.receipt is not None:
            self._state.acknowledge(batch)
            self._note_rejections(batch, answer.receipt)
            self._note_trouble(None)
            self._backoff.reset()
            self._limit = min(self._limit * 2, MAX_FACTS_PER_BATCH)
            return "ok", 0.0
        if answer.status in _UNREADABLE or (answer.status == _TOO_LARGE and len(batch) == 1):
            _log.error(
                "accounting cannot read %d facts, they are set aside: %s", len(batch), _shown(answer.text)
            )
            self._state.set_aside(batch, answer.text)
            return "set_aside", 0.0
        if answer.status == _TOO_LARGE:
            self._limit = max(1, len(batch) // 2)
            return "refused", 0.0
        self._note_trouble(_shown(answer.text))
        wait_s = self._backoff.next_s(answer.retry_after_s)
        return ("unreachable" if answer.status is None else "refused"), wait_s

    def _note_trouble(self, text: str | None) -> None:
        """Say what changed, not the same thing every minute of an outage."""
        if text == self._trouble:
            return
        self._trouble = text
        if text is None:
            _log.info("accounting takes facts again")
        else:
            _log.warning("facts wait, accounting does not take them: %s", text)

    def _note_rejections(self, batch: Batch, receipt: Receipt) -> None:
        if not receipt.rejected:
            return
        self._metrics.lost("rejected", len(receipt.rejected))
        for rejection in receipt.rejected[:REJECTIONS_SHOWN]:
            position = rejection.line - 1
            key = batch.entries[position].key if 0 <= position < len(batch) else "?"
            _log.warning(
                "accounting rejected fact %s: %s %s", key, _shown(rejection.reason), _shown(rejection.detail)
            )

    def _send(self, batch: Batch, sender: Sender) -> Answer:
        try:
            headers = self._headers(sender)
            body = gzip.compress(batch.body(), 6)
            with closing(self._connect()) as connection:
                connection.connect()
                with (
                    self._cancellation.interrupting(connection.sock),
                    _ended_after(self._answer_seconds, connection.sock),
                ):
                    connection.sock.settimeout(self._answer_seconds)
                    path = urlsplit(self._access.url).path.rstrip("/") + FACTS_PATH
                    connection.request("POST", path, body, headers)
                    with closing(connection.getresponse()) as response:
                        return _read(response)
        except (OSError, ValueError, http.client.HTTPException) as error:
            return Answer(None, f"POST {self._access.url}{FACTS_PATH}: {error or type(error).__name__}")

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._access.url)
        host = parts.hostname or ""
        if parts.scheme != "https":
            return http.client.HTTPConnection(host, parts.port, timeout=CONNECT_SECONDS)
        cafile = str(self._access.ca_file) if self._access.ca_file else None
        context = ssl.create_default_context(cafile=cafile)
        return http.client.HTTPSConnection(host, parts.port, timeout=CONNECT_SECONDS, context=context)

    def _headers(self, sender: Sender) -> dict[str, str]:
        headers = {
            "Content-Type": CONTENT_TYPE,
            "Content-Encoding": "gzip",
            "User-Agent": f"slicemeter-exporter/{VERSION}",
            HEADER_SENT_AT: str(self._wall_ms()),
            HEADER_KUBE_SYSTEM_UID: sender.kube_system_uid,
            HEADER_SOURCE: sender.header(),
        }
        if self._access.token_file is not None:
            token = self._access.token_file.read_text("ascii").strip()
            if not token or not token.isprintable() or " " in token:
                # http.client would quote the header, and with it the secret, in what it raises.
                raise ValueError(f"token file {self._access.token_file} holds no single token")
            headers["Authorization"] = f"Bearer {token}"
        return headers


@contextmanager
def _ended_after(seconds: float, open_socket: socket.socket) -> Iterator[None]:
    """Shut a socket down whose peer sends a byte now and then: it is never silent and never done."""
    limit = threading.Timer(seconds, shut_down, (open_socket,))
    limit.start()
    try:
        yield
    finally:
        limit.cancel()
        limit.join()


def _shown(text: str) -> str:
    """What accounting, or whoever answers in its place, said: on one line of a log."""
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}…"


def _read(response: http.client.HTTPResponse) -> Answer:
    retry_after_s = _seconds(response.getheader("Retry-After"))
    if response.status != HTTPStatus.OK:
        problem = _problem(response.read(ERROR_BODY_BYTES))
        return Answer(response.status, f"{response.status} {problem or response.reason}", None, retry_after_s)
    body = response.read(RECEIPT_BYTES)
    try:
        return Answer(response.status, "", msgspec.json.decode(body, type=Receipt))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return Answer(response.status, f"200, but no receipt: {error}; is this accounting?", None)


def _problem(body: bytes) -> str:
    try:
        problem = msgspec.json.decode(body, type=_Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return ": ".join(part for part in (problem.title, problem.detail) if part)


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None
