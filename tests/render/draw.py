"""Draws the main dashboards with Grafana's own components in Chromium; `make dashboards-images` runs it.

Needs node, npm and chromium, and fetches some 500 MB of packages, so it is no part of the tests. The panels
are those that are shipped, over what a real Prometheus answered while the lab played; one kind of panel that
Grafana publishes no component for is drawn as lines and says so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.render.record import VIEWS, record

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "build" / "render"
IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT, SCALE = 1_430, 1_100, 0.65
PAGE = """<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="dist/main.css">
<body style="margin:0"><div id="root"></div><script>window.BOARD = {board}</script>
<script src="dist/main.js"></script>"""


def main() -> int:
    """Fetch, build, play, draw."""
    for program in ("npm", "chromium", "prometheus", "prometheus-alertmanager"):
        if shutil.which(program) is None:
            print(f"{program} is missing; it comes with Debian's package of that name", file=sys.stderr)
            return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "package.json", FOLDER)
    shutil.copytree(HERE / "src", FOLDER / "src", dirs_exist_ok=True)
    subprocess.run(["npm", "install", "--silent", "--no-package-lock"], cwd=FOLDER, check=True)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=FOLDER, check=True)
    for name, views in VIEWS.items():
        record(name, FOLDER)
        for view in views:
            print(_drawn(view))
    return 0


def _drawn(view: str) -> Path:
    board = json.loads((FOLDER / f"{view}.json").read_text("utf-8"))
    page = FOLDER / f"{view}.html"
    # Within a script element a closing tag would end it.
    page.write_text(PAGE.replace("{board}", json.dumps(board).replace("</", "<\\/")), "utf-8")
    image = IMAGES / f"{view}.png"
    arguments = ["chromium", "--headless=new", "--disable-gpu", "--no-sandbox", "--hide-scrollbars"]
    arguments += ["--allow-file-access-from-files", "--virtual-time-budget=15000"]
    arguments += [f"--window-size={WIDTH},{HEIGHT}", f"--force-device-scale-factor={SCALE}"]
    subprocess.run(
        [*arguments, f"--screenshot={image}", page.as_uri()], check=True, capture_output=True, timeout=120
    )
    return image


if __name__ == "__main__":
    sys.exit(main())
