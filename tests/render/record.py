"""Plays a scenario, asks a real Prometheus every panel's queries, and keeps the answers for drawing.

Part of `make dashboards-images`. What is drawn is what Grafana would have been answered.
"""

from __future__ import annotations

import json
import re
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from dashboards.writing import dashboard_files
from lab.pages import Album
from lab.rehearsal.monitoring import Monitoring
from lab.rehearsal.receiver import Receiver
from lab.rehearsal.scenes import scene
from lab.rehearsal.tempo import Tempo
from lab.scenarios.demo import demo
from lab.scenarios.plan import Scenario
from lab.stack import Stack
from slicemeter.demo import accounting_command
from tests import real_prometheus

VIEWS = {"noisy": ("neighbours", "card"), "demo": ("fleet", "chargeback")}
"""Scenario to the dashboards that are drawn from it."""
LOOK_BACK_S = 50


def _scenario(name: str) -> Scenario:
    return demo(ends=True) if name == "demo" else scene("noisy-neighbour").plan(1)


def _asked(expression: str, period: str) -> str:
    text = expression.replace("$__rate_interval", "10s").replace("$__range", f"{LOOK_BACK_S}s")
    return re.sub(r"\$\w+", ".*", text.replace("$period", period))


def _panel(panel: dict[str, Any], address: str, period: str, now_s: float) -> dict[str, Any]:
    answers = []
    for target in panel["targets"]:
        expression = _asked(target["expr"], period)
        if panel["type"] == "table":
            found = [
                {"metric": each["metric"], "values": [each["value"]]}
                for each in real_prometheus.ask(address, expression, now_s)
            ]
        else:
            found = real_prometheus.ask_over(address, expression, now_s - LOOK_BACK_S, now_s, 1)
        answers.append({"refId": target["refId"], "legend": target["legendFormat"], "series": found})
    return {**panel, "answers": answers}


def record(name: str, out: Path) -> None:
    """Play `name` for a minute and write what its dashboards were answered."""
    folder = Path(tempfile.mkdtemp(prefix="slicemeter-render-"))
    receiver = Receiver()
    stack = Stack(_scenario(name), folder / "stack", accounting_command, disturb=False, album=Album(keep=1))
    try:
        receiver.start()
        stack.start()
        monitoring = Monitoring(folder / "monitoring", stack.logs, Tempo(1))
        books = (stack.books.target, stack.books.operator_token_file)
        address = monitoring.start(stack.household, stack.exporter_targets, books, receiver.url, ())
        real_prometheus.wait_up(address)
        pause, ends_s = threading.Event(), time.time() + LOOK_BACK_S + 2
        while time.time() < ends_s:
            stack.check()
            pause.wait(0.2)
        now_s = time.time()
        known = real_prometheus.ask(address, "slicemeter_period_info")
        period = max((each["metric"]["period"] for each in known), default="")
        for view in VIEWS[name]:
            board = json.loads(dashboard_files()[f"{view}.json"])
            panels = [_panel(each, address, period, now_s) for each in board["panels"]]
            (out / f"{view}.json").write_text(
                json.dumps({"title": board["title"], "panels": panels}), "utf-8"
            )
            print(f"{view}: {len(panels)} panels")
    finally:
        stack.stop()
        receiver.stop()
