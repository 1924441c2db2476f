"""Budgets and forecasts as a user types and sees them."""

from __future__ import annotations

import json

from tests.slicemeter.accounting.shell import Shell

SET = ("budget", "set", "--tenant", "acme", "--from", "2026-10")


def _books(shell: Shell) -> None:
    assert shell("account", "add", "acme", "--currency", "EUR", "--time-zone", "Europe/Berlin")[0] == 0
    assert shell("tenant", "add", "acme/research", "--kind", "team")[0] == 0


def test_a_budget_is_set_and_listed_with_its_versions(shell: Shell) -> None:
    _books(shell)
    code, out, err = shell(*SET, "--amount", "5000", "--threshold", "90", "--threshold", "50", "--json")
    assert (code, err) == (0, "")
    made = json.loads(out)
    assert (made["tenant"], made["amount"], made["currency"]) == ("acme", "5000", "EUR")
    assert made["thresholds"] == [50, 90]
    assert made["from"] == "2026-09-30T22:00:00Z", "midnight in Berlin"
    code, out, _ = shell("budget", "versions")
    assert code == 0
    assert out.splitlines()[0].split() == [
        "BUDGET", "TENANT", "AMOUNT", "CURRENCY", "FROM", "TO", "SUPERSEDED", "REASON",
    ]  # fmt: skip
    assert out.splitlines()[1].split()[1:4] == ["acme", "5000", "EUR"]


def test_a_month_without_a_budget_says_how_to_set_one(shell: Shell) -> None:
    _books(shell)
    code, out, _ = shell("budget", "list", "--period", "2026-10")
    assert code == 0
    assert "slicemeter accounting budget set" in out
    assert shell("forecast", "2026-10") == (0, "nothing has a price in that month yet\n", "")


def test_what_is_no_amount_no_month_or_no_tenant_is_refused_with_the_way_out(shell: Shell) -> None:
    _books(shell)
    for amount in ("-1", "1_000", "NaN", "1e3000", "a lot"):
        code, _, err = shell(*SET, f"--amount={amount}")
        assert code == 2
        assert amount in err
        assert len(err.splitlines()) == 1
    assert "2026-13" in shell("budget", "list", "--period", "2026-13")[2]
    assert (
        "tenant list" in shell("budget", "set", "--tenant", "nobody", "--from", "2026-10", "--amount", "1")[2]
    )
    code, _, err = shell(*SET, "--amount", "1", "--to", "2026-09")
    assert (code, "cannot end" in err) == (2, True)
