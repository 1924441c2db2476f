"""With a Helm at hand: what the chart renders now is what the goldens say, by every Helm there is."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from tests.charts.rendering import (
    CASES,
    CHART,
    KUBERNETES,
    RENEW,
    SOURCES,
    canonical,
    golden_of,
    helms,
    objects,
    run,
    sources,
    template,
)

PROGRAMS = helms()
with_helm = pytest.mark.skipif(not PROGRAMS, reason="needs helm on the PATH, $HELM, or `make chart-tools`")
each_helm = pytest.mark.parametrize("helm", PROGRAMS or [Path("helm")], ids=lambda path: path.parent.name)
each_case = pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)


def test_the_goldens_are_those_of_this_chart() -> None:
    assert SOURCES.read_text(encoding="utf-8") == sources(), f"the chart changed; run: {RENEW}"


def test_every_file_of_values_has_its_golden_and_no_golden_is_left_over() -> None:
    assert {golden_of(values) for values in CASES} == set(SOURCES.parent.glob("*.yaml"))


@with_helm
@each_helm
@each_case
def test_rendering_equals_the_golden(helm: Path, values: Path) -> None:
    assert canonical(template(helm, values)) == golden_of(values).read_text(encoding="utf-8"), f"run: {RENEW}"


@with_helm
@each_helm
@each_case
def test_lint_has_nothing_to_say(helm: Path, values: Path) -> None:
    done = run(helm, "lint", "--strict", "--kube-version", KUBERNETES[1], "-f", values, CHART)
    assert done.returncode == 0, done.stdout + done.stderr


@with_helm
@each_helm
@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_every_version_of_kubernetes_gets_the_same(helm: Path, kubernetes: str) -> None:
    for values in CASES[:2]:
        rendered = canonical(template(helm, values, kubernetes=kubernetes))
        assert rendered == golden_of(values).read_text(encoding="utf-8")


@with_helm
@each_helm
def test_a_kubernetes_that_is_too_old_is_refused(helm: Path) -> None:
    done = run(helm, "template", "s", CHART, "--set", "clusterName=c", "--kube-version", "1.24.0")
    assert done.returncode != 0
    assert "1.25" in done.stderr


@with_helm
@each_helm
@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ("clusterNam=berlin", "clusterNam"),
        ("clusterName=Berlin", "clusterName"),
        ("node.image=x", "image"),
        ("node.state.mode=magic", "mode"),
        ("node.runAsUser=0", "runAsUser"),
        ("images.exporter.tag=latest", "tag"),
        ("rules.thresholds.nearLimit=0.9", "nearLimit"),
        ("rules.thresholds.nearLimitRatio=high", "nearLimitRatio"),
        ("rules.grafanaUrl=https://grafana.example/", "grafanaUrl"),
        ("accounting.database.kind=mysql", "kind"),
        ("accounting.port=0", "port"),
        ("reporting.url=accounting:8476", "url"),
        ("exporter.pushIntervalSeconds=0", "pushIntervalSeconds"),
        ("monitors.enabled=true", "enabled"),
        ("networkPolicy.apiServerPorts={}", "apiServerPorts"),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(helm: Path, wrong: str, key: str) -> None:
    done = run(
        helm, "template", "s", CHART, "--kube-version", "1.31.0", "--set", "clusterName=c", "--set", wrong
    )
    assert done.returncode != 0
    assert key in done.stderr


@with_helm
@each_helm
@pytest.mark.parametrize(
    ("contradiction", "key"),
    [
        ("clusterName=", "clusterName"),
        ("reporting.signIn=secret", "reporting.tokenSecret"),
        ("accounting.replicas=2", "accounting.replicas"),
        ("accounting.database.kind=postgresql", "accounting.database.existingSecret"),
        ("accounting.ingress.enabled=true", "accounting.ingress.host"),
        ("node.enabled=false,cluster.enabled=false,accounting.enabled=false", "node.enabled"),
    ],
)
def test_values_that_contradict_each_other_are_refused_with_the_key_and_the_way_out(
    helm: Path, contradiction: str, key: str
) -> None:
    done = run(
        helm,
        "template",
        "s",
        CHART,
        "--kube-version",
        "1.31.0",
        "--set",
        "clusterName=c",
        "--set",
        contradiction,
    )
    assert done.returncode != 0
    assert key in done.stderr


@with_helm
@each_helm
def test_monitors_wait_for_the_operators_kinds_unless_forced(helm: Path) -> None:
    [values] = [each for each in CASES if each.stem == "default-values"]
    kinds = {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
    assert not kinds & {each["kind"] for each in objects(template(helm, values))}
    known = [
        word for kind in sorted(kinds) for word in ("--api-versions", f"monitoring.coreos.com/v1/{kind}")
    ]
    assert kinds <= {each["kind"] for each in objects(template(helm, values, *known))}


@with_helm
@each_helm
def test_the_dashboards_travel_byte_by_byte(helm: Path) -> None:
    [values] = [each for each in CASES if each.stem == "default-values"]
    found = {
        name: text
        for each in objects(template(helm, values))
        if each["kind"] == "ConfigMap"
        for name, text in each["data"].items()
    }
    files = sorted((CHART / "files" / "dashboards").glob("*.json"))
    assert len(files) == 8
    assert found == {
        f"slicemeter-{path.name}": path.read_text(encoding="utf-8").rstrip("\n") for path in files
    }


@with_helm
@each_helm
def test_tokens_are_made_anew_for_each_installation_and_look_as_the_program_wants_them(helm: Path) -> None:

    [values] = [each for each in CASES if each.stem == "default-values"]
    made = []
    for _ in range(2):
        secrets = [each for each in objects(template(helm, values)) if each["kind"] == "Secret"]
        made.append([base64.b64decode(text).decode() for each in secrets for text in each["data"].values()])
    admin, accounting, scrape = made[0]
    assert re.fullmatch(r"smt_[0-9a-f]{12}_[0-9a-f]{64}", admin)
    assert len({admin, accounting, scrape, *made[1]}) == 6
    assert min(map(len, (accounting, scrape))) == 48
