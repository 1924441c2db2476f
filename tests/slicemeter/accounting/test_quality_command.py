"""`slicemeter accounting quality` as an operator types it."""

from __future__ import annotations

from accounting.facts.source import Source, note_source
from accounting.store.database import Database
from slicemeter.accounting.options import now_ms
from tests.slicemeter.accounting.shell import Shell


def note(url: str, offset_ms: int) -> None:
    database = Database(url)
    source = Source("node", "e1", "0.1.0", "uid-1", "node-1")
    with database.writing() as session:
        note_source(session, "a", source, now_ms=now_ms(), clock_offset_ms=offset_ms, sent=2, stored=1)
    database.close()


def test_quality_shows_every_part_also_when_there_is_nothing(shell: Shell) -> None:
    assert shell("quality") == (0, "exporters: none\ncoverage: none\ngaps: none\nquarantine: none\n", "")


def test_an_exporter_whose_clock_is_far_off_is_a_finding(shell: Shell) -> None:
    note(shell.url, 100)
    code, out, _ = shell("quality")
    assert code == 0
    assert "CLOCK_OFFSET_MS  CLOCK" in out
    note(shell.url, 45_000)
    code, out, _ = shell("quality")
    assert code == 1
    assert "45000            far_off" in out


def test_quality_as_json_is_one_document(shell: Shell) -> None:
    note(shell.url, 100)
    sources = shell.json("quality")["sources"]
    assert isinstance(sources, list)
    assert [(one["node"], one["clock_offset_ms"], one["clock"]) for one in sources] == [
        ("node-1", 100, "good")
    ]


def test_days_out_of_range_are_refused_in_one_line(shell: Shell) -> None:
    code, out, err = shell("quality", "--days", "0")
    assert (code, out) == (2, "")
    assert "from 1 to 400" in err
