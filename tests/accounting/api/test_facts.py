from __future__ import annotations

import asyncio
import gzip
import json
import logging
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, func, select

from accounting.api import batches
from accounting.api.batches import MAX_AT_ONCE, MAX_BODY_BYTES, MAX_LINES_BYTES, MAX_OF_ONE_CLUSTER
from accounting.api.problems import Problem
from accounting.store.models import Cluster, ExporterSource, PresenceReport, Quarantine
from contract.facts import (
    CONTENT_TYPE,
    FACTS_PATH,
    HEADER_KUBE_SYSTEM_UID,
    HEADER_SENT_AT,
    HEADER_SOURCE,
    MAX_FACTS_PER_BATCH,
)

if TYPE_CHECKING:
    from tests.accounting.api.conftest import Api

NOW_MS = 1_790_812_800_000


def presence(**changes: Any) -> bytes:
    """A fact as another program would write it: by hand."""
    fact = {
        "type": "presence", "schema": 1, "cluster": "a", "node_uid": "uid-1", "node": "node-1",
        "device_uuid": "GPU-1", "witness": "node", "from_ms": NOW_MS - 60_000, "to_ms": NOW_MS - 1_000,
        "state": "healthy", "model": "NVIDIA L4", "vendor": "NVIDIA", "registered_mib": 24_576, "slots": 10,
    }  # fmt: skip
    return json.dumps(fact | changes).encode()


def problem(response: Any) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert set(body) == {"title", "status", "detail"}
    assert body["status"] == response.status_code
    return body


def test_good_facts_are_stored_and_bad_ones_named_by_line(api: Api) -> None:
    lines = [
        presence(),
        presence(cluster="b"),
        b"nonsense",
        presence(device_uuid="GPU-2", from_ms=NOW_MS),
        presence(),
    ]
    response = api.post_facts(b"\n".join(lines), token=api.token("reporter", cluster="a"))
    assert response.status_code == 200
    body = response.json()
    assert (body["stored"], body["duplicate"]) == (1, 1)
    assert [(one["line"], one["reason"]) for one in body["rejected"]] == [
        (2, "other_cluster"),
        (3, "malformed"),
        (4, "end_before_start"),
    ]
    with api.database.reading() as session:
        assert session.execute(select(PresenceReport.cluster, PresenceReport.device_uuid)).all() == [
            ("a", "GPU-1")
        ]


def test_a_token_of_one_node_takes_no_fact_of_another(api: Api) -> None:
    token = api.token("reporter", cluster="a", node_uid="uid-1")
    lines = [presence(), presence(node_uid="uid-2"), presence(witness="cluster")]
    body = api.post_facts(b"\n".join(lines), token=token).json()
    assert body["stored"] == 1
    assert [(one["line"], one["reason"]) for one in body["rejected"]] == [
        (2, "other_node"),
        (3, "other_witness"),
    ]


@pytest.mark.parametrize("token", [None, "", "smt_0123456789ab_" + "0" * 64, "wrong"])
def test_without_a_good_token_nothing_is_read(api: Api, token: str | None) -> None:
    response = api.post_facts(presence(), token=token)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert problem(response)["detail"] == "the token is missing, unknown, expired or revoked"


@pytest.mark.parametrize(
    ("role", "scope"), [("tenant", {"tenant_path": "acme"}), ("operator", {}), ("admin", {})]
)
def test_only_reporters_may_report(api: Api, role: str, scope: dict[str, str]) -> None:
    response = api.post_facts(presence(), token=api.token(role, **scope))
    assert response.status_code == 403
    assert problem(response)["detail"] == "this needs a token of role reporter"


def test_the_first_request_binds_the_cluster_and_another_kube_system_uid_is_a_conflict(api: Api) -> None:
    token = api.token("reporter", cluster="a")
    assert api.post_facts(presence(), token=token).status_code == 200
    with api.database.reading() as session:
        assert session.get_one(Cluster, "a").kube_system_uid == "kube-system-of-a"
    foreign = {HEADER_KUBE_SYSTEM_UID: "kube-system-of-z"}
    response = api.post_facts(presence(device_uuid="GPU-2"), token=token, headers=foreign)
    assert response.status_code == 409
    assert "kube-system-of-a" not in problem(response)["detail"]
    with api.database.reading() as session:
        assert session.scalars(select(PresenceReport.device_uuid)).all() == ["GPU-1"]


@pytest.mark.parametrize(
    ("offset_ms", "status"), [(300_000, 200), (-300_000, 200), (300_001, 412), (-300_001, 412)]
)
def test_a_clock_more_than_five_minutes_off_is_refused(api: Api, offset_ms: int, status: int) -> None:
    token = api.token("reporter", cluster="a")
    headers = {HEADER_SENT_AT: str(NOW_MS + offset_ms)}
    response = api.post_facts(presence(), token=token, headers=headers)
    assert response.status_code == status
    if status == 412:
        assert f"{offset_ms} ms" in problem(response)["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/json"},
        {"Content-Type": None},
        {"Content-Encoding": None},
        {"Content-Encoding": "zstd"},
    ],
)
def test_what_does_not_say_that_it_is_gzip_ndjson_is_415(api: Api, headers: dict[str, str | None]) -> None:
    response = api.post_facts(presence(), token=api.token("reporter", cluster="a"), headers=headers)
    assert response.status_code == 415
    problem(response)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        zlib.compress(presence()),
        gzip.compress(presence())[:-4],
        gzip.compress(presence())[:-8] + bytes(8),
        gzip.compress(presence()) + b"more",
    ],
    ids=["empty", "no gzip", "zlib", "cut short", "wrong checksum", "something behind"],
)
def test_what_is_no_gzip_stream_is_422(api: Api, body: bytes) -> None:
    token = api.token("reporter", cluster="a")
    response = api.post_facts(b"", token=token, compress=lambda _: body)
    assert response.status_code == 422
    problem(response)


@pytest.mark.parametrize(
    "headers",
    [
        {HEADER_SENT_AT: None},
        {HEADER_SENT_AT: "yesterday"},
        {HEADER_KUBE_SYSTEM_UID: None},
        {HEADER_KUBE_SYSTEM_UID: ""},
        {HEADER_SOURCE: None},
        {HEADER_SOURCE: "role=king;epoch=e1;version=1"},
        {HEADER_SOURCE: "role=node;epoch=e1;version=1"},
        {HEADER_SOURCE: "role=cluster;version=1"},
        {HEADER_SOURCE: "cluster"},
        {HEADER_SOURCE: f"role=cluster;epoch={'x' * 254};version=1"},
        {HEADER_SOURCE: "role=cluster;epoch=e1;version=1;schema=two"},
        {HEADER_SOURCE: "role=cluster;epoch=e1;version=1;schema=-1"},
        {HEADER_SOURCE: "role=cluster;epoch=e1;version=1;schema=1234567"},
    ],
)
def test_a_request_that_does_not_say_who_sends_and_when_is_422(
    api: Api, headers: dict[str, str | None]
) -> None:
    response = api.post_facts(presence(), token=api.token("reporter", cluster="a"), headers=headers)
    assert response.status_code == 422
    problem(response)


def test_a_newer_exporter_is_refused_whole_and_told_that_its_facts_wait(api: Api) -> None:
    """Line by line they would be rejected, and the exporter would forget what only it knew."""
    token = api.token("reporter", cluster="a")
    newer = {HEADER_SOURCE: "role=cluster;epoch=e1;version=0.9.0;schema=2"}
    response = api.post_facts(presence(witness="cluster", schema=2), token=token, headers=newer)
    assert response.status_code == 409
    assert problem(response)["detail"] == (
        "the exporter (0.9.0) writes facts of schema 2, this service reads up to 1; upgrade accounting, the "
        "facts wait in the exporter's outbox until then"
    )
    with api.database.reading() as session:
        assert session.scalar(select(func.count()).select_from(Quarantine)) == 0
        assert session.get_one(Cluster, "a").kube_system_uid is None


@pytest.mark.parametrize("more", ["", ";schema=1", ";schema=1;colour=blue"])
def test_an_older_exporter_and_words_of_a_later_one_are_taken(api: Api, more: str) -> None:
    token = api.token("reporter", cluster="a")
    source = {HEADER_SOURCE: f"role=node;node_uid=uid-1;node=node-1;epoch=e1;version=0.0.9{more}"}
    response = api.post_facts(presence(of_a_later_version={"x": [1]}), token=token, headers=source)
    assert response.json() == {"stored": 1, "duplicate": 0, "rejected": []}


def test_one_fact_more_than_a_batch_may_hold_is_413_and_stores_nothing(api: Api) -> None:
    token = api.token("reporter", cluster="a")
    lines = [presence()] * MAX_FACTS_PER_BATCH
    assert api.post_facts(b"\n".join([*lines, presence()]), token=token).status_code == 413
    response = api.post_facts(b"\n".join(lines), token=token)
    assert response.json() == {"stored": 1, "duplicate": MAX_FACTS_PER_BATCH - 1, "rejected": []}


def test_a_body_that_is_too_large_is_413(api: Api) -> None:
    token = api.token("reporter", cluster="a")
    response = api.post_facts(b"", token=token, compress=lambda _: bytes(MAX_BODY_BYTES + 1))
    assert response.status_code == 413
    problem(response)


def test_a_gzip_bomb_is_413_and_is_not_blown_up(api: Api) -> None:
    token = api.token("reporter", cluster="a")
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1024 * 1024)) for _ in range(1_000)) + packer.flush()
    assert len(bomb) < MAX_BODY_BYTES
    tracemalloc.start()
    response = api.post_facts(b"", token=token, compress=lambda _: bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert response.status_code == 413
    assert peak < 3 * MAX_LINES_BYTES


@pytest.mark.parametrize("line", [b"\n", b" \n", b"\r\n", b"x\n"])
def test_a_body_of_nothing_but_lines_is_413_before_it_is_taken_apart(api: Api, line: bytes) -> None:
    token = api.token("reporter", cluster="a")
    packed = gzip.compress((line * MAX_LINES_BYTES)[: MAX_LINES_BYTES - 1] + b"x", 1)
    tracemalloc.start()
    response = api.post_facts(b"", token=token, compress=lambda _: packed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert response.status_code == 413
    problem(response)
    assert peak < 4 * MAX_LINES_BYTES


def test_blank_lines_behind_the_last_fact_do_not_count(api: Api) -> None:
    lines = b"\n".join([presence()] * MAX_FACTS_PER_BATCH) + b"\r\n\n \n"
    assert api.post_facts(lines, token=api.token("reporter", cluster="a")).status_code == 200


@pytest.mark.parametrize(
    "source",
    [
        "role=node;node_uid=uid-2;node=node-2;epoch=e2;version=0.1.0",
        "role=node;node_uid=UID-1;node=node-1;epoch=e2;version=0.1.0",
        "role=cluster;epoch=e2;version=0.1.0",
    ],
)
def test_a_nodes_token_cannot_make_another_exporter_look_alive(api: Api, source: str) -> None:
    token = api.token("reporter", cluster="a", node_uid="uid-1")
    response = api.post_facts(b"", token=token, headers={HEADER_SOURCE: source})
    assert response.status_code == 403
    problem(response)
    with api.database.reading() as session:
        assert session.scalars(select(ExporterSource.epoch)).all() == []
    assert api.post_facts(b"", token=token).status_code == 200


def test_a_connection_that_breaks_in_the_middle_of_a_body_costs_no_line_of_the_log(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    token = api.token("reporter", cluster="a")
    headers = {
        "authorization": f"Bearer {token}", "content-type": CONTENT_TYPE, "content-encoding": "gzip",
        HEADER_SENT_AT: str(NOW_MS), HEADER_KUBE_SYSTEM_UID: "kube-system-of-a",
        HEADER_SOURCE: "role=cluster;epoch=e1;version=0.1.0",
    }  # fmt: skip
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "path": FACTS_PATH,
        "raw_path": FACTS_PATH.encode(), "query_string": b"", "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    came: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": b"\x1f\x8b", "more_body": True}, {"type": "http.disconnect"}]
    )
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return next(came)

    async def send(message: MutableMapping[str, Any]) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    asyncio.run(api.app(scope, receive, send))
    assert statuses == [400]
    assert [record for record in caplog.records if record.levelno > logging.INFO] == []
    with api.database.reading() as session:
        assert session.scalars(select(ExporterSource.epoch)).all() == []


def test_a_batch_that_finds_no_place_is_429_and_says_when_to_come_again(api: Api) -> None:
    tokens = {cluster: api.token("reporter", cluster=cluster) for cluster in ("a", "b")}
    intake = api.app.state.service.intake
    with ExitStack() as stack:
        for _ in range(MAX_OF_ONE_CLUSTER):
            stack.enter_context(intake.place("a"))
        response = api.post_facts(presence(), token=tokens["a"])
        assert response.status_code == 429
        assert response.headers["retry-after"] == "2"
        problem(response)
        assert api.post_facts(presence(cluster="b"), token=tokens["b"]).json()["stored"] == 1
        for number in range(MAX_AT_ONCE - MAX_OF_ONE_CLUSTER):
            stack.enter_context(intake.place(f"other-{number}"))
        assert api.post_facts(presence(cluster="b"), token=tokens["b"]).status_code == 429
    # Whatever ended, well or not, gave its place back.
    for body in (b"", presence()):
        for _ in range(MAX_AT_ONCE + 1):
            assert api.post_facts(body, token=tokens["a"]).status_code == 200
    with pytest.raises(ValueError, match="no batch"), intake.place("a"):
        raise ValueError("no batch")
    assert api.post_facts(presence(), token=tokens["a"]).json()["duplicate"] == 1


def test_a_body_that_does_not_come_is_408_and_gives_its_place_back(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MAX_BODY_SECONDS", 0.01)

    async def never() -> AsyncIterator[bytes]:
        yield b"\x1f"
        await asyncio.Event().wait()

    with pytest.raises(Problem) as refused:
        asyncio.run(batches.read_body(never(), None))
    assert refused.value.status_code == 408


def test_facts_of_too_many_days_are_413_so_that_the_exporter_halves_them(api: Api) -> None:
    token = api.token("reporter", cluster="a")
    from_ms = NOW_MS - 399 * 86_400_000
    old = [presence(device_uuid=f"GPU-{n}", from_ms=from_ms, to_ms=from_ms + 1) for n in range(200)]
    response = api.post_facts(b"\n".join(old), token=token)
    assert response.status_code == 413
    assert "send half of them" in problem(response)["detail"]
    with api.database.reading() as session:
        assert session.scalars(select(PresenceReport.device_uuid)).all() == []
    for half in (old[:100], old[100:]):
        assert api.post_facts(b"\n".join(half), token=token).json()["stored"] == 100


def test_a_full_disk_is_503_and_one_line_of_the_log_and_loses_nothing(
    api: Api, database_kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    if database_kind != "sqlite":
        pytest.skip("a full disk is feigned by a limit of SQLite's")
    token = api.token("reporter", cluster="a")
    lines = b"\n".join(presence(device_uuid=f"GPU-{number}", model="m" * 200) for number in range(1_000))
    api.database.close()

    def fill(connection: Any, _entry: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")

    event.listen(api.database.engine, "connect", fill)
    response = api.post_facts(lines, token=token)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "10"
    problem(response)
    (record,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert "full" in record.getMessage()
    assert record.exc_info is None
    event.remove(api.database.engine, "connect", fill)
    api.database.close()
    assert api.post_facts(lines, token=token).json()["stored"] == 1_000


@pytest.mark.parametrize(
    "text", ["\x00", "\x1b[2J", "a\nforged line", "\u202e", "x" * 15_000, "\x00" * 2_500]
)
def test_why_a_line_was_rejected_is_short_and_printable_whatever_stood_in_it(api: Api, text: str) -> None:
    token = api.token("reporter", cluster="a")
    lines = [presence(**{name: text}) for name in ("type", "state", "witness", "schema", "cluster", "model")]
    lines += [json.dumps({text: 1}).encode(), json.dumps({"type": "presence", text: text}).encode()]
    answer = api.post_facts(b"\n".join(lines), token=token)
    assert answer.status_code == 200, answer.text
    rejected = answer.json()["rejected"]
    assert len(rejected) == len(lines)
    for one in rejected:
        assert one["detail"].isprintable()
        assert len(one["detail"]) < 400
    again = api.post_facts(b"\n".join(lines), token=token)
    assert again.json()["rejected"] == rejected


def test_an_empty_batch_is_good_and_shows_that_the_exporter_lives(api: Api) -> None:
    response = api.post_facts(b"\n", token=api.token("reporter", cluster="a"))
    assert response.json() == {"stored": 0, "duplicate": 0, "rejected": []}
    with api.database.reading() as session:
        assert session.scalars(select(ExporterSource.last_seen_ms)).all() == [NOW_MS]


def test_each_run_of_an_exporter_is_registered_with_its_clock_and_its_counts(api: Api) -> None:
    token = api.token("reporter", cluster="a")
    api.post_facts(presence() + b"\n{", token=token, headers={HEADER_SENT_AT: str(NOW_MS + 1_500)})
    api.now_ms += 5_000
    api.post_facts(presence(), token=token, headers={HEADER_SENT_AT: str(NOW_MS + 4_900)})
    cluster_role = {HEADER_SOURCE: "role=cluster;epoch=e2;version=0.1.0"}
    api.post_facts(presence(witness="cluster"), token=token, headers=cluster_role)
    with api.database.reading() as session:
        rows = session.scalars(select(ExporterSource).order_by(ExporterSource.epoch)).all()
        seen = [
            (row.role, row.node, row.last_seen_ms, row.clock_offset_ms, row.facts_sent, row.facts_stored)
            for row in rows
        ]
    assert seen == [
        ("node", "node-1", NOW_MS + 5_000, -100, 3, 1),
        ("cluster", "", NOW_MS + 5_000, 0, 1, 1),
    ]


def test_a_failure_of_the_store_is_500_and_the_retry_stores_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = api.token("reporter", cluster="a")

    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise OSError("disk full at /secret/place")

    with monkeypatch.context() as patched:
        patched.setattr("accounting.api.facts.note_source", fail)
        response = api.post_facts(presence(), token=token)
    assert response.status_code == 500
    assert problem(response)["detail"] == "the service failed; its log says why"
    assert [api.post_facts(presence(), token=token).json()["stored"] for _ in range(2)] == [1, 0]
