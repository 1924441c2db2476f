"""A database as a user has it, and facts of which a test writes only what it is about.

The database is made by alembic, one for each test, copied from one that was migrated once. Whoever asks
for `database` runs twice, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from accounting.store.database import Database
from accounting.store.migrate import upgrade
from contract.facts import AllocationFact, NodeStateFact, PresenceFact, SliceUsageFact
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid, TenantKey
from tests.accounting.postgresql import SERVICE, Server, running_server


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "slicemeter.sqlite"
    database = Database(f"sqlite:///{path}")
    upgrade(database)
    with database.engine.connect() as connection:
        connection.exec_driver_sql("ROLLBACK")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    return path


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def migrated_database(postgresql: Server) -> Iterator[str]:
    with postgresql.migrated() as name:
        yield name


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def database_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def new_books(
    database_kind: str, request: pytest.FixtureRequest
) -> Callable[[], AbstractContextManager[Database]]:
    """Makes migrated databases, for a test that needs more than one."""
    if database_kind == "sqlite":
        migrated_file: Path = request.getfixturevalue("migrated_file")
        return lambda: _copied_file(migrated_file)
    server: Server = request.getfixturevalue("postgresql")
    template: str = request.getfixturevalue("migrated_database")
    return lambda: _copied_database(server, template)


@contextmanager
def _copied_file(migrated_file: Path) -> Iterator[Database]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "slicemeter.sqlite"
        shutil.copy(migrated_file, path)
        database = Database(f"sqlite:///{path}")
        yield database
        database.close()


@contextmanager
def _copied_database(server: Server, template: str) -> Iterator[Database]:
    with server.database(template) as name:
        database = Database(server.url(name, SERVICE))
        yield database
        database.close()
        assert server.open_transactions(name) == []


@pytest.fixture
def database(new_books: Callable[[], AbstractContextManager[Database]]) -> Iterator[Database]:
    with new_books() as made:
        yield made


@pytest.fixture(scope="session")
def at() -> Callable[..., int]:
    """Unix milliseconds of a time of day on 1 October 2026, UTC, or of another day of that month."""

    def when(time: str, day: int = 1) -> int:
        parts = [int(part) for part in time.split(":")]
        hour, minute, second = (*parts, 0, 0)[:3]
        return round(datetime(2026, 10, day, hour, minute, second, tzinfo=UTC).timestamp()) * 1000

    return when


@pytest.fixture(scope="session")
def allocation() -> Callable[..., AllocationFact]:
    def make(**fields: Any) -> AllocationFact:
        known: dict[str, Any] = {
            "cluster": ClusterCode("c"),
            "pod_uid": PodUid("pod-1"),
            "container": "main",
            "device_uuid": DeviceUuid("GPU-1"),
            "witness": "cluster",
            "node_uid": NodeUid("node-uid-1"),
            "node": "node-1",
            "namespace": "team",
            "pod": "train",
            "vendor": "NVIDIA",
            "model": "Tesla T4",
            "mem_mib": 4_000,
            "core_percent": 30,
            "container_kind": "app",
            "tenant_key": TenantKey("team"),
            "bound_at_ms": 0,
            "first_confirmed_at_ms": fields.get("bound_at_ms", 0),
            "confirmed_at_ms": fields.get("bound_at_ms", 0),
        }
        return AllocationFact(**(known | fields))

    return make


@pytest.fixture(scope="session")
def presence() -> Callable[..., PresenceFact]:
    def make(from_ms: int, to_ms: int, **fields: Any) -> PresenceFact:
        known: dict[str, Any] = {
            "cluster": ClusterCode("c"),
            "node_uid": NodeUid("node-uid-1"),
            "node": "node-1",
            "device_uuid": DeviceUuid("GPU-1"),
            "witness": "cluster",
            "state": "healthy",
            "model": "Tesla T4",
            "vendor": "NVIDIA",
            "registered_mib": 15_360,
            "slots": 10,
        }
        return PresenceFact(from_ms=from_ms, to_ms=to_ms, **(known | fields))

    return make


@pytest.fixture(scope="session")
def node_state() -> Callable[..., NodeStateFact]:
    def make(from_ms: int, to_ms: int, *, ready: bool, heartbeat_at_ms: int) -> NodeStateFact:
        return NodeStateFact(
            cluster=ClusterCode("c"),
            node_uid=NodeUid("node-uid-1"),
            node="node-1",
            from_ms=from_ms,
            to_ms=to_ms,
            ready=ready,
            heartbeat_at_ms=heartbeat_at_ms,
        )

    return make


@pytest.fixture(scope="session")
def slice_usage() -> Callable[..., SliceUsageFact]:
    def make(**fields: Any) -> SliceUsageFact:
        known: dict[str, Any] = {
            "cluster": ClusterCode("c"),
            "pod_uid": PodUid("pod-1"),
            "container": "main",
            "device_uuid": DeviceUuid("GPU-1"),
            "node_uid": NodeUid("node-uid-1"),
            "hour_ms": 0,
            "epoch": EpochId("e1"),
            "revision": 1,
            "from_ms": 0,
            "to_ms": 3_600_000,
            "covered_ms": 0,
            "unknown_ms": 0,
            "sm_ppm_ms": 0,
            "sm_down_ppm_ms": 0,
            "mem_used_mib_ms": 0,
            "mem_peak_mib": 0,
            "energy_active_mj": 0,
            "blocked_ms": 0,
            "over_limit_ms": 0,
            "source": "nvml",
        }
        return SliceUsageFact(**(known | fields))

    return make
