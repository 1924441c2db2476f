"""`slicemeter accounting cluster register FILE`, and the file that the chart makes of its values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.charts.rendering import CASES, golden
from tests.slicemeter.accounting.shell import Shell


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """What the chart's Job gets for `charts/slicemeter/ci/registered-values.yaml`."""
    [values] = [each for each in CASES if each.stem == "registered-values"]
    [made] = [each for each in golden(values) if each["metadata"]["name"] == "slicemeter-accounting-register"
              and each["kind"] == "ConfigMap"]  # fmt: skip
    path = tmp_path / "register.json"
    path.write_text(made["data"]["register.json"], encoding="utf-8")
    return path


def changed(file: Path, part: str, at: int, **keys: object) -> str:
    """The file with other keys in one of its parts."""
    document = json.loads(file.read_text(encoding="utf-8"))
    document[part][at] |= keys
    file.write_text(json.dumps(document), encoding="utf-8")
    return str(file)


def test_what_is_not_there_yet_is_added_and_asking_again_changes_nothing(shell: Shell, file: Path) -> None:
    code, out, err = shell("cluster", "register", str(file), "--json")
    assert code == 0
    assert err.splitlines() == [
        "account acme added",
        "account platform added",
        "cluster berlin added",
        "cluster tenant-a added",
        "cluster tenant-a: keys trusted",
    ]
    clusters = {each["code"]: each for each in map(json.loads, out.splitlines())}
    assert clusters["berlin"]["issuer"] is None
    assert clusters["tenant-a"]["keys"] == ["example"]
    before = shell("audit", "list", "--json")[1]
    assert shell("cluster", "register", str(file))[2] == "nothing to add\n"
    assert shell("audit", "list", "--json")[1] == before
    accounts = [json.loads(line) for line in shell("account", "list", "--json")[1].splitlines()]
    assert [(each["code"], each["kind"], each["grace_days"]) for each in accounts][:2] == [
        ("acme", "tenant", 3),
        ("platform", "platform", 5),
    ]


def test_rotated_keys_are_trusted_anew(shell: Shell, file: Path) -> None:
    assert shell("cluster", "register", str(file))[0] == 0
    trust = json.loads(file.read_text(encoding="utf-8"))["clusters"][1]["trust"]
    rotated = changed(file, "clusters", 1, trust=trust | {"jwks": trust["jwks"].replace("example", "next")})
    code, out, err = shell("cluster", "register", rotated, "--json")
    assert (code, err) == (0, "cluster tenant-a: keys trusted\n")
    assert json.loads(out.splitlines()[1])["keys"] == ["next"]


@pytest.mark.parametrize(
    ("part", "keys", "told"),
    [
        (
            "accounts",
            {"timeZone": "UTC"},
            'account "acme": its time zone is Europe/Berlin, the file says UTC',
        ),
        ("accounts", {"currency": "USD"}, 'account "acme": its currency is EUR, the file says USD'),
        (
            "clusters",
            {"account": "platform"},
            'cluster "berlin": its account is acme, the file says platform',
        ),
    ],
)
def test_what_is_registered_is_not_changed_by_a_file(
    shell: Shell, file: Path, part: str, keys: dict[str, object], told: str
) -> None:
    assert shell("cluster", "register", str(file))[0] == 0
    code, _, err = shell("cluster", "register", changed(file, part, 0, **keys))
    assert code == 2
    assert told in err


@pytest.mark.parametrize(
    ("part", "keys", "told"),
    [
        ("accounts", {"zone": "UTC"}, "zone"),
        ("accounts", {"graceDays": "three"}, "graceDays"),
        ("clusters", {"platformAccount": "acme"}, 'account "acme" is not of kind platform'),
        ("clusters", {"account": "nobody"}, 'no account "nobody"'),
    ],
)
def test_a_wrong_file_is_refused_and_nothing_of_it_is_registered(
    shell: Shell, file: Path, part: str, keys: dict[str, object], told: str
) -> None:
    code, _, err = shell("cluster", "register", changed(file, part, 0, **keys))
    assert code == 2
    assert told in err
    assert len(err.splitlines()) == 1
    assert "acme" not in shell("account", "list")[1]


def test_a_file_that_is_not_there_is_named(shell: Shell, tmp_path: Path) -> None:
    code, _, err = shell("cluster", "register", str(tmp_path / "none.json"))
    assert code == 2
    assert "none.json: No such file" in err
