"""Every argument and variable that the chart gives is one that the programs take, and its value too."""

from __future__ import annotations

from pathlib import Path

import pytest

from accounting.access.trust import DEFAULT_AUDIENCE, DEFAULT_CLUSTER_EXPORTER, DEFAULT_NODE_EXPORTER
from exporter.settings import load_cluster_settings, load_node_settings
from exporter.settings_page import settings_page
from slicemeter.accounting import main as accounting
from tests.charts.rendering import CASES, CHART, Manifest, containers, golden, pod_of

every_case = pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)

# Not ours: the container runtime's, the server's (uvicorn) and the system's.
FOREIGN = {
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "FORWARDED_ALLOW_IPS",
    "HOME",
    "KUBERNETES_SERVICE_HOST",
}


def programs(values: Path, part: str) -> list[Manifest]:
    """The containers that run one part of the program."""
    pods = [pod for each in golden(values) if (pod := pod_of(each)) is not None]
    return [each for pod in pods for each in containers(pod) if each.get("args", [""])[0] == part]


def variables(container: Manifest) -> dict[str, str]:
    """The environment, with what the kubelet adds; what comes from elsewhere is called like a node."""
    given = {each["name"]: each.get("value", "node-1") for each in container["env"]}
    return {"KUBERNETES_SERVICE_HOST": "10.96.0.1", **given}


@every_case
def test_the_exporters_settings_are_accepted_and_every_variable_is_one_of_them(values: Path) -> None:
    known = set(_settings())
    for container in programs(values, "exporter"):
        environment = variables(container)
        assert set(environment) - FOREIGN <= known
        role = container["args"][-1]
        if role == "node":
            assert load_node_settings([], environment).node_name == "node-1"
        else:
            assert role == "cluster"
            load_cluster_settings([], environment)


def test_a_large_number_arrives_without_an_exponent() -> None:
    [values] = [each for each in CASES if each.stem == "settings-values"]
    [node] = [each for each in programs(values, "exporter") if each["args"] == ["exporter", "node"]]
    settings = load_node_settings([], variables(node))
    assert settings.series_budget == 5_000_000
    assert settings.sample_interval_seconds == 0.5


def test_the_chart_offers_every_setting_of_the_exporter_or_sets_it_itself() -> None:
    [values] = [each for each in CASES if each.stem == "settings-values"]
    [tls] = [each for each in CASES if each.stem == "tls-values"]
    [tenant] = [each for each in CASES if each.stem == "tenant-cluster-values"]
    given = {
        name
        for case in (values, tls, tenant)
        for each in programs(case, "exporter")
        for name in variables(each)
    }
    left_to_the_pod = {f"SLICEMETER_{each}" for each in ("LISTEN_HOST", "KUBE_API_URL", "KUBE_CA_FILE")}
    left_to_the_pod |= {"SLICEMETER_KUBE_TOKEN_FILE", "SLICEMETER_PROC_ROOT"}
    assert set(_settings()) - given == left_to_the_pod


def _settings() -> list[str]:
    rows = [line.split("`")[1] for line in settings_page().splitlines() if line.startswith("| `")]
    return [f"SLICEMETER_{each.upper()}" for each in rows]


@every_case
def test_accountings_arguments_are_options_of_its_commands(
    values: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for container in programs(values, "accounting"):
        command, *rest = container["args"][1:]
        with pytest.raises(SystemExit) as ended:
            accounting([command, *rest, "--help"])
        assert ended.value.code == 0
        offered = capsys.readouterr().out
        for option in [each for each in rest if each.startswith("--")]:
            assert option.partition("=")[0] in offered, option
        # What is no option at all is refused before any database is opened.
        with pytest.raises(SystemExit) as ended:
            accounting([command, *rest, "--no-such-option"])
        assert ended.value.code == 2
        assert "--no-such-option" in capsys.readouterr().err


def test_the_names_of_a_plain_installation_are_those_that_a_cluster_is_trusted_with_by_default() -> None:
    [values] = [each for each in CASES if each.stem == "default-values"]
    accounts = {
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        for each in golden(values)
        if each["kind"] == "ServiceAccount"
    }
    assert {DEFAULT_NODE_EXPORTER, DEFAULT_CLUSTER_EXPORTER} < accounts
    tokens = [
        source["serviceAccountToken"]["audience"]
        for each in golden(values)
        if (pod := pod_of(each)) is not None
        for volume in pod["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
    ]
    assert set(tokens) == {DEFAULT_AUDIENCE}
    assert len(tokens) == 3


def test_the_notes_name_commands_that_there_are() -> None:
    notes = (CHART / "templates" / "NOTES.txt").read_text(encoding="utf-8")
    for words in ("account add", "cluster add", "cluster trust", "exporter check"):
        assert f"slicemeter {'' if words.startswith('exporter') else 'accounting '}{words}" in notes
