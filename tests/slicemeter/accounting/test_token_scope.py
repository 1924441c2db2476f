"""A tenant's token is for a subtree that can exist, and never opens nothing in silence."""

from __future__ import annotations

import json

import pytest

from slicemeter.accounting import main


@pytest.fixture
def database(books: str, capsys: pytest.CaptureFixture[str]) -> str:
    main(["account", "add", "acme", "--currency", "EUR", "--database", books])
    capsys.readouterr()
    return books


def _scope_of(database: str, tenant: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["token", "create", "--role", "tenant", "--tenant", tenant, "--database", database]) == 0
    capsys.readouterr()
    assert main(["token", "list", "--json", "--database", database]) == 0
    [line] = capsys.readouterr().out.splitlines()
    return str(json.loads(line)["scope"])


def test_a_path_may_be_named_before_its_first_fact(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _scope_of(database, "acme/team-a", capsys) == "acme/team-a"


def test_an_account_is_the_root_of_its_tenants(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _scope_of(database, "acme", capsys) == "acme"


@pytest.mark.parametrize(
    ("tenant", "way_out"), [("team-a", "ACCOUNT/team-a"), ("nosuch/team", "account list")]
)
def test_a_tenant_that_cannot_be_is_refused_with_the_way_out(
    database: str, tenant: str, way_out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "create", "--role", "tenant", "--tenant", tenant, "--database", database]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert tenant in line
    assert way_out in line
