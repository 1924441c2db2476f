"""What users are told about exports is what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from accounting.exports.focus_charges import OWN_COLUMNS
from accounting.exports.ledger_rows import COLUMNS
from accounting.exports.making import FORMATS
from accounting.focus.model import DATASETS

PAGE = (Path(__file__).parents[3] / "docs" / "exports.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [column.name for column in (*COLUMNS, *OWN_COLUMNS)])
def test_every_column_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("name", [*FORMATS, *DATASETS])
def test_every_format_and_dataset_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE
