"""What the chart may never render, whatever the values: looked at in the golden files, without Helm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.cluster.watching import ClusterWatches
from exporter.hami.annotations.tally import FlawTally
from exporter.kube.access import KubeAccess
from exporter.kube.client import ApiClient
from exporter.kube.watch import ObjectWatch
from exporter.node.watching import NodeWatches
from tests.charts.rendering import CASES, Manifest, containers, golden, pod_of

every_case = pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)


def made_pods(values: Path) -> Iterator[tuple[str, Manifest]]:
    """Name and pod of every object that makes pods."""
    for each in golden(values):
        pod = pod_of(each)
        if pod is not None:
            yield f"{each['kind']}/{each['metadata']['name']}", pod


def hands_over_the_state_folder(container: Manifest) -> bool:
    return bool(container["name"] == "state-folder")


@every_case
def test_nothing_is_privileged_unless_asked(values: Path) -> None:
    privileged = {
        name
        for name, pod in made_pods(values)
        for each in containers(pod)
        if each["securityContext"].get("privileged")
    }
    assert privileged == ({"DaemonSet/slicemeter-node"} if values.stem == "privileged-values" else set())


@every_case
def test_every_container_drops_all_capabilities_and_has_a_read_only_root(values: Path) -> None:
    for name, pod in made_pods(values):
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True, name
        assert pod["spec"]["securityContext"]["runAsUser"] > 0, name
        for each in containers(pod):
            security = each["securityContext"]
            assert security["readOnlyRootFilesystem"] is True, name
            if security.get("privileged"):
                continue
            assert security["allowPrivilegeEscalation"] is False, name
            assert security["capabilities"]["drop"] == ["ALL"], name
            added = security["capabilities"].get("add", [])
            assert added == (["CHOWN"] if hands_over_the_state_folder(each) else []), name
            assert security.get("runAsNonRoot", True) is not hands_over_the_state_folder(each), name


@every_case
def test_every_container_says_what_it_needs_and_no_image_is_the_latest(values: Path) -> None:
    for name, pod in made_pods(values):
        for each in containers(pod):
            assert each["resources"]["requests"].keys() == {"cpu", "memory"}, name
            assert "memory" in each["resources"]["limits"], name
            _, at, digest = each["image"].partition("@")
            tag = each["image"].rpartition("/")[2].partition(":")[2]
            assert digest.startswith("sha256:") if at else tag not in {"", "latest"}, each["image"]


@every_case
def test_only_the_exporters_get_a_token_of_the_api_server(values: Path) -> None:
    for name, pod in made_pods(values):
        is_exporter = containers(pod)[-1]["args"][0] == "exporter"
        assert pod["spec"]["automountServiceAccountToken"] is is_exporter, name
    for each in golden(values):
        if each["kind"] == "ServiceAccount":
            assert each["automountServiceAccountToken"] is False


@every_case
def test_only_the_node_role_sees_the_host_and_writes_nothing_there_but_its_state(values: Path) -> None:
    for name, pod in made_pods(values):
        is_node = name.startswith("DaemonSet/")
        spec = pod["spec"]
        assert spec.get("hostPID", False) is is_node, name
        assert not spec.get("hostNetwork"), name
        assert not spec.get("hostIPC"), name
        host = {each["name"] for each in spec["volumes"] if "hostPath" in each}
        assert is_node or not host, name
        writable = {
            mount["name"]
            for each in containers(pod)
            for mount in each["volumeMounts"]
            if not mount.get("readOnly")
        }
        assert host & writable <= {"state"}, name


@every_case
def test_no_pod_reads_services_from_its_environment(values: Path) -> None:
    """A Service called slicemeter-… would else set variables that look like our settings."""
    for name, pod in made_pods(values):
        assert pod["spec"]["enableServiceLinks"] is False, name


@every_case
def test_no_secret_stands_in_an_argument_or_a_plain_variable(values: Path) -> None:
    for name, pod in made_pods(values):
        for each in containers(pod):
            for text in [*each.get("args", []), *(one.get("value", "") for one in each.get("env", []))]:
                assert "smt_" not in text, name
                assert "password" not in text.lower(), name
                assert "@" not in text, f"{name}: an address with a password? {text}"


def watches_of(role: object) -> set[str]:
    """The resources that a role's watches list and watch."""
    return {each.name for each in vars(role).values() if isinstance(each, ObjectWatch)}


@every_case
def test_each_role_may_do_exactly_what_its_watches_ask(values: Path) -> None:
    """List and watch of what the code watches, and no other verb, resource or API group."""
    client = ApiClient(KubeAccess("https://127.0.0.1:1"))
    node = NodeWatches(client, "n", may_all_be_gone=lambda: False, flaws=FlawTally())
    watched = {"node": watches_of(node), "cluster": watches_of(ClusterWatches(client, lambda: None))}
    roles = {
        each["metadata"]["name"]: each["rules"] for each in golden(values) if each["kind"] == "ClusterRole"
    }
    if values.stem in {"accounting-only-values", "no-walls-values"}:
        assert roles == {}
        return
    assert len(roles) == 2
    for name, rules in roles.items():
        [rule] = rules
        assert rule["apiGroups"] == [""]
        assert set(rule["resources"]) == watched[name.rpartition("-")[2]]
        assert set(rule["verbs"]) == {"list", "watch"}
    assert not [each for each in golden(values) if each["kind"] in {"Role", "RoleBinding"}]


@every_case
def test_every_pod_but_the_check_stands_behind_a_network_policy(values: Path) -> None:
    policies = [each["spec"] for each in golden(values) if each["kind"] == "NetworkPolicy"]
    if values.stem == "no-walls-values":
        assert policies == []
        return
    for name, pod in made_pods(values):
        if name.startswith("Pod/"):
            continue
        labels = pod["metadata"]["labels"].items()
        chosen = [each for each in policies if each["podSelector"]["matchLabels"].items() <= labels]
        assert len(chosen) == 1, name
        assert chosen[0]["policyTypes"] == ["Ingress", "Egress"]


def test_nothing_reaches_a_tenant_cluster_from_outside() -> None:
    [values] = [each for each in CASES if each.stem == "tenant-cluster-values"]
    found = golden(values)
    policies = [each["spec"] for each in found if each["kind"] == "NetworkPolicy"]
    assert len(policies) == 2
    assert all(each["ingress"] == [] for each in policies)
    assert not [
        each for each in found if each["kind"] in {"Service", "Ingress", "ServiceMonitor", "PodMonitor"}
    ]
    for policy in policies:
        ports = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
        assert ports == {53, 443, 6443, 8443}


@every_case
def test_selectors_find_their_pods_and_no_others(values: Path) -> None:
    found = golden(values)
    made = [(name, pod["metadata"]["labels"].items()) for name, pod in made_pods(values)]
    for each in found:
        if each["kind"] not in {"DaemonSet", "Deployment", "PodMonitor", "PodDisruptionBudget", "Service"}:
            continue
        spec = each["spec"]
        selector = spec["selector"] if each["kind"] == "Service" else spec["selector"]["matchLabels"]
        names = [name for name, labels in made if selector.items() <= labels]
        assert len(names) == 1, f"{each['kind']} {each['metadata']['name']}: {names}"


@every_case
def test_monitors_keep_our_labels_send_the_token_and_name_the_cluster(values: Path) -> None:
    secrets = {each["metadata"]["name"]: each["data"] for each in golden(values) if each["kind"] == "Secret"}
    monitors = [each for each in golden(values) if each["kind"] in {"PodMonitor", "ServiceMonitor"}]
    for each in monitors:
        for endpoint in each["spec"].get("podMetricsEndpoints", each["spec"].get("endpoints")):
            assert endpoint["honorLabels"] is True
            if values.stem != "accounting-only-values":
                [relabelling] = endpoint["relabelings"]
                assert relabelling == {"action": "replace", "targetLabel": "cluster", "replacement": "berlin"}
            is_open = values.stem == "settings-values" and each["kind"] == "ServiceMonitor"
            if is_open:
                assert "authorization" not in endpoint
                continue
            credentials = endpoint["authorization"]["credentials"]
            wanted = "accounting-token" if each["kind"] == "ServiceMonitor" else "token"
            assert credentials["key"] == wanted
            if values.stem != "existing-secrets-values":
                assert wanted in secrets[credentials["name"]]


def test_where_secrets_are_named_none_is_made() -> None:
    [values] = [each for each in CASES if each.stem == "existing-secrets-values"]
    assert [each for each in golden(values) if each["kind"] == "Secret"] == []
