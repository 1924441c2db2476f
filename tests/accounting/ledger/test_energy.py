"""Where a card's energy goes (`reference/ledger.md §3`); each expected value is worked out beside it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.ledger.columns import Hold
from accounting.ledger.energy import CardTime, EnergyFacts, EnergyHour, pieces, split_energy
from accounting.ledger.presence import PresenceSpan
from accounting.ledger.shares import Grant
from accounting.ledger.sweep import sweep
from contract.facts import DeviceUsageFact, SliceUsageFact
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid, SliceKey

HOUR = 3_600_000
MINUTE = 60_000
START = 500_000 * HOUR
CARD_MIB = 16_000


def key(pod: str) -> SliceKey:
    return SliceKey(ClusterCode("c"), PodUid(pod), "main", DeviceUuid("GPU-1"))


def board(
    energy: int, idle: int, unattributed: int = 0, *, epoch: str = "e", minutes: tuple[int, int] = (0, 60)
) -> DeviceUsageFact:
    from_ms, to_ms = START + minutes[0] * MINUTE, START + minutes[1] * MINUTE
    return DeviceUsageFact(
        cluster=ClusterCode("c"),
        device_uuid=DeviceUuid("GPU-1"),
        node_uid=NodeUid("n"),
        hour_ms=START,
        epoch=EpochId(epoch),
        revision=1,
        from_ms=from_ms,
        to_ms=to_ms,
        covered_ms=to_ms - from_ms,
        busy_ppm_ms=0,
        energy_mj=energy,
        energy_idle_mj=idle,
        energy_unattributed_mj=unattributed,
        sm_unattributed_ppm_ms=0,
    )


def used(pod: str, active: int) -> SliceUsageFact:
    return SliceUsageFact(
        cluster=ClusterCode("c"),
        pod_uid=PodUid(pod),
        container="main",
        device_uuid=DeviceUuid("GPU-1"),
        node_uid=NodeUid("n"),
        hour_ms=START,
        epoch=EpochId("e"),
        revision=1,
        from_ms=START,
        to_ms=START + HOUR,
        covered_ms=HOUR,
        unknown_ms=0,
        sm_ppm_ms=0,
        sm_down_ppm_ms=0,
        mem_used_mib_ms=0,
        mem_peak_mib=0,
        energy_active_mj=active,
        blocked_ms=0,
        over_limit_ms=0,
        source="nvml",
    )


def divided(
    boards: Sequence[DeviceUsageFact],
    holds: Sequence[Hold],
    uses: Sequence[SliceUsageFact] = (),
    *,
    policy: str = "memory",
    cuts: Sequence[int] = (),
    is_down: bool = False,
) -> EnergyHour:
    span = PresenceSpan(START, START + HOUR, is_down, None, "Tesla T4", CARD_MIB, "reported")
    segments = sweep([span], holds, (START, START + HOUR), cuts=cuts)
    time = CardTime(segments, {hold.slice_key: hold.grant for hold in holds}, cuts, lambda _: policy)
    return split_energy(EnergyFacts(boards, uses, ()), time)


def held(pod: str, mem_mib: int, minutes: tuple[int, int] = (0, 60), core_percent: int = 0) -> Hold:
    from_ms, to_ms = START + minutes[0] * MINUTE, START + minutes[1] * MINUTE
    return Hold(key(pod), from_ms, to_ms, Grant(mem_mib, core_percent))


def idle_of(hour: EnergyHour, pod: str | None) -> int:
    wanted = None if pod is None else key(pod)
    return sum(p.mj for p in hour.portions if p.source.startswith("idle") and p.slice_key == wanted)


def test_idle_energy_follows_the_memory_that_slices_hold_and_how_long() -> None:
    # X holds a quarter all the hour: 150 of 600. Y holds half for 20 minutes: 0.5 × 200 = 100.
    hour = divided([board(600, 600)], [held("x", 4_000), held("y", 8_000, (0, 20))])
    assert (idle_of(hour, "x"), idle_of(hour, "y"), idle_of(hour, None)) == (150, 100, 350)
    assert hour.residual_mj == 0


def test_cores_change_nothing_about_idle_energy() -> None:
    hour = divided([board(600, 600)], [held("x", 4_000, core_percent=90)])
    assert idle_of(hour, "x") == 150


def test_policy_none_leaves_idle_energy_to_the_platform() -> None:
    hour = divided([board(600, 600)], [held("x", 4_000)], policy="none")
    assert (idle_of(hour, "x"), idle_of(hour, None)) == (0, 600)


def test_memory_beyond_the_card_is_scaled_and_leaves_nothing_free() -> None:
    # A scaled card: 12,000 + 12,000 MiB were handed out of 16,000.
    hour = divided([board(600, 600)], [held("x", 12_000), held("y", 12_000)])
    assert (idle_of(hour, "x"), idle_of(hour, "y"), idle_of(hour, None)) == (300, 300, 0)


def test_slices_bear_no_idle_energy_while_the_card_is_down() -> None:
    hour = divided([board(600, 600)], [held("x", 4_000)], is_down=True)
    assert (idle_of(hour, "x"), idle_of(hour, None)) == (0, 600)


def test_a_cards_energy_enters_once_however_many_reports_repeat_it() -> None:
    # The same hour told by a second exporter that began later: its epoch overlaps and is left out.
    hour = divided([board(600, 600), board(300, 300, epoch="other", minutes=(30, 60))], [held("x", 4_000)])
    assert hour.energy_mj == 600
    assert idle_of(hour, "x") + idle_of(hour, None) == 600


def test_what_no_report_explains_is_a_residual_of_either_sign() -> None:
    assert divided([board(600, 500)], [held("x", 4_000)], [used("x", 40)]).residual_mj == 60
    assert divided([board(600, 500)], [held("x", 4_000)], [used("x", 140)]).residual_mj == -40


def test_energy_is_cut_at_an_instant_by_time() -> None:
    quarter = START + 15 * MINUTE
    hour = divided([board(0, 0)], [held("x", 4_000)], [used("x", 1_001)], cuts=[quarter])
    # 250.25 and 750.75: the larger remainder gets the odd one.
    assert [(p.from_ms, p.mj) for p in hour.portions] == [(START, 250), (quarter, 751)]


@pytest.mark.parametrize(
    ("cuts", "expected"),
    [([], [(0, 10)]), ([0, 4, 10, 12], [(0, 4), (4, 10)]), ([-3, 2, 5], [(0, 2), (2, 5), (5, 10)])],
)
def test_pieces_lie_between_the_cuts_inside(cuts: list[int], expected: list[tuple[int, int]]) -> None:
    assert pieces((0, 10), cuts) == expected


_minute = st.integers(0, 60)


@st.composite
def holds(draw: st.DrawFn) -> list[Hold]:
    pods = draw(st.lists(st.sampled_from("uvwxyz"), unique=True))
    found = []
    for pod in pods:
        start, end = sorted([draw(_minute), draw(_minute)])
        found.append(held(pod, draw(st.integers(0, 20_000)), (start, end), draw(st.integers(0, 100))))
    return found


@st.composite
def used_by_some(draw: st.DrawFn) -> list[SliceUsageFact]:
    pods = draw(st.lists(st.sampled_from("uvwxyz"), unique=True))
    return [used(pod, draw(st.integers(0, 10**9))) for pod in pods]


@given(holds(), used_by_some(), st.data())
def test_every_hours_energy_closes_to_the_millijoule(
    slices: list[Hold], uses: list[SliceUsageFact], data: st.DataObject
) -> None:
    idle, unattributed = data.draw(st.integers(0, 10**12)), data.draw(st.integers(0, 10**9))
    active = sum(use.energy_active_mj for use in uses)
    hour = divided(
        [board(idle + unattributed + active, idle, unattributed)],
        slices,
        uses,
        policy=data.draw(st.sampled_from(["memory", "none"])),
        cuts=sorted(START + minute * MINUTE for minute in data.draw(st.sets(_minute))),
        is_down=data.draw(st.booleans()),
    )
    assert hour.residual_mj == 0
    assert hour.of("idle_held", "idle_free") == idle
    assert hour.of("active") == active
    assert all(portion.mj > 0 for portion in hour.portions)
