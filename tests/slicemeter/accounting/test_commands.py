from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slicemeter.accounting import COMMANDS, main, usage
from tests.accounting.access.projected import Issuer
from tests.slicemeter.accounting.shell import Shell


@pytest.fixture
def registered(shell: Shell) -> Shell:
    """With a paying account, the operator's, and a cluster."""
    shell("account", "add", "acme", "--currency", "EUR", "--time-zone", "Europe/Berlin")
    shell("account", "add", "platform", "--kind", "platform")
    assert shell("cluster", "add", "a", "--account", "acme", "--platform-account", "platform")[0] == 0
    return shell


def test_help_lists_every_command() -> None:
    assert all(f"  {name} " in usage() for name in COMMANDS)


def test_an_unknown_command_is_named_with_those_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pay"]) == 2
    assert 'no command "pay"; there are: serve, migrate' in capsys.readouterr().err


def test_migrate_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(f"sqlite:///{tmp_path / 'books.sqlite'}", capsys)
    assert re.search(r"was made: schema \d{4}\n$", shell("migrate")[1])
    assert re.search(r"is up to date: schema \d{4}\n$", shell("migrate")[1])


def test_a_command_on_no_database_says_how_to_make_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = Shell(f"sqlite:///{tmp_path / 'none.sqlite'}", capsys)("cluster", "list")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "make it: slicemeter accounting migrate" in err


def test_accounts_and_clusters_are_registered_and_listed(registered: Shell) -> None:
    accounts = [json.loads(line) for line in registered("account", "list", "--json")[1].splitlines()]
    assert accounts == [
        {
            "code": "acme",
            "kind": "tenant",
            "currency": "EUR",
            "time_zone": "Europe/Berlin",
            "grace_days": 3,
            "issuer": "SM",
        },
        {
            "code": "platform",
            "kind": "platform",
            "currency": None,
            "time_zone": "UTC",
            "grace_days": 3,
            "issuer": "SM",
        },
    ]
    code, out, _ = registered("cluster", "list")
    assert code == 0
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["a", "acme", "platform", "not", "bound", "yet", "none:", "static", "tokens"]
    ]


def test_an_accounts_issuer_is_named_and_shown(registered: Shell) -> None:
    code, out, _ = registered("account", "issuer", "acme", "ACME-DE")
    assert (code, out.splitlines()[1].split()) == (
        0, ["acme", "tenant", "EUR", "Europe/Berlin", "3", "ACME-DE"]
    )  # fmt: skip


def test_verify_of_books_without_a_line_says_that_there_was_nothing_to_check(registered: Shell) -> None:
    for option in ((), ("--json",)):
        code, out, _ = registered("verify", "2026-10", *option)
        assert code == 0
        assert "nothing to check" in out or json.loads(out)["empty"] is True
        assert "2026-10 holds" not in out


REFUSED = [
    (("account", "issuer", "acme", "acme 1"), 'issuer "acme 1": up to 20 capital letters'),
    (("account", "issuer", "nobody", "ACME"), 'no account "nobody"'),
    (("account", "add", "acme"), 'account "acme" exists already'),
    (("account", "add", "Acme"), 'account "Acme": up to 63 lower-case letters'),
    (("account", "add", "x", "--currency", "euro"), 'currency "euro": three capital letters'),
    (("account", "add", "x", "--time-zone", "Berlin"), 'time zone "Berlin" is not known'),
    (("account", "add", "x", "--time-zone", "../etc"), 'time zone "../etc" is not known'),
    (("account", "add", "x", "--grace-days", "61"), "61 days of grace"),
    (("cluster", "add", "b", "--account", "nobody", "--platform-account", "platform"), 'no account "nobody"'),
    (("cluster", "add", "b", "--account", "acme", "--platform-account", "acme"), "not of kind platform"),
    (("cluster", "add", "a", "--account", "acme", "--platform-account", "platform"), "exists already"),
    (
        ("cluster", "add", "-b-", "--account", "acme", "--platform-account", "platform"),
        "the following arguments",
    ),
    (("token", "create", "--role", "reporter"), "needs a cluster"),
    (("token", "create", "--role", "reporter", "--cluster", "z"), 'no cluster "z"'),
    (("token", "create", "--role", "tenant"), "needs a tenant"),
    (("token", "create", "--role", "admin", "--days", "0"), "expires within ten years"),
    (("token", "create", "--role", "king"), "invalid choice"),
    (("token", "revoke", "0123"), 'no token "0123"'),
    (("serve", "--listen", "nowhere"), 'listen address "nowhere"'),
    (("serve", "--listen", "127.0.0.1:70000"), "write HOST:PORT"),
    (("serve", "--grace-seconds", "0"), "grace of 0 s"),
    (("serve", "--rate-interval", "0"), "rate interval of 0 s"),
    (("serve", "--admin-token-file", "/nowhere"), "cannot read the administrator's token in /nowhere"),
    (("migrate", "now"), "unrecognized arguments"),
    (("migrate", "--grant-to", "slicemeter"), "a SQLite database has no roles"),
    (
        ("cluster", "trust", "a", "--issuer", "https://k", "--jwks", "/nowhere"),
        "cannot read the keys in /nowhere",
    ),
    (("cluster", "trust", "a", "--issuer", "https://k", "--jwks", os.devnull), "no JWKS document"),
    (("cluster", "distrust", "a"), 'no keys of cluster "a" are trusted'),
]


@pytest.mark.parametrize(("words", "text"), REFUSED, ids=lambda value: " ".join(value)[:60])
def test_what_a_user_got_wrong_is_one_line_and_exit_code_2(
    registered: Shell, words: tuple[str, ...], text: str
) -> None:
    code, out, err = registered(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert text in err


def test_a_token_is_printed_once_and_listed_without_its_secret(registered: Shell) -> None:
    code, out, _ = registered("token", "create", "--role", "reporter", "--cluster", "a", "--note", "nodes")
    assert code == 0
    prefix, secret = out.strip().split("_")[1:]
    made = json.loads(registered("token", "create", "--role", "tenant", "--tenant", "acme/x", "--json")[1])
    assert made["token"].startswith(f"smt_{made['prefix']}_")
    registered("token", "revoke", prefix)
    listed = registered("token", "list", "--json")[1]
    assert secret not in listed
    first, second = (json.loads(line) for line in listed.splitlines())
    assert (first["prefix"], first["scope"], first["note"]) == (prefix, "a", "nodes")
    assert first["revoked"] is not None
    assert (second["scope"], second["expires"], second["revoked"]) == ("acme/x", None, None)


def test_a_cluster_is_trusted_by_its_published_keys_and_trusted_no_more(
    registered: Shell, tmp_path: Path
) -> None:
    (tmp_path / "jwks.json").write_text(Issuer(kid="k-2026").jwks())
    trust = ("cluster", "trust", "a", "--jwks", str(tmp_path / "jwks.json"), "--issuer", "https://kube.a")
    code, out, _ = registered(*trust)
    assert (code, out.splitlines()[1].split()[-1]) == (0, "https://kube.a")
    shown = json.loads(registered("cluster", "list", "--json")[1])
    assert (shown["issuer"], shown["keys"]) == ("https://kube.a", ["k-2026"])
    assert "cluster trust" in registered("audit", "list")[1]
    code, out, _ = registered("cluster", "distrust", "a", "--json")
    assert (code, json.loads(out)["issuer"], json.loads(out)["keys"]) == (0, None, [])


def test_the_database_comes_from_the_environment(registered: Shell, tmp_path: Path) -> None:
    environment = os.environ | {"SLICEMETER_DATABASE": registered.url}
    command = [sys.executable, "-m", "slicemeter", "accounting", "cluster", "list"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[1].split()[:3] == ["a", "acme", "platform"]


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "slicemeter",
            "accounting",
            "serve",
            "--listen",
            "127.0.0.1:0",
            *words,
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_serve_makes_its_database_answers_and_ends_with_0_on_sigterm(
    tmp_path: Path, started: Callable[..., subprocess.Popen[str]]
) -> None:
    import httpx  # noqa: PLC0415 - only here

    url = f"sqlite:///{tmp_path / 'books.sqlite'}"
    token = f"smt_{'0' * 12}_{'a' * 64}"
    (tmp_path / "token").write_text(token + "\n")
    process = started("--database", url, "--admin-token-file", str(tmp_path / "token"))
    assert process.stdout is not None
    address = process.stdout.readline().removeprefix("listening on ").strip()
    assert httpx.get(f"{address}/readyz").status_code == 200
    refused = httpx.post(f"{address}/api/v1/facts", headers={"Authorization": f"Bearer {token}"})
    assert refused.status_code == 403
    process.terminate()
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err


def test_serve_refuses_a_port_that_is_taken(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, _, err = shell("serve", "--listen", address)
    assert code == 2
    assert f"cannot listen on {address}: Address already in use" in err
