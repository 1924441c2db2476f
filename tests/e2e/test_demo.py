"""The demo as a user runs it: the whole stack, every figure, with and without disturbances, and its end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer

import pytest

pytestmark = pytest.mark.slow

TOO_LONG_S = 300.0
CASES = (
    "three pods on one card",
    "over memory",
    "over cores",
    "release and lock",
    "tenants invisible",
    "two pods, one card",
    "limit seen",
    "refusal contained",
    "30 % held",
    "eleventh refused",
    "bypass seen",
)


def demo(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "slicemeter", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder), "LANG": "C.UTF-8"},
    )


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """What it prints, line by line; it is killed if it takes too long."""
    assert process.stdout is not None
    watchdog = Timer(TOO_LONG_S, process.kill)
    watchdog.start()
    try:
        for line in process.stdout:  # noqa: UP028 - `yield from` would close the pipe with the generator
            yield line
    finally:
        watchdog.cancel()


def leftovers(folder: Path) -> list[str]:
    """Folders of the demo, and programs that still work in one."""
    found = [path.name for path in folder.iterdir()]
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in command.read_bytes():
                found.append(command.read_text())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("arguments", [("--once",), ("--once", "--disturb")], ids=["calm", "disturbed"])
def test_every_figure_is_right_and_nothing_is_left_behind(arguments: tuple[str, ...], tmp_path: Path) -> None:
    with demo(*arguments, folder=tmp_path) as process:
        text = "".join(lines_of(process))

    assert process.returncode == 0, text
    assert [case for case in CASES if case not in text] == []
    assert "62,914,560,000 bytes" in text
    match = re.search(r"(\d+) of (\d+) figures are right; peak (\d+\.\d+) GB of memory", text)
    assert match is not None
    assert match[1] == match[2]
    assert float(match[3]) < 8
    assert "OFF" not in text
    assert leftovers(tmp_path) == []
    if "--disturb" in arguments:
        assert len(re.findall(r"kill -9 ", text)) == 7


@pytest.mark.promtool
def test_the_live_demo_serves_clean_pages_and_ends_with_ctrl_c(
    tmp_path: Path, need_tool: Callable[[str, str], str]
) -> None:
    promtool = need_tool("promtool", "prometheus")
    pages: dict[str, str] = {}
    complaints: dict[str, str] = {}
    with demo(folder=tmp_path) as process:
        begin = []
        for line in lines_of(process):
            begin.append(line)
            name, _, place = line.strip().partition(": ")
            if place.endswith("/metrics"):
                pages[name] = place
            if "held opens the GPU" in line:
                break
        for name, url in pages.items():
            with urllib.request.urlopen(url, timeout=10) as answer:
                page = answer.read()
            found = subprocess.run(
                [promtool, "check", "metrics"], input=page, capture_output=True, check=False
            )
            if found.returncode or found.stderr:
                complaints[name] = found.stderr.decode()
        process.send_signal(signal.SIGINT)
        rest = list(lines_of(process))

    assert process.returncode == 0, "".join(begin + rest)
    assert sorted(pages) == [
        "accounting",
        *(f"{role} lab-{code}" for role in ("cluster", "node") for code in "abc"),
    ]
    assert complaints == {}
    assert leftovers(tmp_path) == []
