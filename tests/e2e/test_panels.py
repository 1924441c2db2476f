"""Every panel of every dashboard over the demo's busy scenario: real exporters, accounting and Prometheus.

The lab's whole stack runs, a Prometheus scrapes it each second with `cluster` set by relabelling and with
our rules loaded, their windows cut to seconds. Invariant: a panel that has nothing to show stands in
`EMPTY` with the reason.
"""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from dashboards.rules.files import Addresses, plain_files
from dashboards.rules.table import SWITCHES, chosen
from dashboards.writing import dashboard_files, write
from lab.pages import Album
from lab.scenarios.demo import demo
from lab.stack import Stack
from slicemeter.accounting import main as accounting_command
from tests import real_prometheus

pytestmark = [pytest.mark.slow, pytest.mark.promtool]

LOOK_AT_S = 45.0
"""Into the scenario: locks were taken, pods run, wait and have been refused."""

EMPTY = {
    "card: Starved share": "no slice starves on a full card in the demo",
    "card: Use above the entitlement": "no slice is above its share in the demo",
    "chargeback: What blocks the close": "a month that is not over blocks nothing yet",
    "energy: Clocks held down": "the lab's cards are never throttled",
    "fleet: Quotas": "the demo's API servers hold no quota",
    "neighbours: Above the share": "no slice is above its share in the demo",
    "neighbours: Blocked by a higher priority": "nobody has a priority in the demo",
    "neighbours: Missing of the share": "no slice starves on a full card in the demo",
    "neighbours: Region lock held": "the lab's regions are never locked",
    "pod: Region lock held": "the lab's regions are never locked",
    "tenant: Budget used": "the demo sets no budget",
    "tenant: Use without an allocation": "nobody goes past HAMi on a card with NVML in the demo",
}


def _run(arguments: Sequence[str]) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        assert accounting_command(arguments) == 0
    return out.getvalue()


@contextmanager
def _stack(folder: Path) -> Iterator[Stack]:
    stack = Stack(demo(ends=True), folder, _run, disturb=False, album=Album(keep=4))
    stack.start()
    try:
        yield stack
    finally:
        stack.stop()


def _in_seconds(text: str) -> str:
    """Rules with minutes cut to seconds: `[5m]` to `[5s]`, `for: 15m` to `for: 15s`."""
    return re.sub(r"(\[|for: |offset )(\d+)[mh]\b", lambda found: f"{found[1]}{found[2]}s", text)


def _jobs(stack: Stack, token_file: Path) -> str:
    jobs = []
    for target in stack.exporter_targets:
        code = target.name.split()[1]
        port = target.url.rpartition(":")[2]
        jobs.append(
            f"- job_name: '{target.name}'\n  static_configs:\n"
            f"  - targets: ['127.0.0.1:{port}']\n    labels: {{cluster: '{code}'}}\n"
        )
    port = stack.books.target.url.rpartition(":")[2]
    jobs.append(
        "- job_name: accounting\n  honor_labels: true\n"
        f"  authorization: {{credentials_file: '{token_file}'}}\n  static_configs:\n"
        f"  - targets: ['127.0.0.1:{port}']\n    labels: {{cluster: 'home'}}\n"
    )
    return "".join(jobs)


@contextmanager
def _prometheus(program: str, folder: Path, stack: Stack) -> Iterator[str]:
    folder.mkdir()
    rules = {name: _in_seconds(text) for name, text in plain_files(chosen(SWITCHES), Addresses()).items()}
    write(rules, folder / "rules")
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
        f"rule_files: ['{folder}/rules/*.yaml']\nscrape_configs:\n"
        + _jobs(stack, stack.books.operator_token_file)
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    process = subprocess.Popen(
        [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=error",
        ]
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(real_prometheus.PATIENCE_S)


def _panels() -> Iterator[tuple[str, list[str]]]:
    for name, text in dashboard_files().items():
        view: dict[str, Any] = json.loads(text)
        for panel in view["panels"]:
            yield (
                f"{name.removesuffix('.json')}: {panel['title']}",
                [each["expr"] for each in panel["targets"]],
            )


def _asked(expression: str, period: str) -> str:
    """An expression as Grafana would send it with every variable on All."""
    text = expression.replace("$__rate_interval", "10s").replace("$__range", "40s").replace("$period", period)
    return re.sub(r"\$\w+", ".*", text)


def test_every_panel_shows_the_busy_scenario_on_a_real_prometheus(
    tmp_path: Path, need_tool: Callable[[str, str], str]
) -> None:
    program = need_tool("prometheus", "prometheus")
    with _stack(tmp_path / "lab") as stack, _prometheus(program, tmp_path / "tsdb", stack) as address:
        while stack.elapsed_s < LOOK_AT_S:
            stack.check()
            threading.Event().wait(0.2)
        real_prometheus.wait_for(address, "slicemeter_period_info")
        [period, *_] = sorted(
            {found["metric"]["period"] for found in real_prometheus.ask(address, "slicemeter_period_info")},
            reverse=True,
        )
        empty = {
            name
            for name, expressions in _panels()
            if not any(real_prometheus.ask(address, _asked(each, period)) for each in expressions)
        }
    assert empty - set(EMPTY) == set(), "nothing to show, and no reason is known"
    assert set(EMPTY) <= {name for name, _ in _panels()}
