"""The pages that say which test proves which behaviour: no number is missing, and every test is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PAGES = {"behaviours-ledger.md": 54, "behaviours-exporter.md": 51}
"""How many numbered behaviours each page has, where it is there."""

_NUMBERED = re.compile(r"^\| (\d+) \|", re.MULTILINE)
_ROW = re.compile(r"^\| .*\|$", re.MULTILINE)
_HEADING = re.compile(r"^\| \| [A-Z][a-z]+ \| Tests \|$")
_TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")

pages = pytest.mark.parametrize("page", [name for name in PAGES if (ROOT / "docs" / name).exists()])


@pages
def test_every_behaviour_has_its_row(page: str) -> None:
    numbers = [int(number) for number in _NUMBERED.findall((ROOT / "docs" / page).read_text())]
    assert numbers == list(range(1, PAGES[page] + 1))


@pages
def test_every_row_names_a_test(page: str) -> None:
    rows = _ROW.findall((ROOT / "docs" / page).read_text())
    rows = [row for row in rows if not _HEADING.match(row)]
    assert len(rows) >= PAGES[page]
    assert [row for row in rows if not _TEST.search(row)] == []


@pages
def test_every_test_that_a_behaviour_names_is_there(page: str) -> None:
    named = _TEST.findall((ROOT / "docs" / page).read_text())
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).exists()
        or not re.search(rf"^(async )?def {test}\(", (ROOT / path).read_text(), re.MULTILINE)
    ]
    assert missing == []
