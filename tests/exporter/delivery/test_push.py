"""The pusher against a real server on loopback that gives each answer of the protocol."""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trustme

from contract.facts import NodeStateFact, decode_fact
from contract.ids import EpochId
from contract.version import VERSION
from exporter.delivery.metrics import DeliveryMetrics
from exporter.delivery.push import POLL_SECONDS, Pusher, Sender
from exporter.delivery.state import StateFile
from exporter.settings import AccountingAccess

NodeState = Callable[..., NodeStateFact]
Count = Callable[..., float]
SENT_AT_MS = 1_790_000_000_000


@dataclass(frozen=True)
class Reply:
    """One scripted answer; `body` None = a receipt that stores everything."""

    status: int = 200
    body: object = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Received:
    """One request as it came in."""

    path: str
    headers: dict[str, str]
    facts: list[Any]


class Receiver:
    """A server that answers by script, and stores everything once the script is at its end."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.script: list[Reply] = []
        self.requests: list[Received] = []
        self.arrived = threading.Semaphore(0)
        self.hold: threading.Event | None = None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        packed = handler.rfile.read(int(handler.headers["Content-Length"]))
        lines = gzip.decompress(packed).splitlines()
        headers = {name.lower(): value for name, value in handler.headers.items()}
        self.requests.append(Received(handler.path, headers, [decode_fact(line) for line in lines]))
        self.arrived.release()
        if self.hold is not None:
            self.hold.wait(30)
        reply = self.script.pop(0) if self.script else Reply()
        body = reply.body
        if body is None and reply.status == 200:
            body = {"stored": len(lines), "duplicate": 0, "rejected": []}
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(reply.status)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(payload)))
        handler.end_headers()
        handler.wfile.write(payload)

    def nodes(self) -> list[list[str]]:
        """Names of the nodes in each batch that came in."""
        return [[fact.node for fact in request.facts] for request in self.requests]

    def close(self) -> None:
        if self.hold is not None:
            self.hold.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    yield server
    server.close()


@pytest.fixture
def state(tmp_path: Path, metrics: DeliveryMetrics) -> Iterator[StateFile]:
    opened = StateFile.open(tmp_path / "state.db", "boot", metrics)
    yield opened
    opened.close()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first-token\n")
    return path


def sender() -> Sender:
    return Sender("node", EpochId("e1"), "kube-uid", "gpu-7", "node-uid")


@pytest.fixture
def pusher(state: StateFile, receiver: Receiver, metrics: DeliveryMetrics, token_file: Path) -> Pusher:
    access = AccountingAccess(f"http://127.0.0.1:{receiver.port}", token_file)
    return Pusher(state, access, metrics, sender=sender, wall_ms=lambda: SENT_AT_MS, random=Random(1))


def test_a_batch_goes_out_as_the_protocol_wants_it(
    pusher: Pusher, state: StateFile, receiver: Receiver, node_state: NodeState, count: Count
) -> None:
    state.commit(b"", [node_state("n1"), node_state("n2")])
    assert pusher.push_once() == 0
    (request,) = receiver.requests
    assert request.path == "/api/v1/facts"
    assert request.facts == [node_state("n1"), node_state("n2")]
    wanted = {
        "authorization": "Bearer first-token",
        "content-type": "application/x-ndjson",
        "content-encoding": "gzip",
        "slicemeter-sent-at": str(SENT_AT_MS),
        "slicemeter-kube-system-uid": "kube-uid",
        "slicemeter-source": f"role=node;node_uid=node-uid;node=gpu-7;epoch=e1;version={VERSION};schema=1",
    }
    assert {name: request.headers.get(name) for name in wanted} == wanted
    assert state.pending().count == 0
    assert count("push_total", result="ok") == 1


def test_the_cluster_role_names_no_node() -> None:
    header = Sender("cluster", EpochId("e1"), "kube-uid").header()
    assert header == f"role=cluster;epoch=e1;version={VERSION};schema=1"


def test_nothing_waiting_sends_nothing(pusher: Pusher, receiver: Receiver) -> None:
    assert pusher.push_once() == POLL_SECONDS
    assert receiver.requests == []


def test_nothing_is_sent_before_we_know_who_we_are(
    state: StateFile, receiver: Receiver, metrics: DeliveryMetrics, node_state: NodeState
) -> None:
    access = AccountingAccess(f"http://127.0.0.1:{receiver.port}")
    pusher = Pusher(state, access, metrics, sender=lambda: None, wall_ms=lambda: SENT_AT_MS)
    state.commit(b"", [node_state("n1")])
    assert pusher.push_once() == POLL_SECONDS
    assert receiver.requests == []


def test_the_token_is_read_again_for_each_request(
    pusher: Pusher, state: StateFile, receiver: Receiver, node_state: NodeState, token_file: Path
) -> None:
    state.commit(b"", [node_state("n1")])
    pusher.push_once()
    token_file.write_text("second-token")
    state.commit(b"", [node_state("n2")])
    pusher.push_once()
    tokens = [request.headers["authorization"] for request in receiver.requests]
    assert tokens == ["Bearer first-token", "Bearer second-token"]


def test_a_path_before_ours_is_kept(
    state: StateFile, receiver: Receiver, metrics: DeliveryMetrics, node_state: NodeState
) -> None:
    access = AccountingAccess(f"http://127.0.0.1:{receiver.port}/books")
    pusher = Pusher(state, access, metrics, sender=sender, wall_ms=lambda: SENT_AT_MS)
    state.commit(b"", [node_state("n1")])
    pusher.push_once()
    assert receiver.requests[0].path == "/books/api/v1/facts"
    assert "authorization" not in receiver.requests[0].headers


@pytest.mark.parametrize("status", [401, 403, 409, 412, 429, 500, 502, 503, 404, 302])
def test_a_refusal_keeps_the_batch_and_tries_again_later(
    *, pusher: Pusher, state: StateFile, receiver: Receiver, node_state: NodeState, count: Count, status: int
) -> None:
    state.commit(b"", [node_state("n1")])
    receiver.script = [Reply(status, {"title": "no", "detail": "for a reason"})]
    assert 0.5 <= pusher.push_once() <= 1.0  # half to whole of the first wait
    assert state.pending().count == 1
    assert count("push_total", result="refused") == 1
    assert pusher.push_once() == 0
    assert receiver.nodes() == [["n1"], ["n1"]]
    assert state.pending().count == 0


def test_refusals_wait_longer_and_longer_up_to_the_ceiling_and_success_resets(
    pusher: Pusher, state: StateFile, receiver: Receiver, node_state: NodeState
) -> None:
    state.commit(b"", [node_state("n1")])
    receiver.script = [Reply(503, {})] * 9
    waits = [pusher.push_once() for _ in range(9)]
    for wait, whole in zip(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60], strict=True):
        assert whole / 2 <= wait <= whole
    assert pusher.push_once() == 0
    state.commit(b"", [node_state("n2")])
    receiver.script = [Reply(503, {})]
    assert 0.5 <= pusher.push_once() <= 1.0


def test_with_a_short_push_interval_an_outage_is_noticed_to_be_over_soon(
    state: StateFile, metrics: DeliveryMetrics, receiver: Receiver, node_state: NodeState
) -> None:
    access = AccountingAccess(f"http://127.0.0.1:{receiver.port}", push_interval_seconds=2)
    pusher = Pusher(state, access, metrics, sender=sender, wall_ms=lambda: SENT_AT_MS)
    state.commit(b"", [node_state("n1")])
    receiver.script = [Reply(503, {})] * 6
    assert max(pusher.push_once() for _ in range(6)) <= 2


def test_retry_after_is_obeyed(
    pusher: Pusher, state: StateFile, receiver: Receiver, node_state: NodeState
) -> None:
    state.commit(b"", [node_state("n1")])
    receiver.script = [Reply(429, {}, {"Retry-After": "17"}), Reply(429, {}, {"Retry-After": "Mon, 1 Jan"})]
    assert 17 <= pusher.push_once() <= 18
    assert pusher.push_once() <= 2


def test_a_batch_too_large_is_halved_until_it_fits(
    pusher: Pusher, state: StateFile, receiver: Receiver, node_state: NodeState, count: Count
) -> None:
    names = [f"n{number}" for number in range(8)]
    state.commit(b"", [node_state(name) for name in names])
    receiver.script = [Reply(413, {}), Reply(413, {})]
    waits = [pusher.push_once() for _ in range(5)]
    # 8 and 4 are too large; 2 pass, then the limit doubles: 4 pass, then what is left.
    assert [len(batch) for batch in receiver.nodes()] == [8, 4, 2, 4, 2]
    assert [name for batch in receiver.nodes()[2:] for name in batch] == names
    assert waits == [0, 0, 0, 0, 0]
    assert state.pending().count == 0
    assert count("push_total", result="refused") == 2
    assert count("push_total", result="ok") == 3


def test_a_single_fact_too_large_is_set_aside_and_blocks_nothing(
    pusher: Pusher, state: StateFile, receiver: Receiver, node_state: NodeState, count: Count
) -> None:
    state.commit(b"", [node_state("n1"), node_state("n2")])
    receiver.script = [Reply(413, {}), Reply(413, {})]
    assert [pusher.push_once() for _ in range(3)] == [0, 0, 0]
    assert receiver.nodes() == [["n1", "n2"], ["n1"], ["n2"]]
    assert state.pending().count == 0
    assert count("push_total", result="set_aside") == 1


@pytest.mark.parametrize("status", [415, 422])
def test_a_batch_that_cannot_be_read_is_set_aside_counted_and_blocks_nothing(
    *, pusher: Pusher, state: StateFile, receiver: Receiver, node_state: NodeState, count: Count, status: int
) -> None:
    state.commit(b"", [node_state("n1")])
    receiver.script = [Reply(status, {"title": "not NDJSON"})]
    assert pusher.push_once() == 0
    assert count("push_total", result="set_aside") == 1
    state.commit(b"", [node_state("n2")])
    pusher.push_once()
    assert receiver.nodes() == [["n1"], ["n2"]]
    rows = state._connection.execute("SELECT reason FROM set_aside").fetchall()
    assert rows == [(f"{status} not NDJSON",)]


def test_rejected_facts_are_dropped_counted_and_named(
    *,
    pusher: Pusher,
    state: StateFile,
    receiver: Receiver,
    node_state: NodeState,
    count: Count,
    caplog: pytest.LogCaptureFixture,
) -> None:
    state.commit(b"", [node_state("n1"), node_state("n2")])
    rejected = [{"line": 2, "reason": "too_old", "detail": "it ends more than 400 days ago"}]
    receiver.script = [Reply(200, {"stored": 1, "duplicate": 0, "rejected": rejected})]
    assert pusher.push_once() == 0
    assert state.pending().count == 0
    assert count("push_total", result="ok") == 1
    assert count("facts_lost_total", reason="rejected") == 1
    assert '["node_state","a","n2",1]: too_old it ends more than 400 days ago' in caplog.text


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"{}", b""])
def test_a_200_that_is_no_receipt_keeps_the_batch(
    *, pusher: Pusher, state: StateFile, receiver: Receiver, node_state: NodeState, count: Count, body: bytes
) -> None:
    state.commit(b"", [node_state("n1")])
    receiver.script = [Reply(200, body)]
    assert pusher.push_once() > 0
    assert state.pending().count == 1
    assert count("push_total", result="refused") == 1


def test_a_server_that_is_not_there_keeps_the_batch(
    state: StateFile, metrics: DeliveryMetrics, node_state: NodeState, count: Count
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        access = AccountingAccess(f"http://127.0.0.1:{unused.getsockname()[1]}")
        pusher = Pusher(state, access, metrics, sender=sender, wall_ms=lambda: SENT_AT_MS)
        state.commit(b"", [node_state("n1")])
        assert pusher.push_once() > 0
    assert state.pending().count == 1
    assert count("push_total", result="unreachable") == 1


def test_a_missing_token_is_an_outage_that_names_the_file(
    *,
    pusher: Pusher,
    state: StateFile,
    receiver: Receiver,
    node_state: NodeState,
    token_file: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    token_file.unlink()
    state.commit(b"", [node_state("n1")])
    assert pusher.push_once() > 0
    assert receiver.requests == []
    assert str(token_file) in caplog.text


def test_an_outage_is_logged_once_and_so_is_its_end(
    *,
    pusher: Pusher,
    state: StateFile,
    receiver: Receiver,
    node_state: NodeState,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="exporter.delivery.push")
    state.commit(b"", [node_state("n1")])
    receiver.script = [Reply(409, {"title": "another cluster", "detail": "uid x is bound"})] * 3
    for _ in range(4):
        pusher.push_once()
    assert [record.getMessage() for record in caplog.records] == [
        "facts wait, accounting does not take them: 409 another cluster: uid x is bound",
        "accounting takes facts again",
    ]


def test_a_server_under_a_private_authority_is_trusted_by_its_file_only(
    tmp_path: Path, state: StateFile, metrics: DeliveryMetrics, node_state: NodeState, count: Count
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ca_file = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(ca_file)
    server = Receiver(context)
    try:
        state.commit(b"", [node_state("n1")])
        url = f"https://127.0.0.1:{server.port}"
        for access in (AccountingAccess(url), AccountingAccess(url, ca_file=ca_file)):
            Pusher(state, access, metrics, sender=sender, wall_ms=lambda: SENT_AT_MS).push_once()
    finally:
        server.close()
    assert count("push_total", result="unreachable") == 1
    assert count("push_total", result="ok") == 1
    assert server.nodes() == [["n1"]]


def test_the_thread_sends_what_is_committed_while_it_runs(
    pusher: Pusher, state: StateFile, receiver: Receiver, node_state: NodeState
) -> None:
    state.commit(b"", [node_state("n1")])
    pusher.start()
    assert receiver.arrived.acquire(timeout=10)
    state.commit(b"", [node_state("n2")])
    assert receiver.arrived.acquire(timeout=10)
    pusher.stop()
    assert receiver.nodes() == [["n1"], ["n2"]]


def test_a_fault_of_ours_does_not_end_the_pushing(
    state: StateFile, receiver: Receiver, metrics: DeliveryMetrics, node_state: NodeState
) -> None:
    calls = iter([ZeroDivisionError(), *[None] * 5])

    def broken_once() -> Sender:
        if (error := next(calls)) is not None:
            raise error
        return sender()

    access = AccountingAccess(f"http://127.0.0.1:{receiver.port}", push_interval_seconds=1)
    pusher = Pusher(state, access, metrics, sender=broken_once, wall_ms=lambda: SENT_AT_MS)
    state.commit(b"", [node_state("n1")])
    pusher.start()
    assert receiver.arrived.acquire(timeout=10)
    pusher.stop()
    assert receiver.nodes() == [["n1"]]


def test_stopping_sends_what_waits(
    pusher: Pusher, state: StateFile, receiver: Receiver, node_state: NodeState
) -> None:
    receiver.script = [Reply(503, {})]
    state.commit(b"", [node_state("n1")])
    pusher.start()
    assert receiver.arrived.acquire(timeout=10)
    pusher.stop()
    assert receiver.nodes() == [["n1"], ["n1"]]
    assert state.pending().count == 0


def test_stopping_does_not_wait_for_a_server_that_hangs(
    pusher: Pusher, state: StateFile, receiver: Receiver, node_state: NodeState
) -> None:
    receiver.hold = threading.Event()
    state.commit(b"", [node_state("n1")])
    pusher.start()
    assert receiver.arrived.acquire(timeout=10)
    pusher.stop(timeout_s=0.05)
    assert state.pending().count == 1


@pytest.mark.parametrize(
    "text", ["", " ", "secret-1\nsecret-2\n", "secret-1 secret-2", "secret-é", "secret-\x00"]
)
def test_a_token_file_that_holds_no_single_token_is_named_and_not_quoted(  # noqa: PLR0917 - fixtures
    pusher: Pusher,
    state: StateFile,
    node_state: NodeState,
    token_file: Path,
    caplog: pytest.LogCaptureFixture,
    text: str,
) -> None:
    state.commit(b"", [node_state("n1")])
    token_file.write_text(text)
    pusher.push_once()
    assert "facts wait" in caplog.text
    assert "secret" not in caplog.text
    assert state.pending().count == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"\xff\xfe{}"),
        Reply(200, b"["),
        Reply(200, b"{}"),
        Reply(200, b'{"stored":1,"duplicate":0,"rejected":[{"line":1}]}'),
        Reply(200, b"[" * 100_000),
        Reply(200, b'{"stored":1e400,"duplicate":0}'),
        Reply(503, b'{"title":"\xff"}'),
        Reply(503, b"[" * 100_000),
        Reply(503, {"title": "\x1b[31mred\nforged line"}),
        Reply(500, {"title": "x" * 60_000}),
        Reply(301, b"", {"Location": "http://127.0.0.1:1/"}),
        Reply(429, b"", {"Retry-After": "9" * 400}),
        Reply(429, b"", {"Retry-After": "\xb2"}),
    ],
)
def test_whatever_is_no_receipt_keeps_the_facts_and_is_one_short_line_of_the_log(  # noqa: PLR0917 - fixtures
    pusher: Pusher,
    state: StateFile,
    receiver: Receiver,
    node_state: NodeState,
    caplog: pytest.LogCaptureFixture,
    reply: Reply,
) -> None:
    state.commit(b"", [node_state("n1")])
    receiver.script.append(reply)
    assert 0 < pusher.push_once() <= 301
    assert state.pending().count == 1
    (message,) = (record.getMessage() for record in caplog.records if record.name == "exporter.delivery.push")
    assert message.isprintable()
    assert len(message) < 500
    assert pusher.push_once() == 0
    assert state.pending().count == 0


def test_why_a_fact_was_rejected_is_one_short_line_of_the_log(
    pusher: Pusher,
    state: StateFile,
    receiver: Receiver,
    node_state: NodeState,
    caplog: pytest.LogCaptureFixture,
) -> None:
    state.commit(b"", [node_state("n1")])
    rejected = {"line": 1, "reason": "bad\x1b[2J", "detail": "a\nforged line" + "x" * 10_000}
    receiver.script.append(Reply(200, {"stored": 0, "duplicate": 0, "rejected": [rejected]}))
    pusher.push_once()
    (message,) = (record.getMessage() for record in caplog.records if "rejected fact" in record.getMessage())
    assert message.isprintable()
    assert len(message) < 1_000


@pytest.mark.parametrize("begins", [b"H", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_that_trickles_in_for_ever_is_given_up(
    state: StateFile, metrics: DeliveryMetrics, node_state: NodeState, token_file: Path, begins: bytes
) -> None:
    state.commit(b"", [node_state("n1")])
    done = threading.Event()

    def trickle(listening: socket.socket) -> None:
        with listening.accept()[0] as peer:
            peer.sendall(begins)
            with suppress(OSError):
                while not done.wait(0.02):
                    peer.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=trickle, args=(listening,))
        server.start()
        access = AccountingAccess(f"http://127.0.0.1:{listening.getsockname()[1]}", token_file)
        pusher = Pusher(state, access, metrics, sender=sender, wall_ms=lambda: SENT_AT_MS, answer_seconds=0.3)
        assert pusher.push_once() > 0
        done.set()
        server.join()
    assert state.pending().count == 1
