"""Several processes rate one month: together once, stopped between cards, lost without a trace."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from multiprocessing import active_children

import pytest
from sqlalchemy import insert, select, update

from accounting.periods.rate import rate
from accounting.periods.rating_processes import RatingProcessError
from accounting.store.database import Database
from accounting.store.models import (
    DeviceHour,
    LedgerLine,
    PresenceReport,
    Quarantine,
    RatingMark,
    RatingState,
    Tenant,
)
from tests.accounting.periods.many_cards import DAYS, ENDS_MS, STARTS_MS, due_cards, fill, lines_by_card

NOW_MS = ENDS_MS + 86_400_000
GRACE_MS = 900_000
NewBooks = Callable[[], AbstractContextManager[Database]]


def ledger(database: Database) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Lines and hours by what they say, without ids."""
    line, hour = LedgerLine, DeviceHour
    with database.reading() as session:
        lines = session.execute(
            select(line.device_uuid, line.day_ms, Tenant.path, line.kind, line.quantity, line.amount)
            .join(Tenant, Tenant.id == line.tenant_id)
            .order_by(line.device_uuid, line.day_ms, Tenant.path, line.kind)
        )
        hours = session.execute(
            select(hour.device_uuid, hour.hour_ms, hour.present_ppm_ms, hour.idle_ppm_ms).order_by(
                hour.device_uuid, hour.hour_ms
            )
        )
        return [tuple(row) for row in lines], [tuple(row) for row in hours]


def test_cards_shared_by_processes_give_the_ledger_of_one(new_books: NewBooks) -> None:
    found = []
    for jobs in (1, 2):
        with new_books() as database:
            fill(database, 70)
            rated = rate(database, as_of_ms=NOW_MS, grace_ms=GRACE_MS, jobs=jobs)
            # A line of idle capacity a card and day.
            assert (rated.days, rated.lines, rated.is_complete) == (70 * DAYS, 70 * DAYS, True)
            assert due_cards(database) == set()
            found.append(ledger(database))
            assert rate(database, as_of_ms=NOW_MS, grace_ms=GRACE_MS, jobs=jobs).days == 0
    assert found[0] == found[1]


def test_a_rating_that_is_stopped_leaves_whole_cards_and_the_rest_due(database: Database) -> None:
    fill(database, 70)
    asked: list[int] = []

    def after_forty() -> bool:
        asked.append(1)
        return len(asked) > 40

    rated = rate(database, as_of_ms=NOW_MS, grace_ms=GRACE_MS, stop=after_forty)
    left = due_cards(database)
    assert not rated.is_complete
    # Sixteen cards a transaction: the third was stopped at its ninth card and left nothing.
    assert len(left) == 70 - 32
    assert lines_by_card(database) == {f"GPU-{number:05d}": DAYS for number in range(32)}
    rate(database, as_of_ms=NOW_MS, grace_ms=GRACE_MS)
    assert lines_by_card(database) == {f"GPU-{number:05d}": DAYS for number in range(70)}


@pytest.mark.parametrize("database_kind", [pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_a_rating_process_that_is_killed_is_told_and_what_it_held_stays_due(database: Database) -> None:
    fill(database, 200)

    def kill_one(what: str, done: int, total: int) -> None:
        del what, total
        children = active_children()
        if done and len(children) == 2 and children[0].pid is not None:
            os.kill(children[0].pid, signal.SIGKILL)

    with pytest.raises(RatingProcessError, match="ended with -9"):
        rate(database, as_of_ms=NOW_MS, grace_ms=GRACE_MS, jobs=2, progress=kill_one)
    assert active_children() == []
    left = due_cards(database)
    assert left
    assert lines_by_card(database) == {
        f"GPU-{number:05d}": DAYS for number in range(200) if f"GPU-{number:05d}" not in left
    }
    rate(database, as_of_ms=NOW_MS, grace_ms=GRACE_MS, jobs=2)
    assert lines_by_card(database) == {f"GPU-{number:05d}": DAYS for number in range(200)}


def once(write: Callable[[], None]) -> Callable[[], bool]:
    """Asked between two cards whether to stop: it never says so, and writes something the first time."""
    asked: list[bool] = []

    def is_to_stop() -> bool:
        if not asked:
            asked.append(True)
            write()
        return False

    return is_to_stop


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_others_write_to_sqlite_while_cards_are_computed(database: Database) -> None:
    fill(database, 3)

    def refuse_a_fact() -> None:
        names = {"cluster": "c", "reason": "unknown", "detail": "", "fact": "", "fact_sha256": "", "at_ms": 1}
        with database.writing() as session:
            session.execute(insert(Quarantine), [names])

    rated = rate(database, as_of_ms=NOW_MS, grace_ms=GRACE_MS, stop=once(refuse_a_fact))
    assert rated.is_complete
    assert lines_by_card(database) == {f"GPU-{number:05d}": DAYS for number in range(3)}
    with database.reading() as session:
        assert session.scalars(select(Quarantine.reason)).all() == ["unknown"]


@pytest.mark.parametrize("database_kind", ["sqlite"])
def test_a_fact_that_comes_while_its_card_is_computed_is_in_the_lines(database: Database) -> None:
    fill(database, 3)
    tenth_day_ms = STARTS_MS + 10 * 86_400_000

    def shorten_the_first_card() -> None:
        with database.writing() as session:
            first = PresenceReport.device_uuid == "GPU-00000"
            session.execute(update(PresenceReport).where(first).values(to_ms=tenth_day_ms))
            of_first = RatingMark.device_uuid == "GPU-00000", RatingMark.day_ms >= tenth_day_ms
            session.execute(update(RatingMark).where(*of_first).values(ingest_seq=2))

    rate(database, as_of_ms=NOW_MS, grace_ms=GRACE_MS, stop=once(shorten_the_first_card))
    assert due_cards(database) == set()
    assert lines_by_card(database) == {"GPU-00000": 10, "GPU-00001": DAYS, "GPU-00002": DAYS}


def test_a_stopped_rating_leaves_garbage_to_be_collected(database: Database) -> None:
    fill(database, 1)
    assert gc.isenabled()
    assert not rate(database, as_of_ms=NOW_MS, grace_ms=GRACE_MS, stop=lambda: True).is_complete
    assert gc.isenabled()


@contextmanager
def serving(database: Database) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "slicemeter", "accounting", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--database", database.reopened_at(), "--jobs", "2"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on")
        try:
            yield process
        finally:
            process.kill()


def test_sigterm_ends_a_service_in_the_middle_of_a_rating_and_leaves_whole_cards(database: Database) -> None:
    cards = 1_500
    fill(database, cards)
    with serving(database) as process:
        while not lines_by_card(database):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    left = due_cards(database)
    # It was at the first of some ninety transactions.
    assert 0 < len(left) < cards
    rated = lines_by_card(database)
    assert set(rated) == {f"GPU-{number:05d}" for number in range(cards)} - left
    assert len(set(rated.values())) == 1
    with database.reading() as session:
        assert session.scalar(select(RatingState.rated_as_of_ms)) is not None
        hours = session.scalars(
            select(DeviceHour.hour_ms)
            .where(DeviceHour.device_uuid == min(rated))
            .order_by(DeviceHour.hour_ms)
        ).all()
    assert all(later - earlier == 3_600_000 for earlier, later in pairwise(hours))
