"""State and outbox: what survives which restart, what leaves when, and what a full disk costs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.facts import DeviceUsageFact, NodeStateFact, decode_fact
from exporter.delivery import state as state_module
from exporter.delivery.metrics import DeliveryMetrics
from exporter.delivery.state import StateFile, read_boot_id
from exporter.delivery.statefile import StateError

NodeState = Callable[..., NodeStateFact]
Usage = Callable[..., DeviceUsageFact]
Count = Callable[..., float]
Open = Callable[..., StateFile]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "state.db"


@pytest.fixture
def reopen(path: Path, metrics: DeliveryMetrics) -> Iterator[Open]:
    """Opens the file again, as the next run does; the run before is closed first."""
    runs: list[StateFile] = []

    def begin(boot_id: str = "boot-1") -> StateFile:
        if runs:
            runs[-1].close()
        runs.append(StateFile.open(path, boot_id, metrics, lock_wait_seconds=0.1))
        return runs[-1]

    yield begin
    if runs:
        runs[-1].close()


def waiting(state: StateFile) -> list[str]:
    return [json.loads(entry.line)["node"] for entry in state.batch(10_000).entries]


def fill_up(state: StateFile) -> None:
    """The disk takes no page more than the file has now."""
    (pages,) = state._connection.execute("PRAGMA page_count").fetchone()
    state._connection.execute(f"PRAGMA max_page_count = {pages}")


def make_room(state: StateFile) -> None:
    state._connection.execute("PRAGMA max_page_count = 1000000")


# -- restarts -----------------------------------------------------------------------------------


def test_a_first_start_has_no_counters_and_says_so(reopen: Open, count: Count) -> None:
    state = reopen()
    assert (state.restored, state.restart_reason, state.previous_epoch) == (None, "first_start", None)
    assert count("counters_restarted_total", why="first_start") == 1


def test_counters_go_on_in_the_same_boot_under_a_new_epoch(reopen: Open, count: Count) -> None:
    first = reopen()
    first.commit(b"one", [])
    first.commit(b"two", [])
    second = reopen()
    assert (second.restored, second.restart_reason) == (b"two", None)
    assert second.previous_epoch == first.epoch
    assert second.epoch != first.epoch
    assert count("counters_restarted_total", why="first_start") == 1


def test_the_previous_epoch_is_that_of_the_counters_not_of_a_run_that_wrote_nothing(reopen: Open) -> None:
    first = reopen()
    first.commit(b"one", [])
    reopen()
    assert reopen().previous_epoch == first.epoch


def test_a_run_that_died_before_its_first_tick_leaves_a_first_start(reopen: Open) -> None:
    reopen()
    assert reopen().restart_reason == "first_start"


def test_another_boot_starts_counters_again_and_keeps_facts(
    reopen: Open, count: Count, node_state: NodeState
) -> None:
    reopen().commit(b"one", [node_state("n1")])
    state = reopen("boot-2")
    assert (state.restored, state.restart_reason) == (None, "new_boot")
    assert waiting(state) == ["n1"]
    assert count("counters_restarted_total", why="new_boot") == 1


def test_counters_that_the_role_cannot_read_count_as_damaged(reopen: Open, count: Count) -> None:
    reopen().commit(b"of another version", [])
    state = reopen()
    assert state.resumed(lambda _: None) is None
    assert (state.restored, state.restart_reason) == (None, "state_damaged")
    assert count("counters_restarted_total", why="state_damaged") == 1


def test_changed_counter_bytes_are_noticed_and_the_facts_still_leave(
    reopen: Open, path: Path, node_state: NodeState
) -> None:
    reopen().commit(b"one", [node_state("n1")])
    reopen().close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE run SET counters = x'00'")
    connection.close()
    state = reopen()
    assert (state.restored, state.restart_reason) == (None, "state_damaged")
    assert waiting(state) == ["n1"]


@pytest.mark.parametrize("garbage", [b"not a database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_moved_aside(
    reopen: Open, path: Path, garbage: bytes, count: Count, node_state: NodeState
) -> None:
    path.parent.mkdir()
    path.write_bytes(garbage)
    state = reopen()
    assert state.restart_reason == "state_damaged"
    assert path.with_name("state.db.damaged").read_bytes() == garbage
    assert count("counters_restarted_total", why="state_damaged") == 1
    assert count("facts_lost_total", reason="state_damaged") == 1  # "some": nobody can tell how many
    assert state.commit(b"one", [node_state("n1")])
    assert reopen().restored == b"one"


def test_facts_that_a_damaged_file_still_shows_leave(
    reopen: Open, path: Path, count: Count, node_state: NodeState
) -> None:
    reopen().commit(b"one", [node_state("n1"), node_state("n2")])
    reopen().close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE outbox SET fact = cast('{}' AS BLOB) WHERE key LIKE '%n2%'")
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    state = reopen()
    assert state.restart_reason == "state_damaged"
    assert waiting(state) == ["n1"]
    assert count("facts_lost_total", reason="state_damaged") == 1


def test_any_broken_page_ends_in_a_working_file(reopen: Open, path: Path, node_state: NodeState) -> None:
    state = reopen()
    for number in range(200):
        state.commit(b"x" * 5000, [node_state(f"node-{number}")])
    state.close()
    sound = path.read_bytes()
    for offset in range(0, len(sound), 4096):
        path.write_bytes(sound[:offset] + b"\xa5" * 512 + sound[offset + 512 :])
        state = reopen()
        assert state.restored in {None, b"x" * 5000}
        assert (state.restored is None) == (state.restart_reason == "state_damaged")
        assert state.commit(b"y", [node_state("after")])
        assert "after" in waiting(state)
        assert set(waiting(state)) <= {"after", *(f"node-{number}" for number in range(200))}
        state.close()


def test_a_second_exporter_on_the_file_is_refused_with_the_way_out(
    reopen: Open, path: Path, metrics: DeliveryMetrics
) -> None:
    reopen()
    with pytest.raises(StateError, match="in use by another exporter; stop it, or give this one") as caught:
        StateFile.open(path, "boot-1", metrics, lock_wait_seconds=0.05)
    assert str(path) in caught.value.detail


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, metrics: DeliveryMetrics) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StateError, match="--state-file") as caught:
        StateFile.open(blocked / "state.db", "boot-1", metrics)
    assert str(blocked) in caught.value.detail


def test_the_boot_id_is_read_without_its_line_end(tmp_path: Path) -> None:
    file = tmp_path / "boot_id"
    file.write_text("4d2b0c5e-8a0b-4f3c-9d2e-1a2b3c4d5e6f\n")
    assert read_boot_id(file) == "4d2b0c5e-8a0b-4f3c-9d2e-1a2b3c4d5e6f"


# -- outbox -------------------------------------------------------------------------------------


def test_facts_leave_in_the_order_of_their_writing(reopen: Open, node_state: NodeState) -> None:
    state = reopen()
    state.commit(b"", [node_state("n2"), node_state("n1")])
    state.commit(b"", [node_state("n3")])
    assert waiting(state) == ["n2", "n1", "n3"]
    assert [json.loads(entry.line)["node"] for entry in state.batch(2).entries] == ["n2", "n1"]


def test_a_newer_writing_replaces_an_unsent_one(reopen: Open, node_state: NodeState) -> None:
    state = reopen()
    state.commit(b"", [node_state("n1", to_ms=2)])
    state.commit(b"", [node_state("n1", to_ms=9)])
    (entry,) = state.batch(10).entries
    assert decode_fact(entry.line) == node_state("n1", to_ms=9)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_of_two_revisions_the_higher_waits_whichever_came_last(
    reopen: Open, usage: Usage, order: tuple[int, int]
) -> None:
    state = reopen()
    for revision in order:
        state.commit(b"", [usage(revision)])
    (entry,) = state.batch(10).entries
    assert decode_fact(entry.line) == usage(2)


def test_two_epochs_of_an_hour_are_two_facts(reopen: Open, usage: Usage) -> None:
    state = reopen()
    state.commit(b"", [usage(1, epoch="e1"), usage(1, epoch="e2")])
    assert state.pending().count == 2


def test_pending_counts_facts_and_keeps_the_time_since_which_the_oldest_waits(
    reopen: Open, node_state: NodeState
) -> None:
    state = reopen()
    assert (state.pending().count, state.pending().oldest_ms) == (0, None)
    state.commit(b"", [node_state("n1", to_ms=100), node_state("n2", to_ms=200)])
    state.commit(b"", [node_state("n1", to_ms=900)])
    assert (state.pending().count, state.pending().oldest_ms) == (2, 100)


def test_an_acknowledged_batch_is_gone_also_after_a_restart(reopen: Open, node_state: NodeState) -> None:
    state = reopen()
    state.commit(b"", [node_state("n1"), node_state("n2")])
    state.acknowledge(state.batch(1))
    assert waiting(state) == ["n2"]
    assert waiting(reopen()) == ["n2"]


def test_a_fact_rewritten_while_its_batch_was_away_is_not_dropped(reopen: Open, usage: Usage) -> None:
    state = reopen()
    state.commit(b"", [usage(1)])
    batch = state.batch(10)
    state.commit(b"", [usage(2)])
    state.acknowledge(batch)
    (entry,) = state.batch(10).entries
    assert decode_fact(entry.line) == usage(2)


def test_a_fact_written_again_unchanged_while_its_batch_was_away_is_not_sent_twice(
    reopen: Open, usage: Usage
) -> None:
    state = reopen()
    state.commit(b"", [usage(1)])
    batch = state.batch(10)
    state.commit(b"", [usage(1)])
    state.acknowledge(batch)
    assert state.pending().count == 0


def test_a_restart_does_not_mistake_a_new_fact_for_an_old_batch(reopen: Open, node_state: NodeState) -> None:
    state = reopen()
    state.commit(b"", [node_state("n1", to_ms=2)])
    batch = state.batch(10)
    state = reopen()
    state.commit(b"", [node_state("n1", to_ms=3)])
    state.acknowledge(batch)
    assert waiting(state) == ["n1"]


def test_a_batch_set_aside_is_out_of_the_way_and_can_be_looked_at(
    reopen: Open, path: Path, node_state: NodeState
) -> None:
    state = reopen()
    state.commit(b"", [node_state("n1"), node_state("n2")])
    state.set_aside(state.batch(1), "422 no NDJSON")
    assert waiting(state) == ["n2"]
    state.close()
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT reason, fact FROM set_aside").fetchall()
    connection.close()
    assert [(reason, json.loads(fact)["node"]) for reason, fact in rows] == [("422 no NDJSON", "n1")]


def test_what_is_set_aside_is_bounded(
    reopen: Open, node_state: NodeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "MAX_SET_ASIDE", 3)
    state = reopen()
    for number in range(5):
        state.commit(b"", [node_state(f"n{number}")])
        state.set_aside(state.batch(1), "422")
    rows = state._connection.execute("SELECT fact FROM set_aside ORDER BY sequence").fetchall()
    assert [json.loads(fact)["node"] for (fact,) in rows] == ["n2", "n3", "n4"]


def test_a_body_is_one_fact_a_line(reopen: Open, node_state: NodeState) -> None:
    state = reopen()
    state.commit(b"", [node_state("n1"), node_state("n2")])
    lines = state.batch(10).body().split(b"\n")
    assert lines[-1] == b""
    assert [decode_fact(line) for line in lines[:-1]] == [node_state("n1"), node_state("n2")]


# -- a full disk --------------------------------------------------------------------------------


def test_on_a_full_disk_facts_wait_in_memory_and_are_written_when_there_is_room(
    reopen: Open, count: Count, node_state: NodeState
) -> None:
    state = reopen()
    state.commit(b"one", [node_state("n0")])
    fill_up(state)
    big = b"x" * 100_000
    assert state.commit(big, [node_state("n1")]) is False
    assert state.commit(big, [node_state("n1", to_ms=9), node_state("n2")]) is False
    assert waiting(state) == ["n0", "n1", "n2"]
    assert state.pending().count == 3
    make_room(state)
    assert state.commit(b"two", []) is True
    assert count("facts_lost_total", reason="disk_full") == 0
    state = reopen()
    assert state.restored == b"two"
    assert waiting(state) == ["n0", "n1", "n2"]


def test_on_a_full_disk_facts_still_leave_from_memory(reopen: Open, node_state: NodeState) -> None:
    state = reopen()
    state.commit(b"one", [])
    fill_up(state)
    state.commit(b"x" * 100_000, [node_state("n1")])
    batch = state.batch(10)
    state.commit(b"x" * 100_000, [node_state("n2")])
    state.acknowledge(batch)
    assert waiting(state) == ["n2"]


def test_facts_that_no_longer_fit_in_memory_are_lost_oldest_first_and_counted(
    reopen: Open, count: Count, node_state: NodeState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "MAX_HELD_FACTS", 2)
    state = reopen()
    state.commit(b"one", [])
    fill_up(state)
    state.commit(b"x" * 100_000, [node_state("n1"), node_state("n2"), node_state("n3")])
    assert waiting(state) == ["n2", "n3"]
    assert count("facts_lost_total", reason="disk_full") == 1


def test_closing_on_a_full_disk_counts_what_is_lost(
    reopen: Open, count: Count, node_state: NodeState
) -> None:
    state = reopen()
    state.commit(b"one", [])
    fill_up(state)
    state.commit(b"x" * 100_000, [node_state(f"node-{number}") for number in range(500)])
    state.close()
    assert count("facts_lost_total", reason="disk_full") == 500


def test_sent_facts_are_not_sent_again_while_the_disk_cannot_drop_them(
    reopen: Open, node_state: NodeState
) -> None:
    state = reopen()
    state.commit(b"one", [node_state("n1"), node_state("n2")])
    state._connection.execute("PRAGMA query_only = ON")  # every write fails, as on a disk gone read-only
    state.acknowledge(state.batch(1))
    assert waiting(state) == ["n2"]
    assert state.pending().count == 1
    assert state.commit(b"two", []) is False
    state._connection.execute("PRAGMA query_only = OFF")
    assert state.commit(b"two", []) is True
    assert waiting(reopen()) == ["n2"]
