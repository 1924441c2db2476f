"""Staging, looking up and merging many rows, on both databases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from accounting.facts.kinds import DEVICE_USAGE, PRESENCE
from accounting.store import bulk
from accounting.store.bulk import known_rows, merge_staged, stage_rows
from accounting.store.database import Database
from accounting.store.models import DeviceFact, PresenceReport
from contract.facts import DeviceUsageFact, PresenceFact
from tests.accounting.postgresql import Server

HOUR_MS = 3_600_000
_NAMES = DEVICE_USAGE.columns


def hour(number: int, device: int, epoch: str, energy_mj: int) -> tuple[Any, ...]:
    fact = DeviceUsageFact(
        cluster="a", node_uid=f"node-{device % 2}", device_uuid=f"GPU-{device}", hour_ms=number * HOUR_MS,  # type: ignore[arg-type]
        epoch=epoch, revision=1, from_ms=number * HOUR_MS, to_ms=number * HOUR_MS + 1, covered_ms=1,  # type: ignore[arg-type]
        busy_ppm_ms=0, energy_mj=energy_mj, energy_idle_mj=0, energy_unattributed_mj=0,
        sm_unattributed_ppm_ms=0,
    )  # fmt: skip
    return DEVICE_USAGE.values_of(fact)


def write(session: Session, rows: list[tuple[Any, ...]], *, number: int = 1) -> None:
    stage_rows(session, DeviceFact, _NAMES, rows)
    merge_staged(session, DeviceFact, _NAMES, {"ingest_seq": number})


_keys = st.sets(
    st.tuples(st.integers(1, 6), st.integers(0, 3), st.sampled_from(["e1", "e2"])), min_size=1, max_size=20
)


@given(there=_keys, asked=_keys, most=st.sampled_from([1, 5, 20_000]))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_exactly_the_rows_under_the_staged_keys_are_known_however_the_lookup_is_cut(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    there: set[tuple[int, int, str]],
    asked: set[tuple[int, int, str]],
    most: int,
) -> None:
    monkeypatch.setattr(bulk, "_MAX_COMBINATIONS", most)
    with database.writing() as session:
        write(session, [hour(*key, energy_mj=sum(key[:2])) for key in there])
        rows = [hour(*key, energy_mj=0) for key in sorted(asked)]
        stage_rows(session, DeviceFact, _NAMES, rows)
        positions = {DEVICE_USAGE.key_of(row): position for position, row in enumerate(rows)}
        found = {
            position: tuple(values)
            for position, values in known_rows(session, DeviceFact, ("energy_mj", "epoch"), positions)
        }
        expected = {
            position: (sum(key[:2]), key[2]) for position, key in enumerate(sorted(asked)) if key in there
        }
        assert found == expected
        session.execute(text("DELETE FROM device_fact"))


def test_a_merge_puts_staged_rows_in_the_place_of_their_keys_and_leaves_all_others(
    database: Database,
) -> None:
    with database.writing() as session:
        write(session, [hour(1, 0, "e1", 10), hour(1, 1, "e1", 20)])
        write(session, [hour(1, 1, "e1", 25), hour(2, 0, "e1", 30)], number=2)
        columns = (DeviceFact.hour_ms, DeviceFact.device_uuid, DeviceFact.energy_mj, DeviceFact.ingest_seq)
        assert sorted(map(tuple, session.execute(select(*columns)))) == [
            (HOUR_MS, "GPU-0", 10, 1),
            (HOUR_MS, "GPU-1", 25, 2),
            (2 * HOUR_MS, "GPU-0", 30, 2),
        ]


@pytest.mark.parametrize("database_kind", [pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_a_server_that_goes_away_during_a_copy_is_told_like_from_any_statement(
    database: Database, postgresql: Server, presence: Any
) -> None:
    fact: PresenceFact = presence(0, 1)

    def stage_on_a_connection_that_is_gone() -> None:
        with database.writing() as session:
            pid = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
            postgresql.execute(f"SELECT pg_terminate_backend({pid}, 5000)")
            stage_rows(session, PresenceReport, PRESENCE.columns, [PRESENCE.values_of(fact)])

    with pytest.raises(OperationalError):
        stage_on_a_connection_that_is_gone()
    with database.writing() as session:
        stage_rows(session, PresenceReport, PRESENCE.columns, [PRESENCE.values_of(fact)])
        merge_staged(session, PresenceReport, PRESENCE.columns, {"ingest_seq": 1})
        assert session.scalars(select(PresenceReport.to_ms)).all() == [1]
