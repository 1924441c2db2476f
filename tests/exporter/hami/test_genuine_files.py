"""Every genuine file decodes to what a C reader compiled from HAMi-core's own header found in it."""

from __future__ import annotations

import json
import pathlib

import pytest

from slicemeter.cache import main

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures" / "hami-core"
CASES = [
    pytest.param(
        manifest.parent / case["file"], case["expected"], id=f"{manifest.parent.name}/{case['case']}"
    )
    for manifest in sorted(FIXTURES.glob("*/manifest.json"))
    for case in json.loads(manifest.read_text())["cases"]
]


def missing(expected: object, shown: object) -> list[str]:
    """Where `shown` lacks something of `expected` or differs; more keys are allowed."""
    if isinstance(expected, dict) and isinstance(shown, dict):
        return [
            f"{key}: {found}"
            for key, value in expected.items()
            for found in (missing(value, shown[key]) if key in shown else ["missing"])
        ]
    if isinstance(expected, list) and isinstance(shown, list) and len(expected) == len(shown):
        pairs = enumerate(zip(expected, shown, strict=True))
        return [f"{index}: {found}" for index, pair in pairs for found in missing(*pair)]
    return [] if expected == shown else [f"expected {expected}, shown {shown}"]


def test_there_are_210_genuine_files() -> None:
    assert len(CASES) == 210


@pytest.mark.parametrize(("path", "expected"), CASES)
def test_genuine_file_is_shown_as_its_manifest_expects(
    path: pathlib.Path, expected: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["show", str(path), "--json"])
    (line,) = capsys.readouterr().out.splitlines()
    shown = json.loads(line)
    assert missing(expected, shown) == []
    assert shown["file"] == str(path)
    assert code == (2 if expected["outcome"] == "reject" else 0)
    optional = {"limit_all_16", "sm_limit_all_16", "must_not_be_trusted_slots", "counters_below_zero"}
    assert optional & shown.keys() == optional & expected.keys()
    if expected["outcome"] != "ok":
        assert shown["reason"]
        assert shown["detail"]
    elif isinstance(expected["version"], list):
        assert all("seqlock" in slot for slot in shown["slots"])
