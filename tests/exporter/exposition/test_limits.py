"""Clients that ask too much: large heads, impatience, slow reading; and pages only this computer may see."""

from __future__ import annotations

import queue
import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.exposition import handler as handler_module
from exporter.exposition import listener as listener_module
from exporter.exposition.board import Board, Draft
from exporter.exposition.handler import MAX_HEAD_BYTES, Handler
from exporter.exposition.page import Page, PageBuilder
from exporter.exposition.pages import Extras
from tests.exporter.exposition.conftest import START, Client

JOIN_S = 20.0


def page_at(at_seconds: float) -> Page:
    builder = PageBuilder()
    builder.add("snapshot_timestamp_seconds", (), at_seconds)
    return builder.build(at_seconds)


def big_page() -> Page:
    """More than any socket buffer takes."""
    builder = PageBuilder()
    for pod in range(40_000):
        builder.add("slice_processes", ("n", "namespace", f"pod-{pod}", "c", "GPU-1", "t"), 1)
    return builder.build(1.0)


def send(client: Client, request: bytes) -> bytes:
    """The answer's first bytes; nothing when the server cut the connection under unread bytes."""
    with client.connect() as connection:
        try:
            connection.sendall(request)
            return connection.recv(1_000)
        except ConnectionError:
            return b""


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /metrics HTTP/1.0\r\nX: " + b"x" * (MAX_HEAD_BYTES + 1),
        b"GET /metrics HTTP/1.0\r\n" + b"X: y\r\n" * (MAX_HEAD_BYTES // 6 + 1),
        b"GET /" + b"x" * (MAX_HEAD_BYTES + 1),
        b"GET /metrics HTTP/1.0\r\n" + b"".join(b"X%d: y\r\n" % number for number in range(200)) + b"\r\n",
    ],
    ids=["one long header", "header flood", "long path", "many headers"],
)
def test_a_head_beyond_its_bounds_is_refused_and_costs_nobody_else(start: START, request_head: bytes) -> None:
    client = start(page_at(1.0))
    answer = send(client, request_head)
    assert b" 431 " in answer or answer == b""
    assert client.ask("/metrics")[0].status == 200


def test_a_head_within_its_bounds_is_answered(start: START) -> None:
    client = start(page_at(1.0))
    assert client.ask("/metrics", X_Long="x" * (MAX_HEAD_BYTES - 500))[0].status == 200


def test_a_head_is_never_read_beyond_its_bound(start: START, monkeypatch: pytest.MonkeyPatch) -> None:
    client = start(page_at(1.0))
    read: queue.Queue[int] = queue.Queue()
    real: Callable[[Handler], None] = Handler.finish

    def finish(handler: Handler) -> None:
        read.put(MAX_HEAD_BYTES - handler.rfile._left)  # type: ignore[attr-defined]
        real(handler)

    monkeypatch.setattr(Handler, "finish", finish)
    send(client, b"GET /metrics HTTP/1.0\r\n" + b"X: " + b"y" * 1_000_000)
    assert read.get(timeout=JOIN_S) == MAX_HEAD_BYTES + 1


def test_a_flood_of_nonsense_leaves_the_server_answering(start: START) -> None:
    client = start(page_at(1.0))
    for nonsense in (
        b"\r\n",
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x00" * 64,
    ):
        with client.connect() as connection:
            connection.sendall(nonsense)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1_000):
                pass
    assert client.ask("/metrics")[0].status == 200


def test_a_head_has_less_time_than_an_answer(start: START, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "HEAD_DEADLINE_SECONDS", 0.5)
    client = start(page_at(1.0), connection_deadline_seconds=600.0)
    with client.connect() as trickling:
        trickling.sendall(b"GET /metr")
        assert trickling.recv(1) == b""


def test_a_slow_reader_is_cut_at_the_time_that_it_would_wait_itself(start: START) -> None:
    client = start(big_page(), connection_deadline_seconds=600.0, max_parallel_scrapes=1)
    deaf = client.connect()
    deaf.sendall(b"GET /metrics HTTP/1.0\r\nX-Prometheus-Scrape-Timeout-Seconds: 1\r\n\r\n")
    deadline = time.monotonic() + JOIN_S
    # Its one slot comes back although nobody read a byte.
    while client.ask("/metrics")[0].status != 200:
        assert time.monotonic() < deadline, "the slot was never given back"
    deaf.close()


def test_a_scraper_in_a_hurry_gets_the_page_before_while_the_next_is_being_made(
    start: START, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler_module, "PATIENCE_SHARE", 0.0)
    entered, leave = threading.Event(), threading.Event()

    def make() -> Page:
        entered.set()
        assert leave.wait(JOIN_S)
        return page_at(2.0)

    client = start(page_at(1.0))
    assert b"slicemeter_snapshot_timestamp_seconds 1.0\n" in client.ask("/metrics")[1]
    client.exposition.board.publish(Draft(make))
    bodies: list[bytes] = []
    patient = threading.Thread(target=lambda: bodies.append(client.ask("/metrics")[1]))
    patient.start()
    assert entered.wait(JOIN_S)
    body = client.ask("/metrics", X_Prometheus_Scrape_Timeout_Seconds="20")[1]
    assert b"slicemeter_snapshot_timestamp_seconds 1.0\n" in body
    leave.set()
    patient.join(JOIN_S)
    assert b"slicemeter_snapshot_timestamp_seconds 2.0\n" in bodies[0]


@pytest.mark.parametrize("header", ["", "soon", "-1", "0", "nan", "inf", "1e999", "15.5"])
def test_any_scrape_timeout_is_answered(start: START, header: str) -> None:
    client = start(page_at(1.0))
    assert client.ask("/metrics", X_Prometheus_Scrape_Timeout_Seconds=header)[0].status == 200


def test_a_page_that_cannot_be_made_costs_its_scrape_alone(start: START) -> None:
    def make() -> Page:
        raise ValueError("broken")

    client = start(Draft(make))
    answer = send(client, b"GET /metrics HTTP/1.0\r\n\r\n")
    assert b" 500 " in answer
    assert client.ask("/healthz")[0].status == 200


def test_series_that_the_budget_dropped_are_counted_on_the_page_that_lacks_them(start: START) -> None:
    builder = PageBuilder(series_budget=1)
    for pod in ("a", "b", "c"):
        with builder.group():
            builder.add("slice_processes", ("n", "ns", pod, "c", "GPU-1", "t"), 1)
    client = start(builder.build(1.0))
    for _ in range(2):
        body = client.ask("/metrics")[1]
        assert body.count(b"slicemeter_slice_processes{") == 1
        assert b"\nslicemeter_series_dropped_total 2.0\n" in body


def test_hamis_page_exists_only_with_the_option(start: START) -> None:
    assert start(page_at(1.0)).ask("/metrics/hami")[0].status == 404
    board = Board()
    client = start(page_at(1.0), extras=Extras(hami=board))
    assert client.ask("/metrics/hami")[1] == b""
    board.publish(page_at(7.0))
    for accept, end in (("", b"7.0\n"), ("application/openmetrics-text;version=1.0.0", b"7.0\n# EOF\n")):
        response, body = client.ask("/metrics/hami", Accept=accept)
        assert response.status == 200
        assert body.endswith(end)
        assert b"process_" not in body
    assert b"/metrics/hami" in client.ask("/")[1]


def test_the_snapshot_is_shown_to_this_computer(start: START) -> None:
    found: list[bytes | None] = [None]
    client = start(page_at(1.0), extras=Extras(snapshot=lambda: found[0]))
    assert client.ask("/debug/snapshot")[0].status == 503
    found[0] = b'{"at_ms": 1}\n'
    response, body = client.ask("/debug/snapshot")
    assert (response.status, response.headers["Content-Type"], body) == (
        200,
        "application/json",
        b'{"at_ms": 1}\n',
    )


@pytest.mark.parametrize(
    ("address", "is_ours"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("2001:db8::1", False),
    ],
)
def test_the_snapshot_is_shown_to_no_other_computer(
    start: START, monkeypatch: pytest.MonkeyPatch, address: str, is_ours: bool
) -> None:
    client = start(page_at(1.0), extras=Extras(snapshot=lambda: b"{}"))
    real: Callable[[Handler], None] = Handler.setup

    def setup(handler: Handler) -> None:
        real(handler)
        handler.client_address = (address, 1)

    monkeypatch.setattr(Handler, "setup", setup)
    assert client.ask("/debug/snapshot")[0].status == (200 if is_ours else 403)


def test_every_path_is_in_the_index_and_in_the_documents(start: START) -> None:
    client = start(page_at(1.0), extras=Extras(hami=Board(), snapshot=lambda: b"{}"))
    index = client.ask("/")[1].decode()
    page = (Path(__file__).parents[3] / "docs" / "serving.md").read_text(encoding="utf-8")
    paths = re.findall(r'href="([^"]+)"', index)
    assert paths == ["/metrics", "/metrics/hami", "/healthz", "/readyz", "/debug/snapshot"]
    for path in paths:
        assert client.ask(path)[0].status == 200
        assert f"| `{path}` |" in page
