"""Books for the commands: migrated once, copied for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slicemeter.accounting import main
from tests.slicemeter.accounting.shell import Shell


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "books.sqlite"
    assert main(["migrate", "--database", f"sqlite:///{path}"]) == 0
    assert [each.name for each in path.parent.iterdir()] == [path.name], "what a copy would miss"
    return path


@pytest.fixture
def books(migrated_file: Path, tmp_path: Path) -> str:
    """The URL of a database without an account."""
    path = tmp_path / "books.sqlite"
    shutil.copy(migrated_file, path)
    return f"sqlite:///{path}"


@pytest.fixture
def shell(books: str, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(books, capsys)
