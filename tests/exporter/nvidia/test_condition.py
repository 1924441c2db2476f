"""In what state a card is, through pynvml's own ctypes."""

from __future__ import annotations

from tests.exporter.nvidia.driver import NOW_S, OPEN, Play, node, only

WATCHED = "0 nvmlDeviceRegisterEvents 0"
EVENTS = "0 nvmlEventSetWait_v2 0"


def codes(reading: dict[str, object]) -> list[tuple[int, int]]:
    """XID codes with the second in which they were fetched."""
    xids = reading["xids"]
    assert isinstance(xids, list)
    return [(each["code"], each["at_ms"] // 1_000 - NOW_S) for each in xids]


def test_the_same_xid_twice_is_two_events_each_with_its_time(play: Play) -> None:
    *_, none, one, again, later = play(
        node(WATCHED),
        *OPEN,
        ("read",),
        node(WATCHED, f"{EVENTS} 31 31 79"),
        ("clock", NOW_S + 1),
        ("read",),
        ("read",),
        node(WATCHED, f"{EVENTS} 31 31 79 31"),
        ("clock", NOW_S + 5),
        ("read",),
    )
    assert codes(only(none)) == []
    assert codes(only(one)) == [(31, 1), (31, 1), (79, 1)]
    assert codes(only(again)) == []
    assert codes(only(later)) == [(31, 5)]


def test_a_card_without_events_has_none_and_is_asked_once(play: Play) -> None:
    *_, first, second, asked = play(
        node("0 nvmlDeviceRegisterEvents 3"),
        *OPEN,
        ("read",),
        ("read",),
        ("calls", "nvmlDeviceRegisterEvents"),
    )
    assert (only(first)["xids"], only(second)["xids"], asked["calls"]) == (None, None, 1)


def test_what_was_fetched_before_the_card_was_lost_is_handed_out(play: Play) -> None:
    """XID 79 is the last word of a card that falls off the bus."""
    *_, given = play(
        node(WATCHED, "0 nvmlDeviceGetTotalEnergyConsumption 0 5"),
        *OPEN,
        ("read",),
        node(WATCHED, f"{EVENTS} 79", "0 nvmlDeviceGetTotalEnergyConsumption 15"),
        ("read",),
    )
    assert (only(given)["failure"], codes(only(given))) == ("gpu_is_lost", [(79, 0)])


def test_one_lost_card_keeps_no_others_errors_back(play: Play) -> None:
    watched = (WATCHED, "1 nvmlDeviceRegisterEvents 0")
    *_, given = play(
        node(*watched, cards=2),
        *OPEN,
        ("read",),
        node(*watched, "0 nvmlEventSetWait_v2 15", "1 nvmlEventSetWait_v2 0 48", cards=2),
        ("read",),
    )
    lost, well = given["readings"]
    assert (lost["failure"], lost["xids"]) == ("gpu_is_lost", [])
    assert codes(well) == [(48, 0)]


def test_a_card_that_came_back_is_watched_again(play: Play) -> None:
    *_, registered = play(
        node(WATCHED, "0 nvmlDeviceGetTotalEnergyConsumption 15"),
        *OPEN,
        ("read",),
        node(WATCHED),
        ("read",),
        ("read",),
        ("calls", "nvmlDeviceRegisterEvents"),
    )
    assert registered["calls"] == 2


def test_every_event_set_is_given_back_before_nvml_is_shut_down(play: Play) -> None:
    watched = (WATCHED, "1 nvmlDeviceRegisterEvents 0")
    *_, freed = play(node(*watched, cards=2), *OPEN, ("read",), ("close",), ("calls", "nvmlEventSetFree"))
    assert freed["calls"] == 2


def test_mean_power_is_preferred_to_the_plain_figure(play: Play) -> None:
    """The plain call is momentary on some boards (GA100) and a mean on others."""
    plain = "0 nvmlDeviceGetPowerUsage 0 28123"
    for fields, power_mw in (("185 0 30000", 30_000), ("185 3 0", 28_123)):
        *_, given = play(node(plain, f"0 nvmlDeviceGetFieldValues 0 {fields}"), *OPEN, ("read",))
        assert only(given)["power_mw"] == power_mw


def test_a_card_without_any_throttle_counter_has_none(play: Play) -> None:
    *_, given = play(node("0 nvmlDeviceGetFieldValues 0 185 0 30000"), *OPEN, ("read",))
    assert only(given)["throttle_ns"] is None
