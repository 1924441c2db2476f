"""The commands that price, rate, verify and report, as a user sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.store.database import Database
from contract.facts import AllocationFact, Fact, PresenceFact, canonical_bytes
from contract.ids import ClusterCode, DeviceUuid, NodeUid, PodUid, TenantKey
from tests.slicemeter.accounting.shell import Shell

HOUR = 3_600_000
CARD_HOUR = 3_600_000_000_000
START = 1_790_845_200_000
"""2026-10-01T09:00Z."""


def tell(url: str, *, with_presence: bool = True) -> None:
    """Half a T4 for three hours of 1 October, in cluster a."""
    end = START + 3 * HOUR
    held = AllocationFact(
        cluster=ClusterCode("a"),
        pod_uid=PodUid("uid"),
        container="main",
        device_uuid=DeviceUuid("GPU-1"),
        witness="cluster",
        node_uid=NodeUid("node-uid"),
        node="node-1",
        namespace="team",
        pod="train",
        vendor="NVIDIA",
        model="NVIDIA-Tesla T4",
        mem_mib=0,
        core_percent=50,
        container_kind="app",
        tenant_key=TenantKey("team"),
        bound_at_ms=START,
        started_at_ms=START,
        first_confirmed_at_ms=START,
        confirmed_at_ms=end,
        ended_at_ms=end,
        end_kind="observed",
    )
    present = PresenceFact(
        cluster=ClusterCode("a"),
        node_uid=NodeUid("node-uid"),
        node="node-1",
        device_uuid=DeviceUuid("GPU-1"),
        witness="cluster",
        from_ms=START,
        to_ms=end,
        state="healthy",
        model="NVIDIA-Tesla T4",
        vendor="NVIDIA",
        registered_mib=15_360,
        slots=10,
    )
    facts: list[Fact] = [held, present] if with_presence else [held]
    lines = read_lines(b"\n".join(map(canonical_bytes, facts)), Scope("a"), now_ms=end)
    database = Database(url)
    with database.writing() as session:
        assert not ingest(session, lines, cluster="a", now_ms=end).rejected
    database.close()


@pytest.fixture
def shell(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    # Whatever day it is: the facts lie in the past.
    monkeypatch.setattr("slicemeter.accounting.rate.now_ms", lambda: START + 30 * 24 * HOUR)
    shell("account", "add", "acme", "--currency", "EUR", "--time-zone", "Europe/Berlin")
    shell("account", "add", "platform", "--kind", "platform", "--currency", "EUR")
    shell("cluster", "add", "a", "--account", "acme", "--platform-account", "platform")
    return shell


@pytest.fixture
def rated(shell: Shell) -> Shell:
    tell(shell.url)
    assert (
        shell(
            "price",
            "set",
            "--model",
            "Tesla T4",
            "--price",
            "0.40",
            "--currency",
            "EUR",
            "--from",
            "2026-01-01",
        )[0]
        == 0
    )
    assert shell("rate")[0] == 0
    return shell


def test_rate_says_what_it_did(shell: Shell) -> None:
    tell(shell.url)
    rated = shell.json("rate")
    assert rated["lines"] == 2
    assert rated["unknown_devices"] == []


def test_rate_exits_1_and_names_devices_of_unknown_size(shell: Shell) -> None:
    tell(shell.url, with_presence=False)
    code, out, _ = shell("rate")
    assert code == 1
    assert "a/node-uid/GPU-1" in out


@pytest.mark.parametrize("form", ["table", "csv", "json", "html"])
def test_statement_in_every_form(rated: Shell, form: str, tmp_path: Path) -> None:
    code, out, _ = rated("statement", "2026-10", "--tenant", "team", "--format", form)
    assert code == 0
    # 3 h × 0.50 × 0.40
    assert "0.60" in out
    path = tmp_path / "statement"
    assert rated("statement", "2026-10", "--tenant", "acme/team", "--format", form, "-o", str(path))[0] == 0
    assert "0.60" in path.read_text(encoding="utf-8")


def test_usage_cost_and_capacity_close(rated: Shell) -> None:
    window = ("--from", "2026-10-01", "--to", "2026-10-02T00:00:00+02:00")
    usage = rated.json("usage", *window)
    assert usage["totals"]["charged_ppm_ms"] == CARD_HOUR * 3 // 2  # type: ignore[index]
    capacity = rated.json("capacity", *window)
    assert capacity["totals"]["present_ppm_ms"] == 3 * CARD_HOUR  # type: ignore[index]
    costs = rated.json("cost", "2026-10", "--by", "tenant")
    assert [(row["tenant"], row["shown"]) for row in costs["rows"]] == [  # type: ignore[attr-defined]
        ("acme/team", "0.60"),
        ("platform/idle", "0.60"),
    ]
    assert "acme/team" in rated("usage", *window)[1]
    assert "present 3.0000 = charged 1.5000 + idle 1.5000 + down 0.0000" in rated("usage", *window)[1]
    assert rated("capacity", *window)[1].splitlines()[-1].split() == [
        "total",
        "3.0000",
        "1.5000",
        "1.5000",
        "0.0000",
    ]
    total = rated("cost", "2026-10", "--by", "model")[1].splitlines()[-1].split()
    assert total == ["total", "1.5000", "0.0000", "1.5000", "1.5000", "1.20", "EUR"]


def test_verify_exits_0_when_the_month_holds_and_1_with_the_finding_named(rated: Shell) -> None:
    code, out, _ = rated("verify", "2026-10")
    assert (code, "2026-10 holds" in out) == (0, True)
    database = Database(rated.url)
    with database.writing() as session:
        session.connection().exec_driver_sql("UPDATE ledger_line SET amount = '0.61' WHERE kind = 'usage'")
    database.close()
    code, out, _ = rated("verify", "2026-10")
    assert code == 1
    assert "failed line_amount" in out
    assert "does not hold" in out
    assert rated("verify", "2026-10", "--json")[0] == 1


def test_tenants_and_prices_are_listed(rated: Shell) -> None:
    paths = [json.loads(line)["path"] for line in rated("tenant", "list", "--json")[1].splitlines()]
    assert paths == ["acme", "acme/team", "platform/idle"]
    row = rated("tenant", "list")[1].splitlines()[2]
    assert row.split()[:3] == ["team", "leaf", "acme"]
    assert 'UNMAPPED: tenant key "team"' in row
    price = rated.json("price", "list")
    assert (price["model"], price["unit_price"], price["from"]) == ("Tesla T4", "0.4", "2026-01-01T00:00:00Z")
    assert "Tesla T4" in rated("price", "list")[1]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("statement", "2026-13", "--tenant", "team"), "like 2026-10"),
        (("statement", "2026-10", "--tenant", "nobody"), "tenant list"),
        (("statement", "2026-10", "--tenant", "team", "-o", "/nowhere/at/all"), "cannot write"),
        (("statement", "2026-10"), "--tenant"),
        (("verify", "October"), "like 2026-10"),
        (("usage", "--from", "yesterday"), "like 2026-10-01"),
        (("usage", "--from", "2026-10-02", "--to", "2026-10-01"), "swap"),
        (("cost", "2026-10", "--by", "colour"), "there are organisation, team"),
        (("price", "set", "--price", "x", "--currency", "EUR", "--from", "2026-10-01"), "no number"),
        (("price", "set", "--price", "1", "--currency", "€", "--from", "2026-10-01"), "ISO 4217"),
        (("rate", "--grace-seconds", "0"), "grace"),
    ],
)
def test_what_a_user_got_wrong_is_one_line_and_2(rated: Shell, words: tuple[str, ...], part: str) -> None:
    code, out, err = rated(*words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert part in err


def test_policies_are_set_superseded_with_a_reason_and_listed(rated: Shell) -> None:
    assert rated.json("policy", "set", "share", "whole_card", "--from", "2026-10-01")["value"] == "whole_card"
    code, _, err = rated("policy", "set", "share", "memory", "--from", "2026-10-01")
    assert code == 2
    assert "to supersede it say why with --reason" in err
    code, out, _ = rated("policy", "set", "share", "memory", "--from", "2026-10-01", "--reason", "a slip")
    assert (code, "memory" in out) == (0, True)
    _, live, _ = rated("policy", "list")
    _, everything, _ = rated("policy", "list", "--all")
    assert ("whole_card" in live, "whole_card" in everything) == (False, True)
    code, _, err = rated("policy", "set", "idle", "memory", "--from", "2026-10-01")
    assert (code, err.count("\n")) == (2, 1)


def test_a_discount_is_set_and_shown_on_the_statement(rated: Shell) -> None:
    words = ("--tenant", "acme/team", "--percent", "25", "--from", "2026-10-01")
    assert rated.json("price", "discount", *words)["percent"] == "25"
    assert rated("rate")[0] == 0
    # 1.5 card-hours at 0.40, less a quarter.
    assert rated.json("statement", "2026-10", "--tenant", "team")["total"] == "0.45"
    _, out, _ = rated("statement", "2026-10", "--tenant", "team")
    assert "amounts are after 25 % discount" in out
    assert rated.json("price", "discounts")["tenant"] == "acme/team"


def test_explain_shows_steps_by_line_and_by_day(rated: Shell) -> None:
    day = rated.json("explain", "--tenant", "team", "--day", "2026-10-01")
    assert day["reconciliation"] == {
        "steps": 3, "own_quantity": CARD_HOUR * 3 // 2, "quantity": CARD_HOUR * 3 // 2, "adds_up": True,
    }  # fmt: skip
    code, out, _ = rated("explain", str(day["line"]))
    assert code == 0
    assert "1.5000 card-hours × 0.4 EUR = 0.6 EUR" in out
    assert "3 steps: 1.5000, which adds up to the line" in out
    for wrong in (("explain",), ("explain", "1", "--tenant", "team"), ("explain", "--day", "2026-10-01")):
        code, _, err = rated(*wrong)
        assert (code, err.count("\n")) == (2, 1)


def test_quote_says_what_a_slice_costs_at_most(rated: Shell) -> None:
    words = (
        "--model",
        "Tesla T4",
        "--memory",
        "3840",
        "--cores",
        "30",
        "--hours",
        "10",
        "--at",
        "2026-10-02",
    )
    quoted = rated.json("quote", *words)
    # max(3840 / 15360, 0.30) × 10 h at 0.40.
    assert (quoted["share"], quoted["at_most_card_hours"], quoted["at_most"]) == ("0.3", "3.000000", "1.20")
    _, out, _ = rated("quote", *words)
    assert "at most 1.20 EUR, at 0.4 a card-hour, without energy" in out
    code, _, err = rated("quote", "--model", "Unheard", "--memory", "1", "--hours", "1")
    assert (code, "no card of model" in err) == (2, True)


def test_a_model_that_has_no_price_is_named_where_months_are_rated(shell: Shell) -> None:
    tell(shell.url)
    code, out, _ = shell("rate")
    assert (code, 'no price of "Tesla T4" in EUR holds now' in out) == (0, True)
    assert shell.json("rate")["unpriced"] == [{"model": "Tesla T4", "currency": "EUR"}]
    assert shell("price", "set", "--price", "1", "--currency", "EUR", "--from", "2026-01-01")[0] == 0
    assert shell.json("rate")["unpriced"] == []


def test_a_price_of_a_model_that_nobody_reported_is_taken_and_noted(rated: Shell) -> None:
    words = ("--price", "1", "--currency", "EUR", "--from", "2026-01-01")
    code, _, err = rated("price", "set", "--model", "Tesla T44", *words)
    assert (code, err) == (0, 'note: no card of model "Tesla T44" was reported; there are Tesla T4\n')


def test_no_quote_of_more_memory_than_a_card_has(rated: Shell) -> None:
    code, _, err = rated("quote", "--model", "Tesla T4", "--memory", "99999", "--hours", "1")
    assert (code, 'no card of model "Tesla T4" has 99999 MiB; the largest has 15360' in err) == (2, True)
    words = ("--memory", "2000", "--card-memory", "1000", "--hours", "1")
    code, _, err = rated("quote", "--model", "Tesla T4", *words)
    assert (code, "2000 MiB of a card that has 1000 MiB" in err) == (2, True)


def test_a_statement_replaces_no_file_unasked(rated: Shell, tmp_path: Path) -> None:
    path = tmp_path / "statement.csv"
    path.write_text("mine")
    words = ("statement", "2026-10", "--tenant", "acme/team", "--format", "csv", "-o", str(path))
    code, _, err = rated(*words)
    assert (code, "exists; replace it with --force" in err, path.read_text()) == (2, True, "mine")
    assert rated(*words, "--force")[0] == 0
    assert "0.60" in path.read_text()


def test_a_token_of_a_tenant_that_nobody_knows_is_noted(rated: Shell) -> None:
    assert rated("token", "create", "--role", "tenant", "--tenant", "acme/team")[2] == ""
    code, _, err = rated("token", "create", "--role", "tenant", "--tenant", "acme/taem")
    assert (code, 'no tenant "acme/taem" has reported yet' in err) == (0, True)
