"""The entry point: one parser of the first word, then a lazy import of the subcommand's module.

`slicemeter --help` must stay instant, so nothing but the standard library is imported until the
subcommand is known. Exit codes: 0 ok, 1 a finding, 2 bad input with one line on stderr.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from contract.version import VERSION


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand: its module has `main(argv) -> int`; `extra` is the pip extra that it needs."""

    name: str
    module: str
    help: str
    extra: str | None = None


COMMANDS = (
    Command("demo", "slicemeter.demo", "the whole stack on this computer: no GPU, no cluster", "lab"),
    Command("cache", "slicemeter.cache", "decode HAMi-core cache files", "exporter"),
    Command("annotation", "slicemeter.annotation", "decode HAMi annotations", "exporter"),
    Command("top", "slicemeter.top", "live slices in the terminal, from exporters' pages", "top"),
    Command("exporter", "slicemeter.exporter", "run the node or the cluster exporter", "exporter"),
    Command("accounting", "slicemeter.accounting", "the accounting service and its books", "accounting"),
    Command("dashboards", "slicemeter.dashboards", "write the Grafana dashboards", "dashboards"),
    Command("rules", "slicemeter.rules", "write the recording rules and alerts", "dashboards"),
)


def usage() -> str:
    """The text of `slicemeter --help`."""
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"  {command.name:<{width}}  {command.help}" for command in COMMANDS]
    return "\n".join(
        [
            "usage: slicemeter COMMAND …",
            "",
            "Meters and bills GPU slices on Kubernetes clusters that share cards with HAMi.",
            "",
            *lines,
            "",
            "slicemeter COMMAND --help tells more; slicemeter --version prints the version.",
        ]
    )


_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
_INTERRUPTED = 130
"""What a shell reports for a program that Ctrl-C ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the process's exit code.

    Whatever becomes of stdout, the process ends with a code and at most one line: what is printed waits in
    a buffer, so the last of it is written here and not by the interpreter as it ends.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal or file of another encoding lacks some characters; that is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`head`) went away: that is its right, not our error.
        _discard_stdout()
        return 0
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        _discard_stdout()
        print(f"slicemeter: cannot write the output: {error.strerror}; send it elsewhere", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _discard_stdout() -> None:
    """What still waits in the buffer has nowhere to go, and must not fail once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(usage())
        return 0
    if arguments[0] == "--version":
        print(f"slicemeter {VERSION}")
        return 0
    command = next((known for known in COMMANDS if known.name == arguments[0]), None)
    if command is None:
        known = ", ".join(known.name for known in COMMANDS)
        print(f'slicemeter: no command "{arguments[0]}"; there are: {known}', file=sys.stderr)
        return 2
    try:
        module = importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in {"slicemeter", "contract"}:
            raise
        print(
            f"slicemeter {command.name}: the package {error.name} is missing; install it with: "
            f'pip install "slicemeter[{command.extra}]"',
            file=sys.stderr,
        )
        return 2
    return int(module.main(arguments[1:]))
