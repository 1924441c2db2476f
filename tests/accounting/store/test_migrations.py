from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import create_engine
from sqlalchemy.exc import DatabaseError

from accounting.store.database import Database
from accounting.store.errors import StoreError
from accounting.store.migrate import (
    alembic_config,
    current_revision,
    newest_revision,
    require_current,
    upgrade,
)
from accounting.store.models import Base


def schema(path: Path) -> dict[str, str]:
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        rows = connection.exec_driver_sql(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'alembic%'"
        ).all()
    engine.dispose()
    return {name: re.sub(r"\s+", " ", sql).strip() for name, sql in rows}


def parts(sql: str) -> list[str]:
    """Columns and constraints of a CREATE statement, in any order."""
    # A table that a migration rebuilt has its name in quotes.
    head, _, body = sql.replace('"', "").partition("(")
    return sorted([head.strip(), *re.split(r", (?![^(]*\))", body.strip().removesuffix(")").strip())])


def test_upgrade_downgrade_upgrade_ends_where_it_began(tmp_path: Path) -> None:
    path = tmp_path / "books.sqlite"
    database = Database(f"sqlite:///{path}")
    upgrade(database)
    first = schema(path)
    command.downgrade(alembic_config(database), "base")
    assert schema(path) == {}
    assert current_revision(database) is None
    upgrade(database)
    again = schema(path)
    assert {name: parts(sql) for name, sql in again.items()} == {
        name: parts(sql) for name, sql in first.items()
    }
    database.close()


def test_the_migrations_make_what_the_models_say(database: Database) -> None:
    command.check(alembic_config(database))


def test_the_migrations_make_the_models_checks_too(migrated_file: Path, tmp_path: Path) -> None:
    # `alembic check` compares no check constraints, so the statements themselves are compared.
    engine = create_engine(f"sqlite:///{tmp_path / 'models.sqlite'}")
    Base.metadata.create_all(engine)
    engine.dispose()
    migrated, modelled = schema(migrated_file), schema(tmp_path / "models.sqlite")
    triggers = {name for name, sql in migrated.items() if sql.startswith("CREATE TRIGGER")}
    assert set(migrated) - triggers == set(modelled)
    for name, sql in modelled.items():
        assert parts(migrated[name]) == parts(sql), name


def test_upgrading_twice_changes_nothing(database: Database) -> None:
    upgrade(database)
    assert current_revision(database) == newest_revision() is not None


def test_an_empty_database_is_refused_with_the_command_that_mends_it(tmp_path: Path) -> None:
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(StoreError, match="has no tables yet; run: slicemeter accounting migrate"):
        require_current(Database(f"sqlite:///{tmp_path / 'empty.sqlite'}"))


def test_a_mistyped_path_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "boks.sqlite"
    with pytest.raises(
        StoreError, match=r"there is no file .*boks\.sqlite; .* slicemeter accounting migrate"
    ):
        require_current(Database(f"sqlite:///{path}"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear Sir or Madam, " * 100)
    database = Database(f"sqlite:///{tmp_path / 'letter.txt'}")
    for use in (upgrade, current_revision):
        with pytest.raises(StoreError, match=r"letter.txt.* cannot be used: file is not a database"):
            use(database)


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "sqlite://",
        "sqlite:///:memory:",
        "mysql://host/db",
        "postgresql://host",
        "postgresql://h:x/y",
    ],
)
def test_a_database_that_is_not_supported_is_refused_by_name(url: str) -> None:
    with pytest.raises(StoreError, match=r"write for example sqlite:///slicemeter\.sqlite"):
        Database(url)


def test_the_audit_log_takes_no_change_and_no_deletion(database: Database) -> None:
    with database.writing() as session:
        session.connection().exec_driver_sql(
            "INSERT INTO audit_log (at_ms, actor, action, object, after) VALUES (1, 'a', 'b', 'c', '{}')"
        )
    for statement in ("UPDATE audit_log SET actor = 'x'", "DELETE FROM audit_log"):
        with (
            pytest.raises(DatabaseError, match=r"audit_log is insert-only|permission denied"),
            database.writing() as session,
        ):
            session.connection().exec_driver_sql(statement)


def test_plain_alembic_works_from_a_folder_that_holds_the_ini(tmp_path: Path) -> None:
    root = Path(str(files("migrations"))).parent
    shutil.copy(root / "alembic.ini", tmp_path / "alembic.ini")
    alembic = [sys.executable, "-m", "alembic", "upgrade", "head"]
    environment = {"PYTHONPATH": str(root), "PATH": ""}
    done = subprocess.run(alembic, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "billing_account" in schema(tmp_path / "slicemeter.sqlite")


def test_alembic_takes_the_database_from_the_environment(tmp_path: Path) -> None:
    root = Path(str(files("migrations"))).parent
    alembic = [sys.executable, "-m", "alembic", "-c", str(root / "alembic.ini"), "upgrade", "head"]
    environment = {
        "PYTHONPATH": str(root),
        "SLICEMETER_DATABASE": f"sqlite:///{tmp_path / 'other.sqlite'}",
        "PATH": "",
    }
    subprocess.run(alembic, cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert "billing_account" in schema(tmp_path / "other.sqlite")
