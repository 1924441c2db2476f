"""A database as a user has it: made by alembic, one for each test, copied from one that was migrated once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from accounting.store.database import Database
from accounting.store.migrate import upgrade


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


@pytest.fixture
def database(migrated_file: Path, tmp_path: Path) -> Iterator[Database]:
    path = tmp_path / "slicemeter.sqlite"
    shutil.copy(migrated_file, path)
    database = Database(f"sqlite:///{path}")
    yield database
    database.close()
