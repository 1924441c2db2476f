"""A check-up as a table for people or one JSON object for programs.

Invariant: the exit code is 1 exactly when some line is a finding; notes do not count.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import msgspec

from exporter.checkup.finding import Line

_WORDS = {"ok": "ok", "note": "note", "finding": "WRONG"}
_VERDICT_WIDTH = 6
_TEXT_WIDTH = 96


def has_finding(lines: Sequence[Line]) -> bool:
    """Whether anything is wrong."""
    return any(line.verdict == "finding" for line in lines)


def as_json(role: str, lines: Sequence[Line]) -> str:
    """One object: `role`, `ok`, and `checks`, each with `check`, `ok`, `verdict`, `detail`, `way_out`."""
    checks = [
        {
            "check": line.check,
            "ok": line.verdict != "finding",
            "verdict": line.verdict,
            "detail": line.detail,
            "way_out": line.way_out or None,
        }
        for line in lines
    ]
    return msgspec.json.encode({"role": role, "ok": not has_finding(lines), "checks": checks}).decode()


def as_table(lines: Sequence[Line]) -> str:
    """One line a check; what to do stands below it, behind an arrow."""
    width = max((len(line.check) for line in lines), default=0)
    indent = " " * (width + 2 + _VERDICT_WIDTH)
    rows: list[str] = []
    for line in lines:
        begin = f"{line.check:<{width}}  {_WORDS[line.verdict]:<{_VERDICT_WIDTH}}"
        rows += _wrapped(_printable(line.detail), begin, indent)
        if line.way_out:
            rows += _wrapped(_printable(line.way_out), indent + "→ ", indent + "  ")
    return "\n".join(rows)


def _wrapped(text: str, begin: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text or "-",
        width=len(indent) + _TEXT_WIDTH,
        initial_indent=begin,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _printable(text: str) -> str:
    """Names of files and pods are other people's words: no escape sequence of theirs reaches a terminal."""
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)
