"""`slicemeter cache show` beyond the genuine files: refusals, exit codes, and the text for people."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from lab.workloads.region_writer import RegionFile
from slicemeter.cache import main

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "hami-core"
GIB = 2**30


@pytest.fixture
def region_path(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "a.cache"
    with RegionFile(
        path,
        uuids=["GPU-859b"],
        limits_bytes=[4000 * 2**20],
        sm_limit_percent=30,
        clock=lambda: 1796037972.0,
    ) as region:
        first = region.attach(7, 4007)
        first.set_memory(0, context_bytes=100 * 2**20, data_bytes=900 * 2**20)
        first.set_sm(0, 28)
        first.set_monitorused(0, GIB)
        region.attach(9, 0).exit()
    return path


def test_live_file_is_shown_as_a_table_of_devices_and_one_of_processes(
    region_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(region_path)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    # 1,000 MiB of 4,000 MiB are 25 %.
    assert shown.out == (
        f"{region_path}\n"
        "  layout v1.2-2008952, version 1.2\n"
        "  priority 1, core limit on, region lock free, last kernel 2026-11-30T11:26:12Z\n"
        "\n"
        "  device  uuid      memory limit         used  of limit  SM limit  SM now\n"
        "       0  GPU-859b   4,000.0 MiB  1,000.0 MiB     25.0%      30 %    28 %\n"
        "\n"
        "  slot  pid   host pid  status   device         used    context       data    NVML says    SM"
        "  flags\n"
        "     0    7       4007  running       0  1,000.0 MiB  100.0 MiB  900.0 MiB  1,024.0 MiB  28 %\n"
        "     1    0  not known  exited        -            -          -          -            -     -"
        "  not counted\n"
        "\n"
    )


def test_a_refused_file_hides_no_other_and_makes_the_exit_code_2(
    region_path: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short, empty = tmp_path / "short.cache", tmp_path / "empty.cache"
    short.write_bytes(b"x" * 100)
    empty.touch()
    assert main(["show", "--json", str(short), str(tmp_path), str(empty), str(region_path)]) == 2
    shown = capsys.readouterr()
    lines = [json.loads(line) for line in shown.out.splitlines()]
    assert [(line["outcome"], line.get("reason")) for line in lines] == [
        ("reject", "unknown_size"),
        ("reject", "not_regular"),
        ("uninitialised", "too_short"),
        ("ok", None),
    ]
    assert [line["file"] for line in lines] == [str(path) for path in (short, tmp_path, empty, region_path)]
    assert len(shown.err.splitlines()) == 2


def test_why_a_file_is_refused_is_said_once(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = tmp_path / "short.cache"
    short.write_bytes(b"x" * 100)
    assert main(["show", str(short)]) == 2
    shown = capsys.readouterr()
    assert shown.out == f"{short}\n  reject (unknown_size)\n\n"
    assert shown.err.startswith(f"slicemeter cache show: {short}: 100 bytes is no known size")


def test_a_missing_file_is_one_line_on_stderr_and_the_others_are_shown(
    region_path: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "none.cache"
    assert main(["show", "--json", str(missing), str(region_path)]) == 2
    shown = capsys.readouterr()
    assert [json.loads(line)["file"] for line in shown.out.splitlines()] == [str(region_path)]
    (line,) = shown.err.splitlines()
    assert str(missing) in line
    assert "check the path" in line


def test_files_that_are_only_not_ready_are_no_error(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.cache").touch()
    assert main(["show", str(tmp_path / "empty.cache")]) == 0
    assert "uninitialised (too_short): 0 bytes" in capsys.readouterr().out


@pytest.mark.parametrize("as_json", [True, False])
def test_hostile_names_and_values_reach_no_terminal_raw(
    as_json: bool, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "\x1b[31mred\udcff.cache"
    with RegionFile(path, uuids=["GPU-\x1b[2J"], limits_bytes=[0]) as region:
        region.attach(7, 4007)
    assert main(["show", *(["--json"] if as_json else []), str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_an_impossible_time_is_said_to_be_one(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.cache"
    RegionFile(path, uuids=[], limits_bytes=[], clock=lambda: 2.0**62).close()
    assert main(["show", str(path)]) == 0
    assert f"last kernel at an impossible time ({2**62})" in capsys.readouterr().out


def test_the_command_runs_from_the_shell() -> None:
    path = FIXTURES / "v1.2-2008952" / "one_process.cache.gz"
    done = subprocess.run(
        [sys.executable, "-m", "slicemeter", "cache", "show", "--json", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["sum_over_live_slots"]["0"]["total"] == 754_978_816
