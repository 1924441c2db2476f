"""The three lines of conservation, exact in integers, over whatever a node may go through.

Processes are attributed by a faked `/proc` and metered as in the real sampler. Each tick: Σ slices +
unallocated + unattributed is the card's busy time; the same with idle energy is what the board's counter
grew by; and used memory that no known pod accounts for is the rest of the card's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid
from exporter.kube.objects import Pod
from exporter.node.clock import Instant
from exporter.node.metering.hours import Origin
from exporter.node.metering.meter import Meter
from exporter.node.showing.composing import device_views
from exporter.node.snapshot import DeviceView
from exporter.nvidia.source import BusySample, DeviceReading, ProcessMemory, UtilizationSample
from tests.exporter.node.clocked import START_MS
from tests.exporter.node.proc import FakeProc, systemd_path
from tests.exporter.node.tree import MIB, A, Node, pod_of

CARD = DeviceUuid(A)
TOTAL_BYTES, RESERVED_BYTES = 81_920 * MIB, 600 * MIB
POWER_LIMIT_MW = 400_000
HOLDERS, BYPASSER = ("a", "b", "c"), "rogue"
UIDS = {name: f"{number}1111111-aaaa-4000-8000-00000000000{number}" for number, name in
        enumerate((*HOLDERS, BYPASSER), 1)}  # fmt: skip
IDS = {name: f"{number}f0a" * 16 for number, name in enumerate(UIDS, 1)}
PIDS = {"a": 101, "b": 102, "c": 103, BYPASSER: 201, "nobody": 301}


@dataclass(frozen=True)
class Tick:
    """What a tick finds.

    Attributes:
        elapsed_ms: Since the tick before.
        pods: Those that exist.
        processes: Whose process runs, and its memory in MiB.
        shares: Whose process used the card since, and how much; None = the call failed.
        busy: The card's own figure, where it has one.
        energy_mj: What the board used; below zero = its counter began anew.
        is_mig: The card is in MIG mode: nothing measures SM time.
    """

    elapsed_ms: int = 1_000
    pods: frozenset[str] = frozenset(UIDS)
    processes: dict[str, int] = field(default_factory=dict)
    shares: dict[str, int] | None = field(default_factory=dict)
    busy: int | None = None
    energy_mj: int = 0
    is_mig: bool = False


class Lab:
    """One card under watch, and what its board has truly used."""

    def __init__(self, folder: Path) -> None:
        self.proc = FakeProc(folder / "proc")
        self.node = Node(folder, self.proc.root)
        self.meter = Meter(
            Origin(ClusterCode("c1"), NodeUid("n"), EpochId("e")),
            ended_keep_ms=10**9,
            tallies=self.node.tallies,
        )
        self.after_ms = 0
        self.counter_mj = 5_000_000
        self.spent_mj = 0
        self.observed_ms = 0

    def play(self, ticks: Sequence[Tick]) -> DeviceView:
        """Play ticks and hold each to the three lines."""
        for tick in ticks:
            self._advance(tick)
            view = self._look(tick)
            self._conserves(view)
        return view

    def _advance(self, tick: Tick) -> None:
        self.after_ms += tick.elapsed_ms
        self.observed_ms += tick.elapsed_ms
        if tick.energy_mj < 0:
            self.counter_mj = 0
        else:
            self.counter_mj += tick.energy_mj
            # The first reading only sets the anchor.
            self.spent_mj += tick.energy_mj if self.meter.last is not None else 0
        for name, pid in PIDS.items():
            runs = (self.proc.root / str(pid)).exists()
            if name in tick.processes and not runs:
                cgroup = (
                    "/system.slice/x.service" if name == "nobody" else systemd_path(UIDS[name], IDS[name])
                )
                self.proc.add(pid, 7, cgroup=cgroup, start=self.after_ms + 1)
            elif runs and name not in tick.processes:
                self.proc.remove(pid)

    def _look(self, tick: Tick) -> DeviceView:
        now_ms = START_MS + self.after_ms
        attribution = self.node.look(self._pods(tick), self._card(tick, now_ms * 1_000), at_ms=now_ms)
        self.meter.tick(Instant(now_ms, self.after_ms, self.after_ms), attribution.devices)
        assert self.node.sources is not None
        views = device_views(attribution, self.node.sources, self.meter, self.node.tallies)
        self.used_bytes = {
            name: sum(
                owner.used_bytes or 0
                for device in attribution.devices
                for owner in device.owners
                if owner.key.pod_uid == uid
            )
            for name, uid in UIDS.items()
        }
        return next(view for view in views if view.uuid == CARD)

    def _pods(self, tick: Tick) -> list[Pod]:
        return [
            pod_of(
                name,
                f"{A},NVIDIA,16000,30:;" if name in HOLDERS else "",
                ("main*",) if name in HOLDERS else ("main",),
                uid=UIDS[name],
                ids={"main": f"containerd://{IDS[name]}"},
            )
            for name in sorted(tick.pods)
        ]

    def _card(self, tick: Tick, now_us: int) -> DeviceReading:
        used = sum(tick.processes.values()) * MIB
        shares = None if tick.is_mig else tick.shares
        busy = None if tick.is_mig else tick.busy
        return DeviceReading(
            uuid=CARD,
            index=0,
            model="NVIDIA A100",
            mode="mig" if tick.is_mig else "hami-core",
            mig=() if tick.is_mig else None,
            memory_total_bytes=TOTAL_BYTES,
            memory_reserved_bytes=RESERVED_BYTES,
            memory_free_bytes=TOTAL_BYTES - RESERVED_BYTES - used,
            memory_used_bytes=used,
            processes=tuple(ProcessMemory(PIDS[name], size * MIB) for name, size in tick.processes.items()),
            utilization=None
            if shares is None
            else tuple(UtilizationSample(PIDS[name], now_us, share) for name, share in shares.items()),
            busy=None if busy is None else (BusySample(now_us, busy),),
            energy_mj=self.counter_mj,
            power_limit_mw=POWER_LIMIT_MW,
        )

    def _conserves(self, view: DeviceView) -> None:
        device, owners = self.meter.devices[CARD], list(self.meter.owners.values())
        used = sum(owner.sm_ppm_ms for owner in owners)
        assert used + device.sm_unattributed_ppm_ms == device.busy_ppm_ms
        # What is not busy of the time observed is idle; it is never below zero.
        assert device.busy_ppm_ms <= self.observed_ms * 1_000_000
        energy = sum(owner.energy_active_mj + owner.energy_idle_mj for owner in owners)
        assert energy + device.energy_unattributed_mj == device.energy_mj
        assert device.energy_mj <= self.spent_mj
        live = self.meter._live[CARD]
        # What the window that is still open has used is not given out yet.
        assert device.energy_mj + live.energy_mj == self.spent_mj
        rest = TOTAL_BYTES - RESERVED_BYTES - (view.reading.memory_free_bytes or 0) if view.reading else 0
        assert view.memory_unattributed_bytes == rest - sum(self.used_bytes.values())

    def sm_s(self, name: str) -> float:
        return sum(o.sm_ppm_ms for o in self.meter.owners.values() if o.pod_uid == UIDS[name]) / 1e9


_names = st.sampled_from(sorted(PIDS))
_ticks = st.builds(
    Tick,
    elapsed_ms=st.sampled_from([250, 999, 1_000, 1_000, 1_000, 1_700, 20_000]),
    pods=st.frozensets(st.sampled_from(sorted(UIDS))),
    processes=st.dictionaries(_names, st.integers(1, 16_000)),
    shares=st.none() | st.dictionaries(_names, st.integers(0, 100)),
    busy=st.none() | st.integers(0, 100),
    energy_mj=st.just(-1) | st.integers(0, 150_000),
    is_mig=st.sampled_from([False, False, False, True]),
)


@given(st.lists(_ticks, min_size=1, max_size=25))
@settings(max_examples=60)
def test_every_second_joule_and_byte_of_a_card_is_somebodys_or_nobodys_over_random_ticks(
    ticks: Sequence[Tick],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Lab(Path(folder)).play(ticks)


def test_pods_that_come_and_go_leave_no_second_behind(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.play([Tick()])
    lab.play([Tick(processes={"a": 512}, shares={"a": 40}, busy=40, energy_mj=60_000)] * 3)
    lab.play([Tick(pods=frozenset({"b"}), processes={"b": 256}, shares={"b": 20}, busy=50)] * 2)
    lab.play([Tick(processes={"a": 100}, shares={"a": 10}, busy=10, energy_mj=30_000)] * 2)
    assert (lab.sm_s("a"), lab.sm_s("b")) == (1.4, 0.4)
    # The card was busy for 0.6 s more than its processes say.
    assert lab.meter.devices[CARD].sm_unattributed_ppm_ms == 600_000_000
    assert lab.meter.devices[CARD].energy_mj == 240_000


def test_a_board_counter_that_begins_anew_adds_nothing_and_goes_on_from_there(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    working = Tick(processes={"a": 512}, shares={"a": 40}, energy_mj=70_000)
    lab.play([Tick(processes={"a": 512}), working, working])
    lab.play([Tick(processes={"a": 512}, shares={"a": 40}, energy_mj=-1), working])
    assert lab.meter.devices[CARD].energy_mj == 210_000
    refused = lab.node.tallies.by_family()["values_refused_total"]
    assert refused == {("energy", "below_range"): 1}


def test_a_pid_that_maps_nowhere_is_nobodys_and_changes_no_slice(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    tick = Tick(
        processes={"a": 512, "nobody": 1_000}, shares={"a": 30, "nobody": 20}, busy=50, energy_mj=50_000
    )
    view = lab.play([Tick(processes=tick.processes, busy=0), tick, tick])
    assert lab.sm_s("a") == 0.6
    assert lab.meter.devices[CARD].sm_unattributed_ppm_ms == 400_000_000
    assert view.memory_unattributed_bytes == 1_000 * MIB
    assert lab.used_bytes["a"] == 512 * MIB


def test_a_pod_without_an_allocation_has_its_own_and_changes_no_slice(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    tick = Tick(
        processes={"a": 512, BYPASSER: 2_000}, shares={"a": 30, BYPASSER: 60}, busy=90, energy_mj=90_000
    )
    view = lab.play([Tick(processes=tick.processes, busy=0), tick, tick])
    assert (lab.sm_s("a"), lab.sm_s(BYPASSER)) == (0.6, 1.2)
    [rogue] = [owner for owner in lab.meter.owners.values() if not owner.is_slice]
    # No idle power is known: all 180 J are active and go by SM time.
    assert (rogue.labels.pod, rogue.energy_active_mj) == (BYPASSER, 120_000)
    assert (view.memory_unattributed_bytes, lab.used_bytes[BYPASSER]) == (0, 2_000 * MIB)


def test_a_card_in_mig_mode_has_energy_and_memory_that_add_up_and_no_sm_time(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    tick = Tick(processes={"a": 512, "nobody": 64}, energy_mj=80_000, is_mig=True)
    view = lab.play([tick] * 4)
    device = lab.meter.devices[CARD]
    assert (device.busy_ppm_ms, device.energy_mj, device.energy_unattributed_mj) == (0, 240_000, 240_000)
    assert view.memory_unattributed_bytes == 64 * MIB
