"""A node to check: the API double, HAMi's tree with a real region, a scripted card, a tiny `/proc`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from exporter.checkup.finding import Line
from exporter.checkup.node import check_node
from exporter.settings import NodeSettings
from lab.workloads.region_writer import RegionFile
from tests.exporter.node.proc import FakeProc, systemd_path
from tests.exporter.node.stand import CARD, MIB, Stand, pod

JOB_UID = "6f1a2b3c-1111-4222-8333-444455556666"
JOB_CONTAINER = "a" * 64

Check = Callable[..., dict[str, Line]]


def by_name(lines: Sequence[Line]) -> dict[str, Line]:
    """Each line by its check; no check speaks twice."""
    found = {line.check: line for line in lines}
    assert len(found) == len(lines), [line.check for line in lines]
    return found


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    found = Stand(tmp_path)
    found.open()
    yield found
    found.card.release.set()
    found.close()


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """The host's processes, one of them in the job's container."""
    found = FakeProc(tmp_path / "proc")
    found.add(4_711, 7, cgroup=systemd_path(JOB_UID, JOB_CONTAINER))
    return found


@pytest.fixture
def job(stand: Stand) -> Iterator[RegionFile]:
    """A pod that holds a slice and uses it."""
    created = pod("job", uid=JOB_UID)
    created["status"]["containerStatuses"] = [
        {"name": "main", "containerID": f"containerd://{JOB_CONTAINER}"}
    ]
    stand.double.create("Pod", created)
    folder = stand.root / f"{JOB_UID}_main"
    folder.mkdir()
    stand.card.memory = {4_711: 512 * MIB}
    with RegionFile(folder / "x.cache", uuids=[CARD], limits_bytes=[4_000 * MIB]) as region:
        region.attach(7, 4_711).set_memory(0, data_bytes=256 * MIB)
        yield region


@pytest.fixture
def check(stand: Stand, proc: FakeProc) -> Check:
    """Check the node, with some settings changed."""

    def run(**changed: object) -> dict[str, Line]:
        settings: NodeSettings = dataclasses.replace(
            stand.settings(),
            **({"proc_root": proc.root, "accounting": None} | changed),  # type: ignore[arg-type]
        )
        return by_name(check_node(settings, stand.card))

    return run
