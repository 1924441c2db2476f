from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event as sa_event
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from accounting.facts import kinds
from accounting.facts import quarantine as quarantine_module
from accounting.facts.ingest import Taken, ingest
from accounting.facts.marks import MAX_DAYS, TooManyDaysError
from accounting.facts.reading import Scope, read_lines
from accounting.store.database import Database
from accounting.store.models import (
    AllocationReport,
    IngestCounter,
    Node,
    Quarantine,
    RatingMark,
    UsageFact,
)
from contract.facts import (
    AllocationFact,
    DeviceUsageFact,
    Fact,
    NodeStateFact,
    PresenceFact,
    SliceUsageFact,
    UnallocatedUseFact,
    canonical_bytes,
)

HOUR_MS = 1_790_805_600_000
NOW_MS = HOUR_MS + 7_200_000
DAY_MS = 86_400_000

FACT_TABLES: list[Any] = [
    kinds.ALLOCATION, kinds.PRESENCE, kinds.NODE_STATE,
    kinds.SLICE_USAGE, kinds.UNALLOCATED_USE, kinds.DEVICE_USAGE,
]  # fmt: skip


def send(session: Session, facts: Sequence[Fact], *, now_ms: int = NOW_MS) -> Taken:
    body = b"\n".join(canonical_bytes(fact) for fact in facts)
    return ingest(session, read_lines(body, Scope("a"), now_ms=now_ms), cluster="a", now_ms=now_ms)


def tables(session: Session) -> dict[str, list[bytes]]:
    """What the fact tables hold, and how the nodes are called."""
    held = {}
    for kind in FACT_TABLES:
        names = [column.name for column in kind.table.columns]
        rows = session.execute(select(kind.table)).all()
        held[kind.table.name] = sorted(
            canonical_bytes(kind.fact_of(dict(zip(names, row, strict=True)))) for row in rows
        )
    nodes = session.execute(select(Node.node_uid, Node.name, Node.named_at_ms)).all()
    return held | {"node": sorted(repr(tuple(row)).encode() for row in nodes)}


class _Undo(Exception):  # noqa: N818 - it is no error
    """Ends a transaction without keeping anything of it."""


@contextmanager
def rolled_back(database: Database) -> Iterator[Session]:
    with suppress(_Undo), database.writing() as session:
        yield session
        raise _Undo


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Fact], list[list[Fact]]]:
    """Facts, and the same facts in another order, some of them repeated, cut into batches."""
    one = st.one_of(*(st.from_type(kind.fact_type) for kind in FACT_TABLES))
    facts = draw(st.lists(one, min_size=1, max_size=10))
    again = draw(st.lists(st.sampled_from(facts), max_size=4))
    shuffled = draw(st.permutations([*facts, *again]))
    cuts = sorted(draw(st.lists(st.integers(0, len(shuffled)), max_size=3)))
    batches = [list(shuffled[a:b]) for a, b in zip([0, *cuts], [*cuts, len(shuffled)], strict=True)]
    return facts, batches


@given(history=histories())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_any_repetition_and_any_cut_give_the_same_tables(
    database: Database, history: tuple[list[Fact], list[list[Fact]]]
) -> None:
    facts, batches = history
    with rolled_back(database) as session:
        for fact in facts:
            send(session, [fact])
        expected = tables(session)
    with rolled_back(database) as session:
        for batch in batches:
            taken = send(session, batch)
            assert taken.stored + taken.duplicate + len(taken.rejected) == len(batch)
        assert tables(session) == expected
        for batch in batches:
            again = send(session, batch)
            assert again.stored == 0
        assert tables(session) == expected


def allocation(**changes: Any) -> AllocationFact:
    fields: dict[str, Any] = {
        "cluster": "a", "pod_uid": "pod-1", "container": "main", "device_uuid": "GPU-1", "witness": "node",
        "node_uid": "uid-1", "node": "node-1", "namespace": "team", "pod": "train", "vendor": "NVIDIA",
        "model": "NVIDIA L4", "mem_mib": 8_000, "core_percent": 50, "container_kind": "app",
        "tenant_key": "tenant-a", "bound_at_ms": HOUR_MS, "first_confirmed_at_ms": HOUR_MS,
        "confirmed_at_ms": HOUR_MS,
    }  # fmt: skip
    return AllocationFact(**(fields | changes))


def usage(**changes: Any) -> SliceUsageFact:
    fields: dict[str, Any] = {
        "cluster": "a", "pod_uid": "pod-1", "container": "main", "device_uuid": "GPU-1", "node_uid": "uid-1",
        "hour_ms": HOUR_MS, "epoch": "e1", "revision": 1, "from_ms": HOUR_MS, "to_ms": HOUR_MS + 3_600_000,
        "covered_ms": 90_000, "unknown_ms": 0, "sm_ppm_ms": 0, "sm_down_ppm_ms": 0, "mem_used_mib_ms": 0,
        "mem_peak_mib": 0, "energy_active_mj": 0, "blocked_ms": 0, "over_limit_ms": 0, "source": "nvml",
    }  # fmt: skip
    return SliceUsageFact(**(fields | changes))


def presence(**changes: Any) -> PresenceFact:
    fields: dict[str, Any] = {
        "cluster": "a", "node_uid": "uid-1", "node": "node-1", "device_uuid": "GPU-1", "witness": "node",
        "from_ms": HOUR_MS, "to_ms": HOUR_MS + 1_000, "state": "healthy", "model": "NVIDIA L4",
        "vendor": "NVIDIA", "registered_mib": 24_576, "slots": 10,
    }  # fmt: skip
    return PresenceFact(**(fields | changes))


def test_usage_may_come_before_its_allocation(database: Database) -> None:
    with database.writing() as session:
        assert send(session, [usage()]).stored == 1
    with database.writing() as session:
        assert send(session, [allocation()]).stored == 1
    with database.reading() as session:
        ids = set(session.scalars(select(UsageFact.allocation_id)))
        assert ids == set(session.scalars(select(AllocationReport.allocation_id)))


def test_the_same_pod_uid_in_another_cluster_is_another_slice(database: Database) -> None:
    other = msgspec.structs.replace(allocation(), cluster="b", tenant_key="tenant-b")
    with database.writing() as session:
        send(session, [allocation()])
        lines = read_lines(canonical_bytes(other), Scope("b"), now_ms=NOW_MS)
        ingest(session, lines, cluster="b", now_ms=NOW_MS)
    with database.reading() as session:
        rows = session.execute(select(AllocationReport.cluster, AllocationReport.tenant_key)).all()
        assert sorted(map(tuple, rows)) == [("a", "tenant-a"), ("b", "tenant-b")]


def test_bad_facts_are_refused_by_line_and_reason_and_the_others_stored(database: Database) -> None:
    bad = msgspec.structs.replace(usage(), covered_ms=-1)
    other = msgspec.structs.replace(allocation(), cluster="b")
    body = b"\n".join([canonical_bytes(bad), canonical_bytes(usage()), b"{", canonical_bytes(other)])
    with database.writing() as session:
        lines = read_lines(body, Scope("a"), now_ms=NOW_MS)
        taken = ingest(session, lines, cluster="a", now_ms=NOW_MS)
    assert (taken.stored, taken.duplicate) == (1, 0)
    assert [(one.line, one.reason) for one in taken.rejected] == [
        (1, "absurd_quantity"),
        (3, "malformed"),
        (4, "other_cluster"),
    ]
    with database.reading() as session:
        kept = session.execute(select(Quarantine.reason, Quarantine.fact).order_by(Quarantine.id)).all()
        assert [(row.reason, row.fact) for row in kept] == [
            ("absurd_quantity", canonical_bytes(bad).decode()),
            ("malformed", "{"),
            ("other_cluster", canonical_bytes(other).decode()),
        ]


def test_a_bad_fact_that_is_sent_again_is_kept_once(database: Database) -> None:
    for _ in range(3):
        with database.writing() as session:
            assert (
                len(ingest(session, read_lines(b"{", Scope("a"), now_ms=1), cluster="a", now_ms=1).rejected)
                == 1
            )
    with database.reading() as session:
        assert len(session.scalars(select(Quarantine)).all()) == 1


def test_rubbish_fills_no_disk(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine_module, "MAX_KEPT", 3)
    for batch in (b"{1\n{2", b"{3\n{4", b"{5"):
        with database.writing() as session:
            ingest(session, read_lines(batch, Scope("a"), now_ms=1), cluster="a", now_ms=1)
    with database.reading() as session:
        assert session.scalars(select(Quarantine.fact)).all() == ["{1", "{2", "{3"]


@pytest.mark.parametrize("winner_first", [True, False])
def test_the_loser_of_a_conflict_is_in_quarantine_in_either_order(
    database: Database, *, winner_first: bool
) -> None:
    better, worse = usage(covered_ms=260_000), usage(covered_ms=200_000)
    first, second = (better, worse) if winner_first else (worse, better)
    with database.writing() as session:
        assert send(session, [first]).stored == 1
    with database.writing() as session:
        taken = send(session, [second])
    if winner_first:
        assert (taken.stored, [one.reason for one in taken.rejected]) == (0, ["conflict"])
    else:
        assert (taken.stored, taken.rejected) == (1, ())
    with database.reading() as session:
        assert session.scalars(select(UsageFact.covered_ms)).all() == [260_000]
        assert session.scalars(select(Quarantine.fact)).all() == [canonical_bytes(worse).decode()]


def test_a_failed_commit_stores_nothing_and_the_retry_stores_once(database: Database) -> None:
    batch: list[Fact] = [allocation(), usage(), presence()]

    def fail() -> None:
        with database.writing() as session:
            send(session, batch)
            session.execute(text("INSERT INTO node (cluster) VALUES (NULL)"))

    with pytest.raises(Exception, match=r"(?i)not.null"):
        fail()
    with database.reading() as session:
        assert all(not rows for rows in tables(session).values())
        assert session.scalars(select(RatingMark)).all() == []
    results = []
    for _ in range(2):
        with database.writing() as session:
            taken = send(session, batch)
            results.append((taken.stored, taken.duplicate))
    assert results == [(3, 0), (0, 3)]


def test_a_batch_that_changes_nothing_takes_no_number(database: Database) -> None:
    for _ in range(2):
        with database.writing() as session:
            send(session, [usage()])
    with database.reading() as session:
        assert session.scalars(select(IngestCounter.last_seq)).all() == [1]
        assert session.scalars(select(UsageFact.ingest_seq)).all() == [1]


@pytest.mark.parametrize("database_kind", ["sqlite"])  # PostgreSQL may well read a table this small whole
def test_known_facts_are_found_by_their_index_however_many_there_are(database: Database) -> None:
    pods = [usage(pod_uid=f"pod-{number}") for number in range(1_000)]
    asked: list[tuple[str, Any]] = []

    def listen(*event: Any) -> None:
        if event[2].startswith("SELECT") and "staged_usage_fact" in event[2]:
            asked.append((event[2], event[3]))

    with database.writing() as session:
        assert send(session, pods).stored == 1_000
    with database.writing() as session:
        sa_event.listen(database.engine, "before_cursor_execute", listen)
        assert send(session, pods[::-1]).duplicate == 1_000
        sa_event.remove(database.engine, "before_cursor_execute", listen)
        connection = session.connection()
        plans = [
            step.detail
            for statement, parameters in asked
            for step in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]
    assert [plan for plan in plans if "SEARCH usage_fact USING INDEX" in plan]
    assert not any("SCAN usage_fact" in plan for plan in plans)


def marked_days(session: Session, device_uuid: str = "GPU-1") -> list[int]:
    marks = select(RatingMark.day_ms).where(RatingMark.device_uuid == device_uuid).order_by(RatingMark.day_ms)
    return list(session.scalars(marks))


def clear_marks(session: Session) -> None:
    session.execute(text("DELETE FROM rating_mark"))


MIDNIGHT_MS = 1_790_812_800_000
"""2026-10-01T00:00Z."""
NOON_MS = MIDNIGHT_MS + DAY_MS // 2
LATE_MS = MIDNIGHT_MS + 20 * DAY_MS


def test_a_new_allocation_marks_every_day_that_it_held_and_six_hours_around(database: Database) -> None:
    held = allocation(
        bound_at_ms=NOON_MS,
        first_confirmed_at_ms=NOON_MS,
        confirmed_at_ms=NOON_MS + 2 * DAY_MS + 7 * 3_600_000,
    )
    with database.writing() as session:
        send(session, [held], now_ms=LATE_MS)
        # From 1 October 06:00 to 4 October 01:00: the confirmation at 3 October 19:00 reaches 6 h further.
        assert marked_days(session) == [MIDNIGHT_MS + day * DAY_MS for day in range(4)]


def test_a_confirmation_marks_only_the_time_since_the_last_one(database: Database) -> None:
    first = allocation(
        bound_at_ms=NOON_MS, first_confirmed_at_ms=NOON_MS, confirmed_at_ms=NOON_MS + 9 * DAY_MS
    )
    with database.writing() as session:
        send(session, [first], now_ms=LATE_MS)
        clear_marks(session)
        send(
            session,
            [msgspec.structs.replace(first, confirmed_at_ms=NOON_MS + 9 * DAY_MS + 300_000)],
            now_ms=LATE_MS,
        )
        assert marked_days(session) == [MIDNIGHT_MS + 9 * DAY_MS]


def test_an_end_that_comes_late_marks_from_the_end_to_the_last_confirmation(database: Database) -> None:
    first = allocation(
        bound_at_ms=NOON_MS, first_confirmed_at_ms=NOON_MS, confirmed_at_ms=NOON_MS + 9 * DAY_MS
    )
    ended = msgspec.structs.replace(first, ended_at_ms=NOON_MS + 7 * DAY_MS, end_kind="observed")
    with database.writing() as session:
        send(session, [first], now_ms=LATE_MS)
        clear_marks(session)
        send(session, [ended], now_ms=LATE_MS)
        assert marked_days(session) == [MIDNIGHT_MS + day * DAY_MS for day in (7, 8, 9)]


def test_a_node_state_marks_every_device_of_its_node_and_no_other(database: Database) -> None:
    fields: dict[str, Any] = {"cluster": "a", "node_uid": "uid-1", "node": "node-1", "ready": False}
    state = NodeStateFact(
        **fields, from_ms=NOON_MS, to_ms=NOON_MS + 3_600_000, heartbeat_at_ms=NOON_MS - 60_000
    )
    devices = [presence(), presence(device_uuid="GPU-2"), presence(device_uuid="GPU-3", node_uid="uid-2")]
    with database.writing() as session:
        send(session, devices, now_ms=LATE_MS)
        clear_marks(session)
        send(session, [state], now_ms=LATE_MS)
        assert [marked_days(session, f"GPU-{number}") for number in (1, 2, 3)] == [
            [MIDNIGHT_MS],
            [MIDNIGHT_MS],
            [],
        ]


def test_a_ready_node_that_stays_ready_marks_only_the_time_gained(database: Database) -> None:
    fields: dict[str, Any] = {"cluster": "a", "node_uid": "uid-1", "node": "node-1", "ready": True}
    first = NodeStateFact(
        **fields, from_ms=NOON_MS, to_ms=NOON_MS + 9 * DAY_MS, heartbeat_at_ms=NOON_MS + 9 * DAY_MS
    )
    later_ms = NOON_MS + 9 * DAY_MS + 1_000
    with database.writing() as session:
        send(session, [presence(), first], now_ms=LATE_MS)
        clear_marks(session)
        longer = msgspec.structs.replace(first, to_ms=later_ms, heartbeat_at_ms=later_ms)
        send(session, [longer], now_ms=LATE_MS)
        assert marked_days(session) == [MIDNIGHT_MS + 9 * DAY_MS]


def test_a_presence_that_comes_late_marks_all_time_since_because_its_size_may_hold_on(
    database: Database,
) -> None:
    with database.writing() as session:
        send(session, [presence(from_ms=NOON_MS, to_ms=NOON_MS + 1)], now_ms=NOON_MS + 3 * DAY_MS)
        assert marked_days(session) == [MIDNIGHT_MS + day * DAY_MS for day in range(4)]


def old_cards(count: int) -> list[Fact]:
    """Reports of as many cards as a made-up node may name, each 390 days old."""
    from_ms = LATE_MS - 390 * DAY_MS
    return [presence(device_uuid=f"GPU-{n}", from_ms=from_ms, to_ms=from_ms + 1) for n in range(count)]


def test_facts_that_touch_more_days_than_one_transaction_should_mark_come_in_smaller_batches(
    database: Database,
) -> None:
    def send_all(facts: list[Fact]) -> None:
        with database.writing() as session:
            send(session, facts, now_ms=LATE_MS)

    # From 6 h before the report to 6 h after now: 392 days of each card.
    with pytest.raises(TooManyDaysError, match="send half of them"):
        send_all(old_cards(MAX_DAYS // 392 + 1))
    with database.reading() as session:
        assert all(not rows for rows in tables(session).values())
        assert session.scalars(select(RatingMark)).all() == []
    send_all(old_cards(MAX_DAYS // 392))
    with database.reading() as session:
        count = session.scalar(select(func.count()).select_from(RatingMark))
        assert count == MAX_DAYS // 392 * 392


def test_one_fact_alone_is_taken_however_many_days_it_touches(database: Database) -> None:
    state = NodeStateFact(
        cluster=presence().cluster, node_uid=presence().node_uid, node="node-1",
        from_ms=LATE_MS - 399 * DAY_MS, to_ms=LATE_MS, ready=True, heartbeat_at_ms=LATE_MS,
    )  # fmt: skip
    with database.writing() as session:
        for start in (0, 100):
            reports: list[Fact] = [presence(device_uuid=f"GPU-{n}") for n in range(start, start + 100)]
            send(session, reports, now_ms=LATE_MS)
        assert send(session, [state], now_ms=LATE_MS).stored == 1
        assert len(marked_days(session, "GPU-150")) > 390


def test_a_use_marks_its_hour_and_six_hours_around(database: Database) -> None:
    with database.writing() as session:
        send(session, [usage()], now_ms=LATE_MS)
        # 22:00 to 23:00 on 30 September reaches to 05:00 on 1 October.
        assert marked_days(session) == [MIDNIGHT_MS - DAY_MS, MIDNIGHT_MS]


def test_a_node_goes_by_the_name_it_had_last(database: Database) -> None:
    for name, to_ms in (("new-name", HOUR_MS + 9), ("old-name", HOUR_MS + 5)):
        with database.writing() as session:
            send(session, [presence(node=name, to_ms=to_ms)])
    with database.reading() as session:
        assert session.scalars(select(Node.name)).all() == ["new-name"]


def test_every_kind_of_fact_is_counted_once(database: Database) -> None:
    hour = {name: getattr(usage(), name) for name in SliceUsageFact.__struct_fields__}
    bypass = UnallocatedUseFact(**hour, namespace="team", pod="bypass", tenant_key="tenant-a")  # type: ignore[arg-type]
    kept = {name: hour[name] for name in DeviceUsageFact.__struct_fields__ if name in hour}
    device = DeviceUsageFact(
        **kept,
        busy_ppm_ms=0,
        energy_mj=0,
        energy_idle_mj=0,
        energy_unattributed_mj=0,
        sm_unattributed_ppm_ms=0,
    )
    state = NodeStateFact(
        cluster=kept["cluster"], node_uid=kept["node_uid"], node="node-1", from_ms=HOUR_MS, to_ms=HOUR_MS + 1,
        ready=True, heartbeat_at_ms=HOUR_MS,
    )  # fmt: skip
    with database.writing() as session:
        taken = send(session, [allocation(), presence(), state, usage(), bypass, device])
        assert (taken.stored, taken.duplicate, taken.rejected) == (6, 0, ())
        assert all(len(rows) == 1 for rows in tables(session).values())
