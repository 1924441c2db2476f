"""Energy of one interval: whose it is, exactly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exporter.node.metering.energy import Board, IdlePower, Shares, split
from exporter.node.tallies import Tallies


def test_an_hour_on_one_card_is_split_as_the_reference_computes_it() -> None:
    # 900 kJ, idle watts 60 → 216 kJ idle, 684 kJ active; X 1,200 s, Y 600 s, a foreign process 200 s.
    parts = split(
        900_000_000,
        IdlePower().idle_part_mj(900_000_000, 3_600_000, 60_000),
        Shares(
            sm_ppm_ms=[1_200 * 10**9, 600 * 10**9],
            sm_unattributed_ppm_ms=200 * 10**9,
            allocated_mib=[20_480, 40_960],
            registered_mib=81_920,
        ),
    )
    assert parts.active_mj == (410_400_000, 205_200_000)
    assert parts.idle_mj == (54_000_000, 108_000_000)
    assert (parts.active_unattributed_mj, parts.idle_unattributed_mj) == (68_400_000, 54_000_000)


def test_active_energy_while_nobody_had_sm_time_is_unattributed() -> None:
    parts = split(1_000, 400, Shares([0, 0], 0, [1, 1], 2))
    assert parts.active_mj == (0, 0)
    assert parts.active_unattributed_mj == 600


def test_idle_energy_of_free_memory_is_unattributed() -> None:
    parts = split(1_000, 1_000, Shares([], 0, [], 15_360))
    assert parts.idle_unattributed_mj == 1_000


def test_idle_weights_are_normalised_on_a_card_that_handed_out_more_than_it_registered() -> None:
    parts = split(900, 900, Shares([0, 0], 0, [20_000, 10_000], 15_360))
    assert parts.idle_mj == (600, 300)
    assert parts.idle_unattributed_mj == 0


def test_idle_energy_of_a_card_of_unknown_size_is_unattributed() -> None:
    assert split(50, 50, Shares([0], 0, [4_000], None)).idle_unattributed_mj == 50


@given(
    delta=st.integers(0, 10**9),
    idle=st.integers(0, 10**9),
    owners=st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**5)), max_size=6),
    unowned=st.integers(0, 10**12),
    registered=st.none() | st.integers(0, 10**5),
)
def test_the_parts_of_an_interval_add_up_to_the_millijoule(
    delta: int, idle: int, owners: list[tuple[int, int]], unowned: int, registered: int | None
) -> None:
    idle = min(idle, delta)
    parts = split(delta, idle, Shares([s for s, _ in owners], unowned, [m for _, m in owners], registered))
    active = sum(parts.active_mj) + parts.active_unattributed_mj
    assert active == delta - idle
    assert sum(parts.idle_mj) + parts.idle_unattributed_mj == idle
    assert min((*parts.active_mj, *parts.idle_mj, 0)) == 0


def test_idle_power_is_the_configured_one_until_enough_was_learned() -> None:
    power = IdlePower()
    assert power.idle_part_mj(10**9, 1_000, 60_000) == 60_000
    power.learn(90_000, 9_000)
    assert power.idle_part_mj(10**9, 1_000, 60_000) == 60_000
    power.learn(10_000, 1_000)
    assert power.idle_part_mj(10**9, 1_000, 60_000) == 10_000  # 100 J in 10 s = 10 W


def test_the_idle_part_is_never_above_the_interval() -> None:
    assert IdlePower().idle_part_mj(5, 1_000, 60_000) == 5


def test_a_board_counter_that_goes_back_only_sets_a_new_anchor() -> None:
    tallies, board = Tallies(), Board()
    assert board.take(5_000_000, 1_000, 300_000, tallies) is None
    assert board.take(1_000, 2_000, 300_000, tallies) is None
    assert board.take(1_500, 3_000, 300_000, tallies) == 500
    assert tallies.by_family() == {"values_refused_total": {("energy", "below_range"): 1}}


def test_a_board_counter_that_comes_back_up_adds_nothing() -> None:
    tallies, board = Tallies(), Board()
    board.take(5_000_000, 1_000, 300_000, tallies)
    board.take(1_000, 2_000, 300_000, tallies)
    # 300 W for one second is 300 J; 4,999 J are no second's work.
    assert board.take(5_000_000, 3_000, 300_000, tallies) is None
    assert board.take(5_000_100, 4_000, 300_000, tallies) == 100
