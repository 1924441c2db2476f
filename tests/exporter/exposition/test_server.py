"""The server over real sockets: pages, probes, refusals, and clients that do not behave."""

from __future__ import annotations

import gzip
import http.client
import json
import math
import re
import subprocess
import threading
import time
from collections.abc import Callable

import pytest
from prometheus_client import generate_latest
from prometheus_client.exposition import choose_encoder

from contract.catalogue import Emitter, families_of
from exporter.exposition.board import Draft
from exporter.exposition.listener import MAX_CONNECTIONS
from exporter.exposition.page import NATIVE_FAMILIES, Page, PageBuilder
from exporter.exposition.pages import accepts_gzip
from exporter.exposition.server import MetricsServer
from tests.exporter.exposition.conftest import START, Client


def full_page(role: Emitter = "node") -> Page:
    """Every family of a role, two series each, with values and labels that need escaping."""
    builder = PageBuilder()
    for family in families_of(role):
        if family.name in NATIVE_FAMILIES:
            continue
        words = ["n1", *(f'{label} \\ "x"' for label in family.labels[1:])]
        builder.add(family.name, words[: len(family.labels)], 1.0 if family.type == "info" else 12_345_678.5)
        if family.labels:
            builder.add(family.name, ["n2", *words[1:]], 1)
    return builder.build(1_790_000_000.0)


def stable(text: bytes) -> bytes:
    """Without the process's own figures, which move between two scrapes."""
    return re.sub(rb"(?m)^((?:U__)?process_[a-z_]+) .*$", rb"\1", text)


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "text/plain;version=0.0.4",
        "text/plain;version=1.0.0;escaping=allow-utf-8",
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.5",
        "application/openmetrics-text;version=1.0.0",
        "application/openmetrics-text;version=1.0.0;escaping=values",
        "text/plain;version=1.0.0;escaping=dots",
    ],
)
def test_a_scrape_is_what_the_stock_encoder_makes_of_everything(start: START, accept: str) -> None:
    client = start(full_page())
    response, body = client.ask("/metrics", Accept=accept)
    encode, content_type = choose_encoder(accept)
    assert response.status == 200
    assert response.headers["Content-Type"] == content_type
    everything = client.exposition.everything
    if "openmetrics" in content_type:
        everything = client.exposition.everything_openmetrics
    assert stable(body) == stable(encode(everything))
    assert body.endswith(b"# EOF\n") == ("openmetrics" in content_type)


def test_a_scrape_before_the_first_tick_is_200_without_our_figures(start: START) -> None:
    response, body = start().ask("/metrics")
    assert response.status == 200
    assert b"process_resident_memory_bytes" in body
    assert b"slicemeter_device" not in body


@pytest.mark.parametrize("page", [None, full_page()], ids=["no page", "page"])
def test_gzip_is_used_when_it_is_accepted(start: START, page: Page | None) -> None:
    client = start(page)
    response, body = client.ask("/metrics", Accept_Encoding="deflate, gzip;q=0.5")
    assert response.headers["Content-Encoding"] == "gzip"
    assert stable(gzip.decompress(body)) == stable(client.ask("/metrics")[1])


@pytest.mark.parametrize(
    ("header", "verdict"),
    [
        ("gzip", True),
        ("GZIP ; q=1", True),
        ("*", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip; q = 0.0", False),
        ("x-gzip", False),
    ],
)
def test_what_counts_as_accepting_gzip(header: str, verdict: bool) -> None:
    assert accepts_gzip(header) is verdict


def test_a_scrape_shows_the_newest_page(start: START) -> None:
    client = start(full_page())
    builder = PageBuilder()
    builder.add("snapshot_timestamp_seconds", [], 5)
    client.exposition.board.publish(builder.build(5.0))
    body = client.ask("/metrics")[1]
    assert b"slicemeter_snapshot_timestamp_seconds 5.0\n" in body
    assert b"slicemeter_device" not in body


def test_healthz_answers_as_long_as_the_process_does(start: START) -> None:
    response, body = start(ready=lambda: (False, ["no pods"])).ask("/healthz")
    assert (response.status, body) == (200, b"ok\n")


def test_readyz_says_no_with_reasons_and_yes_without(start: START) -> None:
    response, body = start(ready=lambda: (False, ["pods were not listed yet"])).ask("/readyz")
    assert response.status == 503
    assert json.loads(body) == {"ready": False, "reasons": ["pods were not listed yet"]}
    response, body = start().ask("/readyz")
    assert response.status == 200
    assert json.loads(body) == {"ready": True, "reasons": []}


def test_the_index_names_the_pages(start: START) -> None:
    response, body = start().ask("/")
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    for path in (b"/metrics", b"/healthz", b"/readyz"):
        assert path in body


def test_head_is_get_without_a_body(start: START) -> None:
    client = start(full_page())
    response, body = client.ask("/metrics", "HEAD")
    assert (response.status, body) == (200, b"")
    assert int(response.headers["Content-Length"]) > 10_000


def test_other_methods_are_405(start: START) -> None:
    client = start()
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        response, _ = client.ask("/metrics", method)
        assert response.status == 405
        assert response.headers["Allow"] == "GET, HEAD"


def test_other_paths_are_404(start: START) -> None:
    client = start()
    for path in ("/metrics/", "/metrics/hami", "/../etc/passwd", "/debug/snapshot"):
        assert client.ask(path)[0].status == 404


def test_a_query_changes_nothing(start: START) -> None:
    assert start(full_page()).ask("/metrics?collect[]=x")[0].status == 200


def test_scrapes_beyond_the_cap_get_503_and_the_others_their_page(start: START) -> None:
    entered, leave = threading.Semaphore(0), threading.Event()

    class Slow:
        def collect(self) -> list[object]:
            entered.release()
            leave.wait(10)
            return []

    client = start(full_page(), max_parallel_scrapes=2)
    client.exposition.registry.register(Slow())  # type: ignore[arg-type]
    statuses: list[int] = []
    threads = [
        threading.Thread(target=lambda: statuses.append(client.ask("/metrics")[0].status)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert entered.acquire(timeout=10)
    response, _ = client.ask("/metrics")
    assert response.status == 503
    assert response.headers["Retry-After"] == "1"
    assert client.ask("/healthz")[0].status == 200
    leave.set()
    for thread in threads:
        thread.join(10)
    assert statuses == [200, 200]
    assert client.ask("/metrics")[0].status == 200


def test_stuck_clients_block_nobody_and_are_cut_at_the_deadline(start: START) -> None:
    client = start(full_page(), connection_deadline_seconds=1.0)
    silent = client.connect()
    trickling = client.connect()
    trickling.sendall(b"GET /metr")
    assert client.ask("/metrics")[0].status == 200
    assert silent.recv(1) == b""
    assert trickling.recv(1) == b""
    silent.close()
    trickling.close()


def test_a_client_that_reads_nothing_does_not_hold_the_page(start: START) -> None:
    builder = PageBuilder()
    for pod in range(40_000):  # more than any socket buffer takes
        builder.add("slice_processes", ["n", "namespace", f"pod-{pod}", "c", "GPU-1", "t"], 1)
    client = start(builder.build(1.0), connection_deadline_seconds=1.0, max_parallel_scrapes=1)
    deaf = client.connect()
    deaf.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    deadline = time.monotonic() + 20
    while not _is_answered(client):
        assert time.monotonic() < deadline, "the one slot was never given back"
    deaf.close()


def _is_answered(client: Client) -> bool:
    """Whether a whole page came; on a busy machine our own connection can be over its second too."""
    try:
        return client.ask("/metrics")[0].status == 200
    except (http.client.HTTPException, ConnectionError):
        return False


def test_connections_beyond_the_cap_are_closed_at_once(start: START) -> None:
    client = start()
    held = [client.connect() for _ in range(MAX_CONNECTIONS)]
    extra = client.connect()
    assert extra.recv(1) == b""
    for connection in (*held, extra):
        connection.close()


def test_a_stopped_server_frees_its_port_and_its_clients(start: START) -> None:
    client = start()
    hanging = client.connect()
    client.ask("/healthz")
    client.server.stop()
    assert hanging.recv(1) == b""
    hanging.close()
    with pytest.raises(ConnectionRefusedError):
        client.connect()
    again = MetricsServer(client.exposition, lambda: (True, []), host="127.0.0.1", port=client.server.port)
    again.stop()


def test_parallel_scrapers_of_one_page_get_equal_bytes(start: START) -> None:
    client = start(full_page())
    bodies: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: bodies.append(stable(client.ask("/metrics")[1]))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert bodies == [stable(generate_latest(client.exposition.everything))] * 4


@pytest.mark.promtool
@pytest.mark.parametrize("role", ["node", "cluster"])
def test_promtool_finds_nothing_on_a_page_with_every_family(
    start: START, role: Emitter, need_tool: Callable[[str, str], str]
) -> None:
    promtool = need_tool("promtool", "prometheus")
    body = start(full_page(role), role=role).ask("/metrics")[1]
    run = subprocess.run(
        [promtool, "check", "metrics"], input=body, capture_output=True, timeout=60, check=False
    )
    assert (run.returncode, run.stdout + run.stderr) == (0, b"")


def test_a_page_is_made_ahead_for_a_scraper_that_comes_regularly(start: START) -> None:
    client = start(full_page())
    made: list[int] = []

    def page() -> Page:
        made.append(1)
        return full_page()

    pages = client.server.pages
    client.exposition.board.publish(Draft(page))
    pages.make_ahead(0, math.inf)
    assert made == []
    for _ in range(2):
        client.ask("/metrics")
    client.exposition.board.publish(Draft(page))
    pages.make_ahead(0, math.inf)
    assert made == [1, 1]
    client.ask("/metrics")
    assert made == [1, 1]


def test_a_page_that_cannot_be_made_ahead_harms_nobody_but_its_scraper(start: START) -> None:
    client = start(full_page())
    for _ in range(2):
        client.ask("/metrics")

    def broken() -> Page:
        raise KeyError("no_such_family")

    client.exposition.board.publish(Draft(broken))
    client.server.pages.make_ahead(0, math.inf)
    assert client.ask("/metrics")[0].status == 500
    assert client.ask("/healthz")[0].status == 200
