"""Who scrapes regularly is expected, and nobody else."""

from __future__ import annotations

import pytest

from exporter.exposition.rhythm import MOST_SCRAPERS, Rhythm


def _asked(*times_s: float) -> Rhythm[str]:
    rhythm: Rhythm[str] = Rhythm()
    for at_s in times_s:
        rhythm.note("a", at_s)
    return rhythm


@pytest.mark.parametrize(
    ("from_s", "until_s", "is_due"),
    [
        (115, 116, True),  # 100, and 15 s after 85
        (114, 115, True),
        (115.5, 116.5, True),  # a little late
        (113, 114, False),
        (116, 117, False),
        (130, 131, False),  # it did not come: it is not waited for
    ],
)
def test_a_scraper_is_expected_after_the_time_it_last_let_pass(
    from_s: float, until_s: float, is_due: bool
) -> None:
    assert _asked(70, 85, 100).due(from_s, until_s) == (["a"] if is_due else [])


def test_who_asked_once_or_seldom_is_not_expected() -> None:
    assert _asked(100).due(0, 1_000) == []
    assert _asked(100, 500).due(0, 1_000) == []
    assert _asked(100, 100).due(0, 1_000) == []


def test_each_scraper_has_a_rhythm_of_its_own() -> None:
    rhythm = _asked(85, 100)
    for at_s in (20, 50, 80):
        rhythm.note("b", at_s)
    assert rhythm.due(110, 111) == ["b"]
    assert rhythm.due(115, 116) == ["a"]
    assert sorted(rhythm.due(109, 116)) == ["a", "b"]


def test_what_is_remembered_is_bounded_and_the_latest_stay() -> None:
    rhythm: Rhythm[int] = Rhythm()
    for at_s in (0, 10):
        for number in range(MOST_SCRAPERS + 3):
            rhythm.note(number, at_s)
    assert len(rhythm._habits) == MOST_SCRAPERS
    rhythm.note(MOST_SCRAPERS, 20)
    assert rhythm.due(30, 31) == [MOST_SCRAPERS]
