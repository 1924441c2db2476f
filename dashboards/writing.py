"""Writes dashboards and rules into a folder.

The bytes are a function of the code alone, so that a copy elsewhere can be compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from grafanalib._gen import DashboardEncoder

from dashboards.normaliser import Object, normalise, to_text
from dashboards.views import VIEWS


def dashboard_files() -> dict[str, str]:
    """File name to text of every dashboard."""
    files = {}
    for name, view in VIEWS.items():
        raw = cast("Object", json.loads(json.dumps(view, cls=DashboardEncoder)))
        files[f"{name}.json"] = to_text(normalise(raw))
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
