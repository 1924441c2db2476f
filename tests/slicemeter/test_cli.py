"""Whatever is wrong with the place where output goes: an exit code, at most one line, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slicemeter.cli import main

COMMAND = (sys.executable, "-m", "slicemeter")
COMMANDS = [
    ("--help",),
    ("accounting", "--help"),
    ("annotation", "show", "pod-devices", "GPU-1,NVIDIA,1,2:;"),
]


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_full_disk_behind_stdout_is_exit_2_and_one_line(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, *arguments], check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "slicemeter: cannot write the output: No space left on device; send it elsewhere"
    ]


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_reader_that_went_away_is_no_error(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, *arguments], check=False, stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", COMMANDS)
def test_closed_streams_are_no_error(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *COMMAND, *arguments], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("arguments", [*COMMANDS, ("\u00e9",), ("cache", "show", "\u00e9\udcff")])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_an_encoding_lacks_do_not_end_a_command(
    arguments: tuple[str, ...], encoding: str
) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([*COMMAND, *arguments], check=False, capture_output=True, env=environment)
    assert done.returncode == (0 if arguments in COMMANDS else 2)
    assert b"Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == (0 if arguments in COMMANDS else 1)


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "1e400", "x", "-1", "0"])
@pytest.mark.parametrize(
    "arguments",
    [("serve", "--grace-seconds"), ("serve", "--rate-interval"), ("rate", "--grace-seconds")],
)
def test_what_is_no_number_of_seconds_is_exit_2_and_one_line(
    arguments: tuple[str, str], seconds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    books = f"sqlite:///{tmp_path / 'books.sqlite'}"
    try:
        code = main(["accounting", *arguments, seconds, "--database", books])
    except SystemExit as ended:  # argparse
        code = int(str(ended.code))
    assert code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_books_that_cannot_be_written_are_exit_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "books.sqlite"
    assert main(["accounting", "migrate", "--database", f"sqlite:///{file}"]) == 0
    capsys.readouterr()
    read_only = f"sqlite:///file:{file}?mode=ro&uri=true"
    for command in (("token", "create", "--role", "operator"), ("rate",)):
        assert main(["accounting", *command, "--database", read_only]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "readonly" in line


def test_ctrl_c_ends_a_command_without_a_traceback(tmp_path: Path) -> None:
    waiting = tmp_path / "fifo"
    os.mkfifo(waiting)
    with subprocess.Popen(
        [*COMMAND, "accounting", "serve", "--admin-token-file", str(waiting), "--listen", "127.0.0.1:0",
         "--database", f"sqlite:///{tmp_path / 'books.sqlite'}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        # Opening succeeds when the command opens the other end: it now waits for the token.
        writer = waiting.open("w")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        writer.close()
    assert process.returncode == 130
    assert errors == ""
