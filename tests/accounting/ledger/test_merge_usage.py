"""Revisions and epochs of one hour (`reference/ledger.md §5`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from accounting.ledger.merge import conflict_winner, merge_container_hour, take_epochs
from contract.facts import SliceUsageFact
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid

At = Callable[..., int]
Make = Callable[..., SliceUsageFact]


def test_an_older_revision_that_comes_last_changes_nothing_and_a_new_epoch_adds(
    at: At, slice_usage: Make
) -> None:
    first = {"epoch": "e1", "hour_ms": at("10:00"), "from_ms": at("10:00")}
    facts = [
        slice_usage(**first, revision=1, to_ms=at("10:01:30"), covered_ms=90_000, sm_ppm_ms=1),
        slice_usage(**first, revision=3, to_ms=at("10:04:20"), covered_ms=260_000, sm_ppm_ms=7),
        slice_usage(**first, revision=2, to_ms=at("10:02:50"), covered_ms=170_000, sm_ppm_ms=3),
        slice_usage(
            epoch="e2",
            hour_ms=at("10:00"),
            from_ms=at("10:05"),
            to_ms=at("10:05:45"),
            covered_ms=45_000,
            sm_ppm_ms=5,
        ),
    ]
    hour = merge_container_hour(facts)
    assert hour.covered_ms == 305_000
    assert hour.sm_ppm_ms == 7 + 5


def test_two_exporters_on_a_node_never_double_the_hour(at: At, slice_usage: Make) -> None:
    a = slice_usage(epoch="A", from_ms=at("10:00"), to_ms=at("10:40"), covered_ms=2_400_000)
    b = slice_usage(epoch="B", from_ms=at("10:35"), to_ms=at("11:00"), covered_ms=1_500_000)
    c = slice_usage(epoch="C", from_ms=at("10:45"), to_ms=at("11:00"), covered_ms=900_000)
    hour = merge_container_hour([c, b, a])
    assert hour.covered_ms == 3_300_000
    taken, left_out = take_epochs([c, b, a])
    assert ([use.epoch for use in taken], [use.epoch for use in left_out]) == (["A", "C"], ["B"])


def test_peak_is_the_largest_and_source_the_best_of_the_epochs(slice_usage: Make) -> None:
    hour = merge_container_hour(
        [
            slice_usage(epoch="A", from_ms=0, to_ms=10, covered_ms=10, mem_peak_mib=700, source="cache"),
            slice_usage(epoch="B", from_ms=10, to_ms=20, covered_ms=10, mem_peak_mib=900, source="nvml"),
        ]
    )
    assert (hour.mem_peak_mib, hour.source) == (900, "nvml")


def test_only_epochs_with_work_while_down_count_as_work_while_down(slice_usage: Make) -> None:
    hour = merge_container_hour(
        [
            slice_usage(epoch="A", from_ms=0, to_ms=10, covered_ms=10, sm_ppm_ms=5),
            slice_usage(epoch="B", from_ms=10, to_ms=20, covered_ms=10, sm_ppm_ms=5, sm_down_ppm_ms=5),
        ]
    )
    assert hour.down_use == ((10, 20),)


def test_of_equal_revisions_with_other_content_the_better_covered_wins_in_either_order(
    slice_usage: Make,
) -> None:
    small, large = slice_usage(covered_ms=100, sm_ppm_ms=99), slice_usage(covered_ms=200, sm_ppm_ms=1)
    assert conflict_winner(small, large) == conflict_winner(large, small) == large
    # Equal cover: the canonical bytes decide, and "sm_ppm_ms":9 sorts after "sm_ppm_ms":1.
    one, nine = slice_usage(covered_ms=100, sm_ppm_ms=1), slice_usage(covered_ms=100, sm_ppm_ms=9)
    assert conflict_winner(one, nine) == conflict_winner(nine, one) == nine


@st.composite
def uses(draw: st.DrawFn) -> SliceUsageFact:
    start = draw(st.integers(0, 50))
    length = draw(st.integers(1, 30))
    return SliceUsageFact(
        cluster=ClusterCode("c"),
        pod_uid=PodUid("p"),
        container="main",
        device_uuid=DeviceUuid("GPU-1"),
        node_uid=NodeUid("n"),
        hour_ms=0,
        epoch=EpochId(draw(st.sampled_from("ABCD"))),
        revision=draw(st.integers(1, 3)),
        from_ms=start,
        to_ms=start + length,
        covered_ms=draw(st.integers(0, length)),
        unknown_ms=0,
        sm_ppm_ms=draw(st.integers(0, 5)),
        sm_down_ppm_ms=0,
        mem_used_mib_ms=0,
        mem_peak_mib=draw(st.integers(0, 5)),
        energy_active_mj=0,
        blocked_ms=0,
        over_limit_ms=0,
        source=draw(st.sampled_from(["nvml", "cache", "none"])),
    )


@given(st.lists(uses(), max_size=8), st.data())
def test_an_hour_knows_no_order_and_no_repetition(facts: list[SliceUsageFact], data: st.DataObject) -> None:
    doubled = facts + (data.draw(st.lists(st.sampled_from(facts), max_size=4)) if facts else [])
    assert merge_container_hour(data.draw(st.permutations(doubled))) == merge_container_hour(facts)


@given(st.lists(uses(), max_size=8))
def test_epochs_taken_never_overlap(facts: list[SliceUsageFact]) -> None:
    taken, left_out = take_epochs(facts)
    spans = sorted((use.from_ms, use.to_ms) for use in taken)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    assert {use.epoch for use in taken} | {use.epoch for use in left_out} == {use.epoch for use in facts}
