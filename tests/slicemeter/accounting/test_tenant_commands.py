"""`tenant …` as a user types it: half a T4 for three hours at 3.00 EUR, 1.5 card-hours, 4.50."""

from __future__ import annotations

import json

import pytest

from tests.slicemeter.accounting.shell import Shell
from tests.slicemeter.accounting.test_report_commands import tell

CARD_HOUR = 3_600_000_000_000


@pytest.fixture
def rated(shell: Shell, books: str) -> Shell:
    for words in (
        ("account", "add", "acme", "--currency", "EUR", "--time-zone", "Europe/Berlin"),
        (
            "account",
            "add",
            "platform",
            "--kind",
            "platform",
            "--currency",
            "EUR",
            "--time-zone",
            "Europe/Berlin",
        ),
        ("cluster", "add", "a", "--account", "acme", "--platform-account", "platform"),
        ("price", "set", "--price", "3.00", "--currency", "EUR", "--from", "2026-01-01"),
    ):
        assert shell(*words)[0] == 0, words
    tell(books)
    assert shell("rate")[0] == 0
    return shell


def ok(shell: Shell, *words: str) -> str:
    code, out, err = shell(*words)
    assert (code, err) == (0, ""), err
    return out


def test_the_list_is_a_tree_that_explains_what_nobody_mapped(rated: Shell) -> None:
    ok(rated, "tenant", "add", "acme/vision", "--kind", "team")
    out = ok(rated, "tenant", "list")
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[1].split() == ["acme", "organisation", "acme"]
    assert lines[2].startswith("  team ")
    assert 'UNMAPPED: tenant key "team" matches no rule for good' in lines[2]
    assert lines[3].startswith("  vision ")
    assert "1 unmapped" in out
    assert "tenant rule add --priority 100 --cluster … --tenant-key 'team' --tenant acme/… --from …" in out
    # Saying that it may stay takes it off the list.
    ok(rated, "tenant", "add", "team", "--account", "acme", "--kind", "project")
    assert "UNMAPPED" not in ok(rated, "tenant", "list")


def test_a_rule_is_previewed_saved_rated_ended_and_withdrawn(rated: Shell) -> None:
    ok(rated, "tenant", "add", "acme/vision", "--kind", "team")
    rule = ("--priority", "10", "--tenant", "acme/vision", "--tenant-key", "te*", "--from", "2026-10-01")
    out = ok(rated, "tenant", "rule", "preview", *rule)
    table = [line.split() for line in out.splitlines()]
    assert ["acme/team", "acme", "2026-10", "1.5000", "0.0000", "4.50", "0.00", "EUR"] in table
    assert ["acme/vision", "acme", "2026-10", "0.0000", "1.5000", "0.00", "4.50", "EUR"] in table
    assert ["2026-10", "acme/team", "acme/vision", "1", "1.5000"] in table
    told = rated.json("tenant", "rule", "add", *rule, "--dry-run")
    assert told["saved"] is False
    assert ok(rated, "tenant", "rule", "list").splitlines()[1:] == []

    assert "1 cards are due" in ok(rated, "tenant", "rule", "add", *rule)
    ok(rated, "rate")
    assert rated.json("statement", "2026-10", "--tenant", "acme/vision")["total"] == "4.50"
    assert "UNMAPPED" not in ok(rated, "tenant", "list")
    listed = json.loads(ok(rated, "tenant", "rule", "list", "--json"))
    # The day begins at midnight in Berlin.
    assert (listed["from"], listed["tenant"], listed["matches"]) == (
        "2026-09-30T22:00:00Z",
        "acme/vision",
        True,
    )

    # 14:00 in Berlin is 12:00 UTC, when it is over; 13:00 leaves it two of three hours.
    ok(rated, "tenant", "rule", "end", "10", "--at", "2026-10-01T13:00:00+02:00")
    ok(rated, "rate")
    assert rated.json("statement", "2026-10", "--tenant", "acme/vision")["total"] == "3.00"
    (ended,) = [json.loads(line) for line in ok(rated, "tenant", "rule", "list", "--json").splitlines()]
    ok(rated, "tenant", "rule", "withdraw", str(ended["rule"]), "--reason", "no such team")
    ok(rated, "rate")
    assert rated.json("statement", "2026-10", "--tenant", "acme/vision")["total"] == "0.00"
    assert rated.json("statement", "2026-10", "--tenant", "acme/team")["total"] == "4.50"
    assert "no such team" in ok(rated, "tenant", "rule", "list", "--all")


def test_a_tenant_is_moved_renamed_and_put_back_by_command(rated: Shell) -> None:
    ok(rated, "tenant", "add", "acme/vision", "--kind", "team")
    moved = ("tenant", "move", "acme/team", "--below", "acme/vision", "--from", "2026-10-01T10:00:00Z")
    told = rated.json(*moved, "--dry-run")
    changes = told["changes"]
    assert isinstance(changes, list)
    assert [(one["tenant"], one["difference"]["amount"]) for one in changes] == [
        ("acme/team", "-3"),
        ("acme/vision/team", "3"),
    ]
    ok(rated, *moved)
    ok(rated, "tenant", "rename", "acme/vision/team", "eyes", "--from", "2026-10-01T11:00:00Z")
    ok(rated, "rate")
    totals = {
        path: rated.json("statement", "2026-10", "--tenant", path)["total"]
        for path in ("acme/team", "acme/vision/team", "acme/vision/eyes", "acme/vision")
    }
    assert totals == {
        "acme/team": "1.50", "acme/vision/team": "1.50", "acme/vision/eyes": "1.50", "acme/vision": "3.00",
    }  # fmt: skip
    rows = [line.split()[:3] for line in ok(rated, "tenant", "moves").splitlines()[1:]]
    assert ["acme/vision/team", "acme/vision/eyes"] in [row[1:] for row in rows]
    for row in rows:
        code, _, _ = rated("tenant", "withdraw-move", row[0], "--reason", "never mind")
        assert code in {0, 2}
    ok(rated, "rate")
    assert rated.json("statement", "2026-10", "--tenant", "acme/team")["total"] == "4.50"


@pytest.mark.parametrize(
    ("words", "way_out"),
    [
        (("tenant", "add", "nobody/x", "--kind", "team"), "account list"),
        (("tenant", "add", "acme/a/b", "--kind", "project"), "tenant add acme/a --kind team"),
        (("tenant", "rule", "end", "99", "--at", "2026-10-01"), "tenant rule list"),
        (("tenant", "rule", "withdraw", "99", "--reason", "x"), "tenant rule list"),
        (("tenant", "withdraw-move", "99", "--reason", "x"), "tenant moves"),
        (("tenant", "move", "acme/team", "--below", "nobody", "--from", "2026-10-01"), "tenant list"),
        (("tenant", "rename", "acme", "x", "--from", "2026-10-01"), "root of its account"),
        (
            ("tenant", "rule", "add", "--priority", "1", "--tenant", "team", "--from", "2026-10-01"),
            "name at least a cluster",
        ),
        (
            (
                "tenant",
                "rule",
                "add",
                "--priority",
                "1",
                "--tenant",
                "team",
                "--label",
                "app",
                "--from",
                "2026-10-01",
            ),
            "KEY=GLOB",
        ),
        (
            (
                "tenant",
                "rule",
                "add",
                "--priority",
                "1",
                "--tenant",
                "team",
                "--cluster",
                "a",
                "--from",
                "soon",
            ),
            "like 2026-10-01",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_with_the_way_out(
    rated: Shell, words: tuple[str, ...], way_out: str
) -> None:
    code, out, err = rated(*words)
    assert (code, out) == (2, "")
    assert way_out in err
    assert err.count("\n") == 1


def test_a_preview_of_empty_books_says_that_nothing_was_rated(shell: Shell) -> None:
    for words in (
        ("account", "add", "acme", "--currency", "EUR", "--time-zone", "UTC"),
        ("tenant", "add", "acme", "--kind", "organisation"),
    ):
        ok(shell, *words)
    rule = ("--priority", "1", "--tenant", "acme", "--cluster", "a", "--from", "2026-10-01")
    assert "nothing was rated yet" in ok(shell, "tenant", "rule", "preview", *rule)
