"""Writes the pages that are made from the code; `make docs` runs it, tests compare."""

from __future__ import annotations

from pathlib import Path

from chart_values import CHART, readme

from contract.metrics_page import metrics_page
from dashboards.alerts_page import alerts_page
from exporter.settings_page import settings_page

FOLDER = Path(__file__).parent
(FOLDER / "metrics.md").write_text(metrics_page(), encoding="utf-8")
(FOLDER / "settings.md").write_text(settings_page(), encoding="utf-8")
(FOLDER / "alerts.md").write_text(alerts_page(), encoding="utf-8")
(CHART / "README.md").write_text(readme(), encoding="utf-8")
