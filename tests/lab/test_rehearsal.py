"""The rehearsal: one factor for all that a rule measures in time, and a judge that misses nothing."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import yaml

from dashboards.rules.routing import Channel, alertmanager_config
from dashboards.rules.rule import Alert
from dashboards.rules.table import groups
from dashboards.thresholds import DEFAULT
from lab.rehearsal.receiver import Receiver
from lab.rehearsal.rehearsal import Outcome, _judge
from lab.rehearsal.scene import Expected, Scene, says
from lab.rehearsal.scenes import NOISY, OTHER_TEAM, SCENES, TEAM
from lab.rehearsal.table import faults, outcome_table
from lab.rehearsal.tempo import Tempo
from lab.scenarios.plan import Scenario
from slicemeter.rules import main

ALERTS: dict[tuple[str, str], Alert] = {
    (alert.name, alert.severity): alert for group in groups() for alert in group.alerts()
}
CHANNEL = Channel("vision", ("vision", "institute/vision"), "http://127.0.0.1:1/hook")
PLATFORM = {"webhook_configs": [{"url": "http://127.0.0.1:1/platform"}]}


@pytest.mark.parametrize(
    ("text", "shorter"),
    [
        ("rate(x[5m])", "rate(x[5000ms])"),
        ("max_over_time(x[1h])", "max_over_time(x[60000ms])"),
        ("x offset 6h", "x offset 360000ms"),
        ("  for: 15m", "  for: 15000ms"),
        ("  for: 0s", "  for: 0s"),
        ("of the last 15 minutes, in 5m", "of the last 15 minutes, in 5m"),
    ],
)
def test_a_minute_of_every_range_offset_and_wait_becomes_a_second_and_nothing_else_changes(
    text: str, shorter: str
) -> None:
    assert Tempo(1).shortened(text) == shorter


def test_thresholds_in_seconds_shrink_by_the_same_factor_and_no_other_does() -> None:
    quick, slow = Tempo(1).thresholds(), Tempo(60).thresholds()
    assert slow == DEFAULT
    assert (quick.lock_held_seconds, quick.lock_timeout_seconds, quick.xid_window_seconds) == (1, 5, 10)
    assert (quick.busy_ratio, quick.lock_timeout_window) == (DEFAULT.busy_ratio, DEFAULT.lock_timeout_window)


def test_shortened_rules_are_rules(tmp_path: Path, need_tool: Callable[[str, str], str]) -> None:
    promtool = need_tool("promtool", "prometheus")
    for name, text in Tempo(1).rules().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [promtool, "check", "rules", *tmp_path.iterdir()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_scene_of_the_issue_is_there_and_expects_alerts_that_exist() -> None:
    assert {scene.name for scene in SCENES} == {
        "quiet", "busy", "noisy-neighbour", "node-lock-storm", "leaked-lock", "unreadable-lock",
        "webhook-down", "memory-limit-loop", "first-xid", "exporter-dead", "cluster-role-dead", "api-gone",
        "over-budget",
    }  # fmt: skip
    for scene in SCENES:
        for expected in scene.expected:
            alert = ALERTS[expected.labels["alertname"], expected.labels["severity"]]
            assert bool(alert.tenant_text) == bool(expected.tenant_text), expected.name


def test_a_tenants_copy_of_the_noisy_alert_says_another_slice_and_names_nobody_else() -> None:
    assert "another slice" in NOISY.tenant_text
    assert OTHER_TEAM in NOISY.text
    assert OTHER_TEAM not in NOISY.tenant_text


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("uses 42% of card", True),
        ("uses % of card", False),
        ("uses 42% of card x", False),
        ("Uses 42% of card", False),
    ],
)
def test_a_pattern_leaves_open_only_what_the_moment_decides(text: str, fits: bool) -> None:
    assert says("uses …% of card", text) is fits


def test_the_routing_is_a_configuration_of_alertmanager(
    tmp_path: Path, need_tool: Callable[[str, str], str]
) -> None:
    amtool = need_tool("amtool", "prometheus-alertmanager")
    path = tmp_path / "alertmanager.yml"
    path.write_text(alertmanager_config(PLATFORM, [CHANNEL]), encoding="utf-8")
    done = subprocess.run([amtool, "check-config", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        (["alertname=SlicemeterNoisyNeighbour", "tenant=vision"], "tenant-vision,platform"),
        (["alertname=SlicemeterBudgetNearlyUsed", "tenant=institute/vision"], "tenant-vision,platform"),
        (["alertname=SlicemeterNoisyNeighbour", "tenant=vision2"], "platform"),
        (["alertname=SlicemeterNoisyNeighbour", "tenant=other/vision"], "platform"),
        (["alertname=SlicemeterNodeLockBlocking"], "platform"),
    ],
)
def test_a_tenant_is_told_what_is_theirs_and_the_platform_is_told_everything(
    tmp_path: Path, need_tool: Callable[[str, str], str], labels: list[str], receivers: str
) -> None:
    amtool = need_tool("amtool", "prometheus-alertmanager")
    path = tmp_path / "alertmanager.yml"
    path.write_text(alertmanager_config(PLATFORM, [CHANNEL]), encoding="utf-8")
    argv = [amtool, "config", "routes", "test", f"--config.file={path}", *labels]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == receivers, done.stderr


def test_a_dead_exporter_silences_its_node_but_not_the_locks_there() -> None:
    document = yaml.safe_load(alertmanager_config(PLATFORM, [CHANNEL]))
    [dead, failing] = document["inhibit_rules"]
    assert dead["target_matchers"] == ['alertname =~ "Slicemeter.+"', 'alertname !~ "SlicemeterNodeLock.+"']
    assert dead["equal"] == ["cluster", "node"]
    assert failing["equal"] == ["cluster", "node", "device_uuid"]
    named = set(failing["target_matchers"][0].split('"')[1].split("|"))
    assert named <= {name for name, _ in ALERTS}


def _nothing(_minute_s: int) -> Scenario:
    raise AssertionError("not played")


def _posted(receiver: Receiver, path: str, document: object) -> None:
    request = Request(f"{receiver.url}{path}", json.dumps(document).encode(), method="POST")
    with urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def _alert(labels: Mapping[str, str], text: str, status: str = "firing") -> dict[str, object]:
    page = f"docs/runbooks/{labels['alertname'].lower()}.md"
    return {"status": status, "labels": labels, "annotations": {"description": text, "runbook_url": page}}


WANTED = Expected(
    {"alertname": "SlicemeterXid", "severity": "info", "tenant": TEAM}, "seen … ago", "yours, … ago"
)
SCENE = Scene("xid", "one error", _nothing, 5, (WANTED,))


def _judged(platform: list[dict[str, object]], told: str) -> Outcome:
    receiver = Receiver()
    receiver.start()
    try:
        _posted(receiver, "/platform", {"alerts": platform})
        _posted(receiver, f"/tenant/{TEAM}", {"attachments": [{"title": "An error", "text": told}]})
        return _judge(SCENE, Tempo(1), time.time(), receiver, (TEAM, OTHER_TEAM))
    finally:
        receiver.stop()


def test_what_arrives_as_expected_is_right() -> None:
    outcome = _judged([_alert(WANTED.all_labels, "seen 3s ago")], "yours, 3s ago")
    assert outcome.is_right
    assert list(faults(outcome)) == []
    assert outcome_table([outcome]).row_count == 1


@pytest.mark.parametrize(
    ("platform", "told", "fault"),
    [
        ([], "yours, 3s ago", "Xid: never arrived"),
        ([_alert(WANTED.all_labels, "seen")], "yours, 3s ago", "Xid: says: seen"),
        ([_alert(WANTED.all_labels, "seen 3s ago", "resolved")], "yours, 3s ago", "Xid: never arrived"),
        ([_alert(WANTED.all_labels, "seen 3s ago")], "", "Xid: the tenant's own channel was not told so"),
    ],
)
def test_what_is_missing_or_worded_otherwise_is_named(
    platform: list[dict[str, object]], told: str, fault: str
) -> None:
    outcome = _judged(platform, told)
    assert not outcome.is_right
    assert list(faults(outcome)) == [fault]


def test_one_alert_too_many_and_a_tenants_message_that_names_another_are_faults() -> None:
    labels = {**WANTED.all_labels, "node": "gpu-2"}
    outcome = _judged(
        [_alert(WANTED.all_labels, "seen 3s ago"), _alert(labels, "more")],
        f"yours, 3s ago\n{OTHER_TEAM}/serve",
    )
    assert not outcome.is_right
    [extra, leak] = faults(outcome)
    assert extra.startswith("not expected: alertname=SlicemeterXid")
    assert leak.startswith(f"a tenant read too much: {TEAM} was told of {OTHER_TEAM}")


def test_an_alert_is_kept_once_as_it_first_arrived() -> None:
    receiver = Receiver()
    receiver.take("/platform", json.dumps({"alerts": [_alert(WANTED.all_labels, "first")]}).encode())
    receiver.take("/platform", json.dumps({"alerts": [_alert(WANTED.all_labels, "again")]}).encode())
    receiver.stop()
    assert [notice.annotations["description"] for notice in receiver.notices()] == ["first"]


def test_the_command_lists_scenes_and_names_one_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rehearse", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        each.name for each in SCENES
    ]
    assert main(["rehearse", "storm"]) == 2
    assert 'no scene "storm"; they are: quiet, busy' in capsys.readouterr().err


def test_a_missing_program_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main(["rehearse", "quiet"]) == 2
    assert "prometheus is missing; on Debian: apt-get install prometheus" in capsys.readouterr().err
