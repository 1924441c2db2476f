"""How a check-up is shown."""

from __future__ import annotations

import json

from exporter.checkup.finding import finding, note, ok
from exporter.checkup.report import as_json, as_table, has_finding

LINES = [ok("clock", "right"), note("nvml", "no library"), finding("pods", "refused: \x1b[2J", "allow it")]


def test_a_note_is_no_finding() -> None:
    assert not has_finding(LINES[:2])
    assert has_finding(LINES)


def test_the_object_has_one_entry_a_check() -> None:
    assert json.loads(as_json("node", LINES)) == {
        "role": "node",
        "ok": False,
        "checks": [
            {"check": "clock", "ok": True, "verdict": "ok", "detail": "right", "way_out": None},
            {"check": "nvml", "ok": True, "verdict": "note", "detail": "no library", "way_out": None},
            {
                "check": "pods", "ok": False, "verdict": "finding", "detail": "refused: \x1b[2J",
                "way_out": "allow it",
            },
        ],
    }  # fmt: skip


def test_the_table_has_the_way_out_below_and_lets_no_escape_through() -> None:
    assert as_table(LINES).splitlines() == [
        "clock  ok    right",
        "nvml   note  no library",
        "pods   WRONG refused: \\x1b[2J",
        "             → allow it",
    ]
