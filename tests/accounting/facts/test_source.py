"""Runs of exporters: a restart is told apart from two that report for one node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from accounting.facts.source import Source, note_source
from accounting.store.database import Database
from accounting.store.models import ExporterSource

MINUTE = 60_000


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with database.writing() as session:
        yield session


def hear(session: Session, epoch: str, minute: int, node_uid: str = "uid-1") -> None:
    note_source(
        session,
        "a",
        Source("node", epoch, "1.0", node_uid, "node-1"),
        now_ms=minute * MINUTE,
        clock_offset_ms=0,
        sent=1,
        stored=1,
    )


def contested(session: Session) -> dict[str, int | None]:
    return {run.epoch: run.contested_ms for run in session.scalars(select(ExporterSource))}


def test_a_run_that_follows_another_is_a_restart(session: Session) -> None:
    for minute, epoch in enumerate(["e1", "e1", "e2", "e2", "e3"]):
        hear(session, epoch, minute)
    assert contested(session) == {"e1": None, "e2": None, "e3": None}


def test_a_run_heard_again_after_another_on_its_node_is_one_of_two_and_is_said_once_an_hour(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    for minute, epoch in enumerate(["e1", "e2", "e1", "e2", "e1"]):
        hear(session, epoch, minute)
    assert contested(session) == {"e1": 4 * MINUTE, "e2": 3 * MINUTE}
    assert [record.getMessage() for record in caplog.records] == [
        f'cluster a: two exporters report for node "node-1" (runs {mine} and {other}), one of them counts; '
        "stop one"
        for mine, other in (("e1", "e2"), ("e2", "e1"))
    ]


def test_runs_of_two_nodes_with_one_name_are_no_two_of_one_node(session: Session) -> None:
    for minute, (epoch, uid) in enumerate([("e1", "uid-1"), ("e2", "uid-2"), ("e1", "uid-1")]):
        hear(session, epoch, minute, uid)
    assert contested(session) == {"e1": None, "e2": None}
