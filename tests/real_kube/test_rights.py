"""Both roles work with exactly the rights that the chart gives them, on a genuine API server with RBAC."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.real_kube.chart import GOLDEN, account, chart, role_of
from tests.real_kube.roles import CARD, GRANTED, NODE, Role, check, running
from tests.real_kube.servers import NAMESPACE, RealCluster

pytestmark = pytest.mark.real_kube
ROLES: tuple[Role, ...] = ("node", "cluster")
EVERYBODY = {
    # What Kubernetes lets every ServiceAccount ask about itself (system:basic-user).
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
}
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
MORE = (
    ("", "pods", "log", "get"),
    ("", "pods", "exec", "create"),
    ("", "pods", "binding", "create"),
    ("", "pods", "eviction", "create"),
    ("", "nodes", "proxy", "get"),
    ("", "nodes", "status", "patch"),
    ("", "serviceaccounts", "token", "create"),
    ("", "users", "", "impersonate"),
    ("", "groups", "", "impersonate"),
    ("rbac.authorization.k8s.io", "clusterroles", "", "bind"),
    ("rbac.authorization.k8s.io", "clusterroles", "", "escalate"),
)


@pytest.fixture(scope="module", autouse=True)
def job(cluster: RealCluster) -> None:
    """Something to see."""
    cluster.add_pod("team", "job", NODE, CARD)


@pytest.fixture
def token_file(cluster: RealCluster, tmp_path: Path, role: Role) -> Path:
    path = tmp_path / "token"
    path.write_text(cluster.token_of(account(role)))
    return path


@pytest.mark.parametrize("role", ["node"])
def test_the_node_role_shows_its_slices_with_the_charts_rights(
    cluster: RealCluster, tmp_path: Path, token_file: Path
) -> None:
    with running(cluster, "node", tmp_path, token_file) as exporter:
        page = exporter.wait_for(lambda page: page.find("slice_info", pod="job"), "the slice is shown")
        assert page.one("slice_memory_allocated_bytes", pod="job") == 4_000 * 1_048_576
        assert page.labels("slice_memory_allocated_bytes", pod="job")[0]["tenant"] == "tenant-a"
        for name in GRANTED["node"]:
            assert page.one("collector_success", collector=name) == 1, name


@pytest.mark.parametrize("role", ["cluster"])
def test_the_cluster_role_shows_the_cluster_with_the_charts_rights(
    cluster: RealCluster, tmp_path: Path, token_file: Path
) -> None:
    with running(cluster, "cluster", tmp_path, token_file) as exporter:
        page = exporter.wait_for(
            lambda page: page.one("node_gpu_slots", node=NODE, state="allocated"), "the slice is counted"
        )
        assert page.one("node_gpu_memory_bytes", node=NODE, state="allocated") == 4_000 * 1_048_576
        page = exporter.wait_for(
            lambda page: all(page.one("collector_success", collector=name) for name in GRANTED["cluster"]),
            "all five watches are well",
        )
        assert page.one("annotation_errors_total", kind="node-register", reason="bad_number") == 0


@pytest.mark.parametrize("role", ROLES)
def test_the_check_finds_nothing_wrong_with_the_api(
    cluster: RealCluster, tmp_path: Path, token_file: Path, role: Role
) -> None:
    lines = checked(check(cluster, role, tmp_path, token_file))
    assert {
        name: each["verdict"] for name, each in lines.items() if name.startswith("kubernetes ")
    } == dict.fromkeys(["kubernetes api", *(f"kubernetes {name}" for name in GRANTED[role])], "ok")


def checked(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    assert done.stdout, done.stderr
    return {line["check"]: line for line in json.loads(done.stdout)["checks"]}


@contextmanager
def without(cluster: RealCluster, role: Role, resource: str, verb: str) -> Iterator[None]:
    """The chart's rights of a role but for one verb on one resource."""
    mine = role_of(role)
    names = GRANTED[role]
    others = [name for name in names if name != resource]
    rules = [
        {"apiGroups": [""], "resources": others, "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": [resource], "verbs": ["watch" if verb == "list" else "list"]},
    ]
    cluster.apply(mine | {"rules": rules})
    try:
        yield
    finally:
        cluster.apply(mine)


@pytest.mark.parametrize(
    ("role", "right"),
    [(role, (name, verb)) for role in ROLES for name in GRANTED[role] for verb in ("list", "watch")],
)
def test_each_verb_that_is_taken_away_alone_is_named(
    cluster: RealCluster, tmp_path: Path, token_file: Path, role: Role, right: tuple[str, str]
) -> None:
    resource, verb = right
    with without(cluster, role, resource, verb):
        lines = checked(check(cluster, role, tmp_path, token_file))
    line = lines[f"kubernetes {resource}"]
    assert line["verdict"] == "finding", line
    assert line["detail"].startswith(f"{verb}: "), line
    assert f'cannot {verb} resource "{resource}"' in line["detail"], line
    assert f"list and watch on {resource}" in line["way_out"], line
    others = {name for name in GRANTED[role] if name != resource}
    assert {name for name in others if lines[f"kubernetes {name}"]["verdict"] == "ok"} == others


@pytest.mark.parametrize("role", ["cluster"])
def test_a_role_that_loses_a_right_while_it_runs_says_so_and_goes_on_when_it_is_back(
    cluster: RealCluster, tmp_path: Path, token_file: Path
) -> None:
    with (
        without(cluster, "cluster", "pods", "list"),
        running(cluster, "cluster", tmp_path, token_file) as exporter,
    ):
        exporter.wait_for(
            lambda page: (
                page.one("collector_success", collector="nodes") == 1
                and page.one("collector_success", collector="pods") == 0
            ),
            "only pods fail",
        )
        status, text = exporter.get("/readyz")
        assert status == 503
        assert 'cannot list resource \\"pods\\"' in text, text
        cluster.apply(role_of("cluster"))
        exporter.wait_for(lambda page: page.one("collector_success", collector="pods") == 1, "pods are back")


@pytest.mark.parametrize("role", ROLES)
def test_every_other_verb_on_every_resource_is_refused(
    cluster: RealCluster, token_file: Path, role: Role
) -> None:
    """The server's own judgement over all that it serves, asked by the ServiceAccount itself."""
    token = token_file.read_text()
    asked = [*served(cluster), *MORE]
    allowed = {
        (group, f"{resource}/{part}" if part else resource, verb)
        for group, resource, part, verb in asked
        if may(cluster, token, (group, resource, part, verb))
    }
    granted = {("", resource, verb) for resource in GRANTED[role] for verb in ("list", "watch")}
    assert len(asked) > 300
    assert allowed == granted | EVERYBODY


def served(cluster: RealCluster) -> Iterator[tuple[str, str, str, str]]:
    """Group, resource, subresource and verb of everything that the server serves."""
    paths = ["/api/v1"]
    groups = cluster.ask("GET", "/apis").body["groups"]
    paths += [f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups]
    for path in paths:
        found = cluster.ask("GET", path).body
        group = found["groupVersion"].rpartition("/")[0]
        for each in found["resources"]:
            resource, _, part = each["name"].partition("/")
            for verb in VERBS:
                yield group, resource, part, verb


def may(cluster: RealCluster, token: str, asked: tuple[str, str, str, str]) -> bool:
    group, resource, part, verb = asked
    attributes = {"group": group, "resource": resource, "subresource": part, "verb": verb}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = cluster.ask("POST", path, review, token=token)
    assert answer.status == 201, answer.body
    return bool(answer.body["status"]["allowed"])


@pytest.mark.parametrize("role", ROLES)
def test_what_would_harm_is_refused_when_it_is_really_tried(
    cluster: RealCluster, token_file: Path, role: Role
) -> None:
    token = token_file.read_text()
    pod = "/api/v1/namespaces/team/pods/job"
    tried = [
        ("GET", pod, None),
        ("GET", "/api/v1/secrets", None),
        ("GET", "/api/v1/configmaps", None),
        ("GET", f"{pod}/log", None),
        ("POST", f"{pod}/exec?command=id&stdout=true", None),
        ("GET", f"/api/v1/nodes/{NODE}/proxy/pods", None),
        ("DELETE", pod, {}),
        ("PATCH", f"/api/v1/nodes/{NODE}", {"metadata": {"annotations": {"hami.io/mutex.lock": None}}}),
        ("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account(role)}/token", {}),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {}),
        ("GET", "/metrics", None),
    ]
    for method, path, body in tried:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = cluster.ask(method, path, body, token=token, media_type=kind)
        assert answer.status == 403, (method, path, answer)
    assert cluster.ask("GET", pod).status == 200, "it is still there"
    if role == "node":
        for name in ("events", "resourcequotas"):
            assert cluster.ask("GET", f"/api/v1/{name}", token=token).status == 403


@pytest.mark.parametrize("values", sorted(path.stem for path in GOLDEN.glob("*.yaml")))
def test_everything_that_the_chart_renders_is_valid_for_the_server(cluster: RealCluster, values: str) -> None:
    """Strictly: an unknown or doubled field is an error. What needs operators' own types is left out."""
    known = {"v1", "apps/v1", "batch/v1", "networking.k8s.io/v1", "policy/v1", "rbac.authorization.k8s.io/v1"}
    objects = [each for each in chart(values) if each["apiVersion"] in known]
    left_out = {each["kind"] for each in chart(values)} - {each["kind"] for each in objects}
    assert left_out <= {"PodMonitor", "ServiceMonitor", "PrometheusRule", "Gateway", "HTTPRoute"}, left_out
    stream = "\n".join(json.dumps(each) for each in objects)
    done = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=stream)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(server dry run)") == len(objects)
