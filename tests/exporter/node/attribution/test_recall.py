"""What is kept from tick to tick gives what making everything anew gives, whatever happens on the node."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contract.ids import DeviceUuid
from exporter.hami.annotations.node_register import RegisteredDevice, parse_node_register
from exporter.hami.layouts import V1_2_2008952 as LAYOUT
from exporter.kube.objects import Pod
from exporter.kube.view import View
from exporter.node.attribution.joining import Sources
from exporter.node.attribution.owners import Attributor
from exporter.node.attribution.recall import Frame
from exporter.node.attribution.residents import Residents
from exporter.node.sources.liveness import Liveness
from exporter.node.sources.processes import ProcessTable
from exporter.node.tallies import Tallies
from exporter.nvidia.source import DeviceReading, MigInstance, ProcessMemory
from lab.workloads.region_writer import ProcessSlot, RegionFile
from tests.exporter.node.proc import FakeProc, systemd_path
from tests.exporter.node.tree import MIB, NAMESPACES, A, B, Node, pod_of

X = "11111111-aaaa-4000-8000-000000000001"
Y = "22222222-bbbb-4000-8000-000000000002"
Z = "33333333-cccc-4000-8000-000000000003"
IDS = {X: "5f0a" * 16, Y: "9c3e" * 16, Z: "77aa" * 16}
UIDS = (X, Y, Z)

Step = tuple[str, int, int]

STEPS = st.tuples(
    st.sampled_from(
        [
            "memory",
            "memory",
            "kernel",
            "kernel",
            "sm",
            "figure",
            "figure",
            "kill",
            "start",
            "reuse",
            "exit",
            "absurd",
            "block",
            "lock",
            "list",
            "host",
            "pod",
            "mode",
            "file",
            "register",
        ]
    ),
    st.integers(0, 5),
    st.integers(0, 3),
)


class Anew(Attributor):
    """Keeps nothing."""

    def _recalled(self, sources: Sources, listed: Mapping[str, frozenset[int]]) -> Frame | None:  # noqa: ARG002
        return None


class Scene:
    """Two cards, three pods (one holds nothing), their files and processes, and what happens to them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.proc = FakeProc(folder / "proc")
        root = folder / "containers"
        root.mkdir()
        self.stack = stack
        self.now_s = 1
        self.node = Node(root, self.proc.root)
        stack.callback(self.node.caches.close)
        self.tallies = [Tallies(), Tallies()]
        self.attributors = [
            kind(Residents(ProcessTable(self.proc.root), Liveness()), tallies)
            for kind, tallies in zip((Attributor, Anew), self.tallies, strict=True)
        ]
        self.book = self.node.book
        self.held = {
            X: f"{A},NVIDIA,4000,30:;",
            Y: f"{A},NVIDIA,4000,0:{B},NVIDIA,2000,0:;",
            Z: "",
        }
        self.pods = {uid: self._pod(uid) for uid in UIDS}
        self.view: Mapping[str, Pod] = MappingProxyType(dict(self.pods))
        self.regions: list[RegionFile] = []
        self.slots: list[ProcessSlot] = []
        self.pids: set[int] = set()
        self.started = 0
        self.listed: dict[str, dict[int, int | None]] = {A: {}, B: {}}
        self.unlisted: set[str] = set()
        self.mig_used: int | None = None
        self.registered = _register(is_healthy=True)
        for number, uid in enumerate(UIDS):
            self._add_file(uid)
            self.start(number, number)

    def _pod(self, uid: str, phase: str = "Running") -> Pod:
        ids = {"main": f"containerd://{IDS[uid]}"}
        wants = ("main*",) if self.held[uid] else ("main",)
        return pod_of(f"pod-{uid[0]}", self.held[uid], wants, uid=uid, ids=ids, phase=phase)

    def _add_file(self, uid: str) -> None:
        directory = self.node.root / f"{uid}_main"
        directory.mkdir(exist_ok=True)
        path = directory / f"{len(list(directory.iterdir()))}.cache"
        uuids = [A, B] if uid == Y else [A]
        region = RegionFile(
            path, uuids=uuids, limits_bytes=[4_000 * MIB] * len(uuids), clock=lambda: self.now_s
        )
        self.regions.append(self.stack.enter_context(region))

    def start(self, one: int, two: int) -> None:
        region = one % len(self.regions)
        uid = UIDS[region % 3]
        self.started += 1
        pid = 100 + self.started
        self.pids.add(pid)
        self.proc.add(pid, pid - 90, cgroup=systemd_path(uid, IDS[uid]))
        hostpid = (pid, 0, pid, 101)[two]  # not known yet, or a neighbour's
        self.slots.append(self.regions[region].attach(pid - 90, hostpid))
        self.slots[-1].set_memory(0, data_bytes=64 * MIB)
        self.listed[A][pid] = 70 * MIB

    def host(self, one: int, two: int) -> None:
        pid = 900 + one
        if pid in self.pids:
            return
        self.pids.add(pid)
        self.proc.add(pid, cgroup="/system.slice/x.service" if two % 2 else systemd_path(Z, "ab" * 32))
        self.listed[A if two < 2 else B][pid] = 9 * MIB

    def happen(self, step: Step) -> None:
        """Let one thing happen; to what it happens, the numbers choose."""
        what, one, two = step
        getattr(self, what)(one, two)

    def memory(self, one: int, two: int) -> None:
        if not self._slot(one).has_exited:
            self._slot(one).set_memory(two % 2, data_bytes=(64 + two) * MIB)

    def kernel(self, one: int, _two: int) -> None:
        self._region(one).record_kernel()

    def sm(self, one: int, two: int) -> None:
        self._slot(one).set_sm(0, 10 * two)
        self._slot(one).set_monitorused(0, two * 90 * MIB)

    def figure(self, one: int, two: int) -> None:
        pid = self._pid(one)
        if pid in self.listed[A]:
            self.listed[A][pid] = None if two == 3 else (70 + two) * MIB

    def kill(self, one: int, two: int) -> None:
        pid = self._pid(one)
        self.proc.remove(pid)
        self.pids.remove(pid)
        if two % 2:
            for listed in self.listed.values():
                listed.pop(pid, None)
        if not self.pids:
            self.start(one, two)

    def reuse(self, one: int, two: int) -> None:
        pid = self._pid(one)
        uid = UIDS[two % 3]
        self.proc.remove(pid)
        self.proc.add(pid, pid - 90, cgroup=systemd_path(uid, IDS[uid]), start=2_000 + self.now_s)

    def exit(self, one: int, _two: int) -> None:
        if not self._slot(one).has_exited:
            self._slot(one).exit()

    def absurd(self, one: int, _two: int) -> None:
        self._region(one)._write_word(self._slot(one).offset + LAYOUT.used + 32, 1 << 50)

    def block(self, one: int, two: int) -> None:
        self._region(one).set_recent_kernel(two - 1)
        self._region(one).set_utilization_switch(enforced=bool(two % 2))

    def lock(self, one: int, two: int) -> None:
        self._region(one)._write_int(LAYOUT.owner_pid, 10 * two)
        self._region(one)._write_int(LAYOUT.sem, 1 if two > 1 else 0)

    def list(self, _one: int, two: int) -> None:
        self.unlisted ^= {A if two % 2 else B}

    def pod(self, one: int, two: int) -> None:
        uid = UIDS[one % 3]
        if two == 3:
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = self._pod(uid, phase="Succeeded" if two == 2 else "Running")
        self.view = MappingProxyType(dict(self.pods))

    def mode(self, _one: int, two: int) -> None:
        self.mig_used = None if two == 3 else two * MIB

    def file(self, one: int, _two: int) -> None:
        self._add_file(UIDS[one % 3])

    def register(self, _one: int, two: int) -> None:
        self.registered = _register(is_healthy=bool(two % 2))

    def _slot(self, one: int) -> ProcessSlot:
        return self.slots[one % len(self.slots)]

    def _region(self, one: int) -> RegionFile:
        return self.regions[one % len(self.regions)]

    def _pid(self, one: int) -> int:
        return sorted(self.pids)[one % len(self.pids)]

    def _card(self, uuid: str) -> DeviceReading:
        is_mig = uuid == B and self.mig_used is not None
        listed = None if uuid in self.unlisted else self.listed[uuid]
        return DeviceReading(
            uuid=DeviceUuid(uuid),
            index=0,
            model="NVIDIA A100",
            mode="mig" if is_mig else "hami-core",
            memory_total_bytes=81_920 * MIB,
            processes=None
            if listed is None
            else tuple(ProcessMemory(pid, used, 1 if is_mig else None) for pid, used in listed.items()),
            utilization=None if is_mig else (),
            mig=(MigInstance("MIG-1", "1g.10gb", 1, 0, None, self.mig_used),) if is_mig else None,
        )

    def tick(self, *, looks: int) -> None:
        """Attribute in both ways, and compare."""
        self.now_s += 1
        at_ms = self.now_s * 1_000
        sources = Sources(
            at_ms=at_ms,
            sight=self.book.look(View(self.view, listed=True, confirmed_at_ms=1_000), [], NAMESPACES, at_ms),
            registered=self.registered,
            readings={uuid: self._card(uuid) for uuid in (A, B)},
            survey=self.node.caches.survey(looks=looks, wait=lambda _seconds: None),
            had_readings=True,
        )
        kept, anew = (each.attribute(sources) for each in self.attributors)
        assert kept == anew
        assert self.tallies[0].by_family() == self.tallies[1].by_family()


def _register(*, is_healthy: bool) -> dict[str, RegisteredDevice]:
    health = str(is_healthy).lower()
    text = f"{A},10,81920,100,NVIDIA-A100,0,true:{B},10,81920,100,NVIDIA-A100,0,{health}:"
    return {device.uuid: device for device in parse_node_register(text).devices}


@given(ticks=st.lists(st.tuples(st.lists(STEPS, max_size=3), st.booleans()), min_size=2, max_size=8))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_kept_from_tick_to_tick_is_what_making_it_anew_gives(
    ticks: list[tuple[list[Step], bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        scene = Scene(Path(folder), stack)
        scene.tick(looks=0)
        for steps, has_looks in ticks:
            for step in steps:
                scene.happen(step)
            scene.tick(looks=1 if has_looks else 0)
            scene.tick(looks=0)


def test_a_container_whose_figures_stay_is_not_made_anew() -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        scene = Scene(Path(folder), stack)
        first, second = (_look(scene) for _ in range(2))
        assert all(one is other for one, other in zip(first, second, strict=True))
        scene.happen(("memory", 0, 1))
        third = _look(scene)
        assert [one is other for one, other in zip(second, third, strict=True)] == [False, True, True]


def _look(scene: Scene) -> list[object]:
    """The gauges of the kept attribution at another tick."""
    scene.tick(looks=0)
    frame = scene.attributors[0]._frame
    assert frame is not None
    return [gauges for part in frame.parts.values() for gauges in part.gauges]
