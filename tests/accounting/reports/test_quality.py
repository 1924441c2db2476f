"""How good the facts are, from what exporters sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accounting.access.viewer import COMMAND_LINE
from accounting.errors import InvalidError
from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.facts.source import Source, note_source
from accounting.periods.rate import rate
from accounting.reports.quality import clock_of, coverage_since, quality_document
from accounting.store.database import Database
from accounting.tenants.registry import add_account, add_cluster
from contract.facts import PresenceFact, canonical_bytes

At = Callable[..., int]
DAY_MS = 86_400_000


def document(database: Database, now_ms: int, **asked: Any) -> dict[str, Any]:
    with database.reading() as session:
        return quality_document(session, now_ms=now_ms, **asked)


@pytest.mark.parametrize(
    ("offset_ms", "clock"),
    [
        (0, "good"),
        (2_000, "good"),
        (-2_001, "off"),
        (30_000, "off"),
        (-30_001, "far_off"),
        (299_999, "far_off"),
    ],
)
def test_a_clock_is_off_beyond_two_seconds_and_far_off_beyond_thirty(offset_ms: int, clock: str) -> None:
    assert clock_of(offset_ms) == clock


def test_each_exporter_is_shown_by_its_newest_run(database: Database, at: At) -> None:
    old = Source("node", "e1", "0.1.0", "uid-1", "node-1")
    new = Source("node", "e2", "0.2.0", "uid-1", "node-1")
    whole = Source("cluster", "e3", "0.2.0")
    with database.writing() as session:
        for source, time, offset_ms in ((old, "10:00", 40_000), (new, "11:00", -2_500), (whole, "11:59", 0)):
            note_source(session, "c", source, now_ms=at(time), clock_offset_ms=offset_ms, sent=5, stored=4)
    sources = document(database, at("12:00"))["sources"]
    assert [
        (one["role"], one["node"], one["version"], one["silent_seconds"], one["clock_offset_ms"],
         one["clock"], one["facts_sent"], one["facts_stored"], one["runs"])
        for one in sources
    ] == [
        ("cluster", None, "0.2.0", 60, 0, "good", 5, 4, 1),
        ("node", "node-1", "0.2.0", 3_600, -2_500, "off", 5, 4, 2),
    ]  # fmt: skip
    assert sources[1]["last_seen"] == "2026-10-01T11:00:00Z"


def test_presence_that_nobody_confirmed_is_a_gap_and_lowers_coverage(
    database: Database, at: At, presence: Callable[..., PresenceFact]
) -> None:
    # Confirmed from 0 to 3 and from 5 to 8 o'clock: the two hours between are bridged.
    facts = [presence(at("00:00"), at("03:00")), presence(at("05:00"), at("08:00"))]
    now_ms = at("08:00")
    with database.writing() as session:
        by: dict[str, Any] = {"by": COMMAND_LINE, "now_ms": 0}
        for code, kind in (("acme", "tenant"), ("platform", "platform")):
            add_account(session, code, kind=kind, currency=None, time_zone="UTC", grace_days=3, **by)  # type: ignore[arg-type]
        add_cluster(session, "c", account="acme", platform_account="platform", **by)
        lines = read_lines(b"\n".join(map(canonical_bytes, facts)), Scope("c"), now_ms=now_ms)
        ingest(session, lines, cluster="c", now_ms=now_ms)
    rate(database, as_of_ms=now_ms, grace_ms=900_000)
    found = document(database, now_ms)
    assert found["coverage"] == [
        {"cluster": "c", "present_ms": 8 * 3_600_000, "confirmed_ms": 6 * 3_600_000, "coverage": "0.750000"}
    ]
    assert found["gaps"] == [
        {
            "cluster": "c", "node": "node-1", "node_uid": "node-uid-1", "devices": 1,
            "from": "2026-10-01T03:00:00Z", "to": "2026-10-01T05:00:00Z", "unconfirmed_ms": 2 * 3_600_000,
        }
    ]  # fmt: skip
    with database.reading() as session:
        assert {cluster: str(ratio) for cluster, ratio in coverage_since(session, 0).items()} == {
            "c": "0.750000"
        }
    later = document(database, now_ms + 8 * DAY_MS)
    assert (later["coverage"], later["gaps"]) == ([], [])


def test_refused_facts_are_counted_by_cluster_and_reason(database: Database, at: At) -> None:
    with database.writing() as session:
        for time, body in (("10:00", b"{1\n{2"), ("11:00", b'{"type": "future", "schema": 1}')):
            now_ms = at(time)
            ingest(session, read_lines(body, Scope("c"), now_ms=now_ms), cluster="c", now_ms=now_ms)
    assert document(database, at("12:00"))["quarantine"] == [
        {"cluster": "c", "reason": "malformed", "facts": 2, "newest": "2026-10-01T10:00:00Z"},
        {"cluster": "c", "reason": "unknown_type", "facts": 1, "newest": "2026-10-01T11:00:00Z"},
    ]


def test_books_that_heard_nobody_have_nothing_to_show(database: Database, at: At) -> None:
    found = document(database, at("12:00"))
    assert [found[part] for part in ("sources", "coverage", "gaps", "quarantine")] == [[], [], [], []]


@pytest.mark.parametrize("days", [0, 401])
def test_quality_looks_back_from_one_to_four_hundred_days(database: Database, at: At, days: int) -> None:
    with pytest.raises(InvalidError, match="from 1 to 400"):
        document(database, at("12:00"), days=days)
