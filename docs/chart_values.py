"""The chart's table of values, made from the `# -- ` lines of its values.yaml: a value is told in one place.

Invariant: every value has a line, or the table cannot be made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

CHART = Path(__file__).resolve().parents[1] / "charts" / "slicemeter"
START, END = "<!-- values -->", "<!-- end of values -->"
_COMMENT: Final = re.compile(r"^ *# -- (.+)$")
_KEY: Final = re.compile(r"^( *)([A-Za-z][A-Za-z0-9_.]*):(.*)$")


def rows(text: str) -> list[tuple[str, str, str]]:
    """Path, meaning and default of every value.

    Args:
        text: A values.yaml, indented by two.

    Raises:
        ValueError: A value without its line.
    """
    defaults = yaml.safe_load(text)
    found = []
    for path, told in _keys(text):
        default = defaults
        for key in path:
            default = default[key]
        if told:
            found.append((".".join(path), told, json.dumps(default, ensure_ascii=False)))
        elif not isinstance(default, dict):
            raise ValueError(f"{'.'.join(path)}: say what it means in a line `# -- …` above it")
    return found


def _keys(text: str) -> Iterator[tuple[list[str], str]]:
    """Each key's path, and its line; below a key that has one lies its default."""
    path: list[str] = []
    told, told_depth = "", None
    for line in text.splitlines():
        comment = _COMMENT.match(line)
        if comment:
            told = comment[1]
            continue
        key = _KEY.match(line)
        if key is None or len(key[1]) % 2:
            continue
        depth = len(key[1]) // 2
        if told_depth is not None and depth > told_depth:
            continue
        path = [*path[:depth], key[2]]
        told_depth = depth if told else None
        yield path, told
        told = ""


def values_table(text: str) -> str:
    """The table in Markdown."""
    lines = [f"| `{path}` | {told} | `{default}` |" for path, told, default in rows(text)]
    return "\n".join(["| Value | Meaning | Default |", "|---|---|---|", *lines, ""])


def readme() -> str:
    """The chart's README with the table as it should be now."""
    before, _, rest = (CHART / "README.md").read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    table = values_table((CHART / "values.yaml").read_text(encoding="utf-8"))
    return f"{before}{START}\n{table}{END}{after}"
