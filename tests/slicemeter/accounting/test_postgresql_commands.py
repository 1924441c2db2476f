"""The accounting commands on a PostgreSQL database, as an operator types them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from slicemeter.accounting import main
from tests.accounting.postgresql import MIGRATOR, OWNER, SERVICE, Server, running_server

pytestmark = pytest.mark.postgresql


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as started:
        yield started


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    with server.database() as name:
        yield server.url(name)


def test_migrate_makes_the_tables_and_the_partitions_of_the_next_months(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", "--database", url]) == 0
    assert "was made: schema" in capsys.readouterr().out
    assert main(["partition", "--database", url]) == 0
    assert capsys.readouterr().out == "every partition is there\n"
    assert main(["partition", "--database", url, "--ahead", "4", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)["made"]
    assert [re.sub(r"_p\d{6}", "", name) for name in made] == [
        "usage_fact",
        "unallocated_fact",
        "device_fact",
    ]


def test_a_role_that_owns_nothing_is_granted_what_the_service_needs(
    server: Server, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", "--database", url, "--grant-to", SERVICE]) == 0
    assert f'role "{SERVICE}" may serve from ' in capsys.readouterr().out
    served = server.url(url.rpartition("/")[2], SERVICE)
    assert main(["account", "add", "acme", "--database", served]) == 0
    assert main(["account", "list", "--database", served]) == 0
    assert "acme" in capsys.readouterr().out
    assert main(["migrate", "--database", url, "--grant-to", OWNER]) == 2
    assert "superuser" in capsys.readouterr().err
    assert main(["partition", "--database", served, "--ahead", "9"]) == 2
    err = capsys.readouterr().err
    assert "permission denied" in err
    assert "run it as the role that owns the tables" in err
    assert err.count("\n") == 1


def test_serving_as_a_superuser_is_warned_of_in_the_log(server: Server, url: str) -> None:
    main(["migrate", "--database", url])
    bare = server.url(url.rpartition("/")[2], OWNER)
    command = [sys.executable, "-m", "slicemeter", "accounting", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, "--database", bare], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert "row-level security does not hold" in process.stderr.readline()
        finally:
            process.send_signal(signal.SIGTERM)


def test_an_hour_in_a_default_partition_is_a_finding_until_it_is_drained(
    server: Server, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["migrate", "--database", url])
    server.execute(
        "INSERT INTO device_fact VALUES "
        "('a', 3600000, 'n', 'GPU-1', 'e', 0, 0, 0, 0, 0, 1, 3600000, 3600001, 0, 1)",
        url.rpartition("/")[2],
    )
    capsys.readouterr()
    assert main(["partition", "--database", url]) == 1
    assert "device_fact_default holds 1 rows of 1970-01; move them with --drain" in capsys.readouterr().out
    assert main(["partition", "--database", url, "--drain"]) == 0
    assert "moved 1 rows of 1970-01 from device_fact_default" in capsys.readouterr().out


def test_a_password_is_never_printed(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with_password = url.replace(f"{MIGRATOR}@", f"{MIGRATOR}:s3cret@")
    assert main(["migrate", "--database", with_password]) == 0
    assert main(["account", "list", "--database", with_password.replace("books", "nowhere")]) == 2
    shown = capsys.readouterr()
    assert "s3cret" not in shown.out + shown.err


def test_serve_makes_the_database_answers_and_ends_with_0(url: str) -> None:
    command = [sys.executable, "-m", "slicemeter", "accounting", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, "--database", url], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().removeprefix("listening on ").strip()
            with urllib.request.urlopen(f"{address}/readyz") as answer:
                assert answer.read() == b"ready\n"
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
