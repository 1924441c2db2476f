"""Writes dashboards and rules into a folder.

The bytes are a function of the code alone, so that a copy elsewhere can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

from grafanalib._gen import DashboardEncoder

from dashboards.chinese import in_chinese
from dashboards.normaliser import Object, normalise, to_text
from dashboards.views import VIEWS

LANGUAGES: dict[str, Callable[[Object], Object]] = {"en": lambda dashboard: dashboard, "zh": in_chinese}
"""Language of the titles to what is done to a dashboard for it."""


def dashboard_files(language: str = "en") -> dict[str, str]:
    """File name to text of every dashboard, its titles in a language of `LANGUAGES`."""
    files = {}
    for name, view in VIEWS.items():
        raw = cast("Object", json.loads(json.dumps(view, cls=DashboardEncoder)))
        files[f"{name}.json"] = to_text(LANGUAGES[language](normalise(raw)))
    return files


def write(files: dict[str, str], folder: Path) -> list[Path]:
    """Write files into a folder, made if need be; returns their paths.

    Raises:
        OSError: The folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths
