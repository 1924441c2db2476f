"""What the chart carries of dashboards and rules is, byte for byte, what the shipped commands build."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemeter.dashboards import main as dashboards
from slicemeter.rules import main as rules

FILES = Path(__file__).parents[2] / "charts" / "slicemeter" / "files"


def _texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_the_charts_dashboards_are_those_that_the_command_builds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dashboards(["build", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 8
    assert _texts(FILES / "dashboards") == _texts(tmp_path), "run: make chart-files"


def test_the_charts_rules_are_those_that_the_command_builds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rules(["build", str(tmp_path), "--form", "chart"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 11
    assert _texts(FILES / "rules") == _texts(tmp_path), "run: make chart-files"
