"""List and watch on a genuine API server: restarts, a real compaction, tokens that expire."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exporter.node.stand import Page
from tests.real_kube.chart import account
from tests.real_kube.roles import CARD, NODE, Exporter, Role, running
from tests.real_kube.servers import RealCluster, wait_until

pytestmark = pytest.mark.real_kube
ROLES: tuple[Role, ...] = ("node", "cluster")


@pytest.fixture(autouse=True)
def clean(cluster: RealCluster) -> Iterator[None]:
    """No pods of the test before."""
    yield
    for each in cluster.ask("GET", "/api/v1/namespaces/team/pods").body["items"]:
        cluster.delete(f"/api/v1/namespaces/team/pods/{each['metadata']['name']}")


def slots(role: Role, page: Page) -> int:
    """How many slices a page shows."""
    if role == "node":
        return len(page.find("slice_info"))
    return int(page.one("node_gpu_slots", node=NODE, state="allocated") or 0)


def is_well(page: Page) -> bool:
    return page.one("collector_success", collector="pods") == 1


def put_token(path: Path, token: str) -> None:
    """As the kubelet does: another file in the place of the old one."""
    new = path.with_suffix(".new")
    new.write_text(token)
    new.replace(path)


@pytest.fixture
def token_file(cluster: RealCluster, tmp_path: Path, role: Role) -> Path:
    path = tmp_path / "token"
    path.write_text(cluster.token_of(account(role)))
    return path


@pytest.fixture
def exporter(cluster: RealCluster, tmp_path: Path, token_file: Path, role: Role) -> Iterator[Exporter]:
    """A role that has seen one slice."""
    cluster.add_pod("team", "first", NODE, CARD)
    with running(cluster, role, tmp_path, token_file) as found:
        found.wait_for(lambda page: slots(role, page) == 1 and is_well(page), "the first slice")
        yield found


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("role", ROLES)
def test_a_restart_of_the_api_server_leaves_the_last_view_and_loses_nothing(
    cluster: RealCluster, exporter: Exporter, role: Role, how: signal.Signals
) -> None:
    cluster.stop_api(how)
    page = exporter.wait_for(lambda page: not is_well(page), "the page says that the API server is away")
    assert slots(role, page) == 1, "the last view stays"
    with cluster.second_door() as door:
        door.add_pod("team", "meanwhile", NODE, CARD, memory_mib=2_000)
    cluster.start_api()
    exporter.wait_for(lambda page: is_well(page) and slots(role, page) == 2, "what happened meanwhile")
    cluster.add_pod("team", "after", NODE, CARD, memory_mib=1_000)
    exporter.wait_for(lambda page: slots(role, page) == 3, "the watch goes on")


@pytest.mark.parametrize("role", ROLES)
def test_after_a_real_compaction_the_view_is_listed_anew(
    cluster: RealCluster, exporter: Exporter, role: Role
) -> None:
    """What was deleted in the forgotten stretch is gone, although no watch will ever tell of it."""
    before = cluster.etcd.revision()
    cluster.stop_api()
    exporter.wait_for(lambda page: not is_well(page), "the API server is away")
    with cluster.second_door() as door:
        door.delete("/api/v1/namespaces/team/pods/first")
        door.add_pod("team", "second", NODE, CARD, memory_mib=2_000)
        door.add_pod("team", "third", NODE, CARD, memory_mib=1_000)
        assert cluster.etcd.compact() > before
    cluster.start_api()
    assert is_gone(cluster, before), "a watch from the forgotten version is refused by this server"
    page = exporter.wait_for(lambda page: is_well(page) and slots(role, page) == 2, "two slices, not three")
    if role == "node":
        assert {labels["pod"] for labels in page.labels("slice_info")} >= {"second", "third"}
    cluster.add_pod("team", "fourth", NODE, CARD, memory_mib=500)
    exporter.wait_for(lambda page: slots(role, page) == 3, "the watch goes on")


def is_gone(cluster: RealCluster, version: int) -> bool:
    """Whether a watch of pods from a version is answered with 410, as a status or as its first event."""
    path = f"/api/v1/pods?watch=true&resourceVersion={version}&timeoutSeconds=2"
    answer = cluster.ask("GET", path)
    return answer.status == 410 or answer.body.get("object", {}).get("code") == 410


@pytest.mark.parametrize("role", ROLES)
def test_a_token_that_expires_is_said_and_the_next_one_is_read_from_its_file(
    cluster: RealCluster, tmp_path: Path, role: Role
) -> None:
    cluster.add_pod("team", "first", NODE, CARD)
    token_file = tmp_path / "token"
    good_until_s = time.time() + 25
    put_token(token_file, cluster.short_token_of(account(role), 25))
    with running(cluster, role, tmp_path, token_file) as exporter:
        exporter.wait_for(lambda page: slots(role, page) == 1 and is_well(page), "the first slice")
        wait_until(lambda: time.time() > good_until_s + 1, "the token has expired")
        # An open watch outlives its token; the next connection does not.
        cluster.stop_api()
        cluster.start_api()
        page = exporter.wait_for(
            lambda page: not is_well(page) and "401" in exporter.log(), "the page and the log say so"
        )
        assert slots(role, page) == 1, "the last view stays"
        cluster.add_pod("team", "second", NODE, CARD, memory_mib=2_000)
        put_token(token_file, cluster.token_of(account(role)))
        exporter.wait_for(lambda page: is_well(page) and slots(role, page) == 2, "the new token is used")
