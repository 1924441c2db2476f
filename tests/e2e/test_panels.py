"""Every panel of every dashboard over the demo's busy scenario: real exporters, accounting and Prometheus.

The lab's whole stack runs, a Prometheus scrapes it each second with `cluster` set by relabelling and with
our rules loaded, their windows cut to seconds. Everything is asked as of one moment of the scenario, at which
named panels must show what the plan comes to by hand. Invariant: a panel that has nothing to show stands in
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
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Moment:
    """A Prometheus, and when it is asked: the same moment of the scenario whoever asks first."""

    address: str
    at_s: float
    period: str

    def ask(self, expression: str, **chosen: str) -> list[dict[str, Any]]:
        """As Grafana would send it, with every variable on All but those that are chosen."""
        text = expression.replace("$__rate_interval", "12s").replace("$__range", "40s")
        for name, value in {"period": self.period, **chosen}.items():
            text = re.sub(rf"\${name}\b", value, text)
        return real_prometheus.ask(self.address, re.sub(r"\$\w+", ".*", text), self.at_s)


@pytest.fixture(scope="module")
def moment(
    tmp_path_factory: pytest.TempPathFactory, need_tool: Callable[[str, str], str]
) -> Iterator[Moment]:
    program = need_tool("prometheus", "prometheus")
    folder = tmp_path_factory.mktemp("panels")
    with _stack(folder / "lab") as stack, _prometheus(program, folder / "tsdb", stack) as address:
        while stack.elapsed_s < LOOK_AT_S:
            stack.check()
            threading.Event().wait(0.2)
        found = real_prometheus.wait_for(address, "slicemeter_period_info")
        assert stack.start_s is not None
        yield Moment(address, stack.start_s + LOOK_AT_S, max(each["metric"]["period"] for each in found))


def test_every_panel_shows_the_busy_scenario_on_a_real_prometheus(moment: Moment) -> None:
    empty = {
        name
        for name, expressions in _panels()
        if not any(moment.ask(expression) for expression in expressions)
    }
    assert empty - set(EMPTY) == set(), "nothing to show, and no reason is known"
    assert set(EMPTY) <= {name for name, _ in _panels()}


MIB = 1_048_576
KEY_FIGURES: tuple[tuple[str, dict[str, str], float], ...] = (
    # Three clusters of one node each; four cards.
    ("fleet: GPU nodes", {}, 3),
    ("fleet: Cards down", {}, 0),
    # A: 3 x 20,000 of 81,920 MiB; B: 2 x 8,000 of 2 x 24,576; C: 3 x 4,000 and 7 x 400 of 15,360.
    ("fleet: Memory allocated", {"cluster": "lab-a"}, 60_000 / 81_920),
    ("fleet: Memory allocated", {"cluster": "lab-b"}, 16_000 / 49_152),
    ("fleet: Memory allocated", {"cluster": "lab-c"}, 14_800 / 15_360),
    ("fleet: Memory allocated", {}, 90_800 / 146_432),
    # A: 3 x 30 %; B: 2 x 50 % of two cards; C: the held slice's 30 %.
    ("fleet: Cores allocated", {"cluster": "lab-a"}, 0.9),
    ("fleet: Cores allocated", {"cluster": "lab-b"}, 0.5),
    ("fleet: Cores allocated", {"cluster": "lab-c"}, 0.3),
    # A: over-memory and over-cores; C: the eleventh.
    ("fleet: Pods waiting", {}, 3),
    ("fleet: Pods waiting", {"cluster": "lab-b"}, 0),
    ("fleet: Reserved", {}, 0),
    ("card: Slots taken", {"cluster": "lab-c"}, 1),
    ("card: Memory allocated", {"cluster": "lab-c"}, 14_800 / 15_360),
    ("card: Memory of no known pod", {"cluster": "lab-c"}, 0),
    # A's lock was removed by hand at 40 s; B's stays for ever.
    ("neighbours: Node locks held", {"cluster": "lab-a"}, 0),
    ("neighbours: Node locks held", {"cluster": "lab-b"}, 1),
    ("neighbours: Pods waiting for a lock", {}, 0),
    ("neighbours: Locks nobody can read", {}, 0),
)


@pytest.mark.parametrize(
    ("name", "chosen", "value"), KEY_FIGURES, ids=[f"{name} {chosen}" for name, chosen, _ in KEY_FIGURES]
)
def test_a_key_panel_shows_what_the_plan_comes_to_by_hand(
    moment: Moment, name: str, chosen: dict[str, str], value: float
) -> None:
    [expression] = dict(_panels())[name]
    found = [float(each["value"][1]) for each in moment.ask(expression, **chosen)]
    assert found == [pytest.approx(value, rel=1e-9)] or (value == 0 and found == [])


def test_the_duty_cycled_slice_shows_its_mean_and_its_memory(moment: Moment) -> None:
    panels = dict(_panels())
    held = {"cluster": "lab-c", "namespace": "research", "pod": "held"}
    # 100 MiB of context and 1,900 allocated, of 4,000 granted.
    memory = {
        each["metric"].get("pod", ""): float(each["value"][1])
        for each in moment.ask(panels["card: Memory in use by slice"][0], cluster="lab-c")
    }
    assert memory["held"] == 2_000 * MIB
    assert memory["idle-1"] == 100 * MIB
    # Whole cycles of twelve samples whose mean is 30 %; a tick more or less at the window's ends.
    [use] = [
        float(each["value"][1])
        for each in moment.ask(panels["card: SM time by slice"][0], **held)
        if each["metric"].get("pod") == "held"
    ]
    assert use == pytest.approx(0.30, abs=0.03)
