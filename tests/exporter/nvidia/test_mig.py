"""MIG through pynvml's own ctypes: instances, their memory, and what NVML does not measure there."""

from __future__ import annotations

from tests.exporter.nvidia.driver import NOW_S, NOW_US, OPEN, Play, node, only

MIB = 1_048_576
LIST = "nvmlDeviceGetMaxMigDeviceCount"
MEMORY = "nvmlDeviceGetMemoryInfo_v2"


def instance(number: int, gpu_instance: int, used_mib: int, profile: str = "1g.10gb") -> tuple[str, ...]:
    """Answers of the instance at one place of card 0; 9,728 MiB in all."""
    at = f"0/{number}"
    free_mib = 9_728 - used_mib
    return (
        f"{at} nvmlDeviceGetMigDeviceHandleByIndex 0",
        f"{at} nvmlDeviceGetUUID 0 MIG-{gpu_instance}",
        f"{at} nvmlDeviceGetName 0 NVIDIA A100-SXM4-80GB MIG {profile}",
        f"{at} nvmlDeviceGetGpuInstanceId 0 {gpu_instance}",
        f"{at} nvmlDeviceGetComputeInstanceId 0 0",
        f"{at} {MEMORY} 0 {9_728 * MIB} 0 {free_mib * MIB} {used_mib * MIB}",
    )


CARD = (
    "0 nvmlDeviceGetName 0 NVIDIA A100-SXM4-80GB",
    "0 nvmlDeviceGetMigMode 0 1",
    f"0 {LIST} 0 7",
    f"0 {MEMORY} 0 {81_920 * MIB} 0 {81_000 * MIB} {920 * MIB}",
    f"0 nvmlDeviceGetComputeRunningProcesses_v3 0 4001 {512 * MIB}",
    "0 instances 0 4001 9 0",
)
TWO = (*CARD, *instance(0, 9, 600), *instance(3, 11, 13, profile="1g.12gb"))


def test_instances_are_what_the_driver_says_its_word_for_the_profile_included(play: Play) -> None:
    *_, given = play(node(*TWO), *OPEN, ("read",))
    reading = only(given)
    assert reading["mode"] == "mig"
    shared = {"compute_instance_id": 0, "memory_total_bytes": 9_728 * MIB}
    assert reading["mig"] == [
        {"uuid": "MIG-9", "profile": "1g.10gb", "gpu_instance_id": 9, "memory_used_bytes": 600 * MIB}
        | shared,
        # Nobody is on it, so it is not asked.
        {"uuid": "MIG-11", "profile": "1g.12gb", "gpu_instance_id": 11, "memory_used_bytes": 0} | shared,
    ]
    assert reading["processes"] == [
        {"pid": 4001, "used_bytes": 512 * MIB, "gpu_instance_id": 9, "compute_instance_id": 0}
    ]
    assert reading["failed_calls"] == []


def test_a_card_in_mig_mode_has_no_utilization_whatever_the_driver_answers(play: Play) -> None:
    *_, given = play(
        node(
            *TWO,
            f"0 nvmlDeviceGetProcessesUtilizationInfo 0 4001 {NOW_US} 30",
            f"0 nvmlDeviceGetSamples 0 {NOW_US} 80",
            "0 nvmlDeviceGetUtilizationRates 0 0 0",
        ),
        *OPEN,
        ("read",),
    )
    reading = only(given)
    unknown = ("utilization", "busy", "utilization_percent", "memory_utilization_percent")
    assert [reading[name] for name in unknown] == [None] * 4


def test_instances_without_a_process_are_asked_for_their_memory_only_when_they_are_listed(play: Play) -> None:
    steps: list[tuple[object, ...]] = [node(*TWO), *OPEN]
    for second in range(10):
        steps += [("clock", NOW_S + second), ("read",)]
    *_, listed, asked = play(*steps, ("calls", LIST), ("calls", MEMORY))
    # Ten reads of the card and of the one instance in use, and both instances when they were listed.
    assert (listed["calls"], asked["calls"]) == (1, 22)


def test_a_process_on_an_instance_nobody_knows_has_them_listed_at_once(play: Play) -> None:
    one = (*CARD, *instance(0, 9, 600))
    moved = "0 instances 0 4001 11 0"
    *_, before, after = play(node(*one), *OPEN, ("read",), node(*TWO, moved), ("clock", NOW_S + 1), ("read",))
    assert [each["uuid"] for each in only(before)["mig"]] == ["MIG-9"]
    assert [(each["uuid"], each["memory_used_bytes"]) for each in only(after)["mig"]] == [
        ("MIG-9", 0),
        ("MIG-11", 13 * MIB),
    ]


def test_an_unused_new_instance_is_seen_after_a_minute(play: Play) -> None:
    one = (*CARD, *instance(0, 9, 600))
    *_, soon, later = play(
        node(*one),
        *OPEN,
        ("read",),
        node(*TWO),
        ("clock", NOW_S + 59),
        ("read",),
        ("clock", NOW_S + 60),
        ("read",),
    )
    assert [len(only(given)["mig"]) for given in (soon, later)] == [1, 2]


def test_an_instance_whose_handle_works_no_more_has_the_card_listed_anew(play: Play) -> None:
    sliced = (*CARD, *instance(0, 9, 600), *instance(1, 12, 0))
    *_, broken, after = play(
        node(*TWO), *OPEN, ("read",), node(*TWO, f"0/0 {MEMORY} 2"), ("read",), node(*sliced), ("read",)
    )
    assert [each["memory_used_bytes"] for each in only(broken)["mig"]] == [None, 0]
    assert [each["uuid"] for each in only(after)["mig"]] == ["MIG-9", "MIG-12"]


def test_a_card_that_left_mig_mode_has_no_instances_and_is_measured_again(play: Play) -> None:
    well = ("0 nvmlDeviceGetMigMode 0 0", f"0 nvmlDeviceGetProcessesUtilizationInfo 0 7 {NOW_US} 30")
    *_, given = play(node(*TWO), *OPEN, ("read",), node(*well), ("read",))
    reading = only(given)
    assert (reading["mode"], reading["mig"], len(reading["utilization"])) == ("hami-core", None, 1)


def test_cards_sliced_again_while_nvml_was_let_go_are_listed_anew(play: Play) -> None:
    """While HAMi's lock exists no handle is open."""
    sliced = (*CARD, *instance(0, 21, 0, profile="3g.40gb"))
    *_, before, _, _, shut, after = play(
        node(*TWO),
        *OPEN,
        ("read",),
        ("close",),
        node(*sliced),
        ("open",),
        ("calls", "nvmlShutdown"),
        ("read",),
    )
    assert [each["uuid"] for each in only(before)["mig"]] == ["MIG-9", "MIG-11"]
    assert shut["calls"] == 1
    assert [(each["uuid"], each["profile"]) for each in only(after)["mig"]] == [("MIG-21", "3g.40gb")]


def test_without_the_right_to_see_processes_every_instance_is_asked(play: Play) -> None:
    denied = "0 nvmlDeviceGetComputeRunningProcesses_v3 4"
    *_, given = play(node(*TWO, denied), *OPEN, ("read",))
    assert [each["memory_used_bytes"] for each in only(given)["mig"]] == [600 * MIB, 13 * MIB]
    assert only(given)["failed_calls"] == ["compute processes (v3)"]
