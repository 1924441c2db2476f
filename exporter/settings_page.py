"""The exporter's settings as a page for users: the text of `docs/settings.md`, which `make docs` writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exporter.setting import Setting
from exporter.settings import CLUSTER_SETTINGS, COMMON_SETTINGS, NODE_SETTINGS

_INTRODUCTION = """\
# Settings of the exporter

A setting is given as a flag, as an environment variable, or as a key of the TOML file named by `--config`;
the first of these that names it wins. The key `push_interval_seconds` is the flag `--push-interval-seconds`
and the variable `SLICEMETER_PUSH_INTERVAL_SECONDS`. `--once` takes one view, prints the page and ends.

This page is made from the settings in the code by `make docs`.
"""


def settings_page() -> str:
    """The page in Markdown."""
    common = set(COMMON_SETTINGS)
    parts = [
        _INTRODUCTION,
        *_table("Both roles", COMMON_SETTINGS),
        *_table("Node role", [setting for setting in NODE_SETTINGS if setting not in common]),
        *_table("Cluster role", [setting for setting in CLUSTER_SETTINGS if setting not in common]),
    ]
    return "\n".join(parts)


def _table(heading: str, settings: Sequence[Setting[Any]]) -> list[str]:
    lines = [f"## {heading}", "", "| Key | Meaning | Default |", "|---|---|---|"]
    for setting in settings:
        default = (
            "*required*" if setting.default is None else f"`{setting.default}`" if setting.default else "–"
        )
        also = f" (`{setting.also_env}` is read too)" if setting.also_env else ""
        lines.append(f"| `{setting.name}` | {setting.help}{also} | {default} |")
    return [*lines, ""]
