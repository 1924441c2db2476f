"""What the chart gives the roles, taken from its own golden files, and what a cluster of it holds."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.real_kube.roles import NODE, REGISTER, Role
from tests.real_kube.servers import NAMESPACE, Object, RealCluster

GOLDEN = Path(__file__).resolve().parents[1] / "charts" / "golden"
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")


def chart(name: str = "all-in-one") -> list[Object]:
    """The objects that the chart renders for a file of values."""
    text = (GOLDEN / f"{name}.yaml").read_text("utf-8")
    return [each for each in yaml.safe_load_all(text) if each]


def rights() -> list[Object]:
    """The chart's ServiceAccounts, ClusterRoles and bindings."""
    return [each for each in chart() if each["kind"] in RIGHTS]


def role_of(role: Role) -> Object:
    """The chart's ClusterRole of a role."""
    [found] = [
        each
        for each in rights()
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] == account(role)
    ]
    return found


def account(role: Role) -> str:
    """The ServiceAccount under which the chart runs a role."""
    return f"slicemeter-{role}"


def install(cluster: RealCluster) -> None:
    """What a cluster holds before anything happens."""
    cluster.add_namespace(NAMESPACE)
    cluster.apply(*rights())
    cluster.add_namespace("team", "tenant-a")
    cluster.add_node(NODE, REGISTER)
