"""Two witnesses, one slice (`reference/ledger.md §5`)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.ledger.merge import Report, held, merge_allocation
from contract.facts import AllocationFact, EndKind
from contract.ids import ClusterCode, DeviceUuid, NodeUid, PodUid, TenantKey

MINUTE = 60_000
GRACE = 15 * MINUTE

At = Callable[..., int]
Make = Callable[..., AllocationFact]


def test_later_confirmation_of_a_dead_pod_changes_nothing(at: At, allocation: Make) -> None:
    node = allocation(
        witness="node",
        bound_at_ms=at("08:00:05"),
        started_at_ms=at("08:00:20"),
        first_confirmed_at_ms=at("08:00:06"),
        confirmed_at_ms=at("09:10"),
    )
    cluster = allocation(
        bound_at_ms=at("08:00:04"),
        ended_at_ms=at("09:05:30"),
        end_kind="observed",
        end_reason="Failed",
        first_confirmed_at_ms=at("08:00:05"),
        confirmed_at_ms=at("09:05:30"),
    )
    merged = merge_allocation([node, cluster])
    assert (merged.bound_at_ms, merged.started_at_ms) == (at("08:00:04"), at("08:00:20"))
    assert (merged.ended_at_ms, merged.end_kind, merged.end_reason) == (at("09:05:30"), "observed", "Failed")
    hold = held(merged, as_of_ms=at("12:00"), grace_ms=GRACE)
    assert (hold.from_ms, hold.to_ms, hold.end) == (at("08:00:04"), at("09:05:30"), "observed")
    assert hold.confirmed_to_ms == hold.to_ms


def test_empty_list_of_an_api_cache_ends_nothing_that_is_confirmed_later(at: At, allocation: Make) -> None:
    node = allocation(witness="node", bound_at_ms=at("08:00"), confirmed_at_ms=at("09:10"))
    cluster = allocation(
        bound_at_ms=at("08:00"),
        ended_at_ms=at("09:05:30"),
        end_kind="inferred",
        end_reason="absent",
        confirmed_at_ms=at("09:04"),
    )
    merged = merge_allocation([node, cluster])
    assert merged.ended_at_ms is None
    hold = held(merged, as_of_ms=at("09:11"), grace_ms=GRACE)
    assert (hold.to_ms, hold.end, hold.confirmed_to_ms) == (at("09:11"), "open", at("09:11"))


def test_inferred_end_is_the_relist_when_it_came_within_the_grace(at: At, allocation: Make) -> None:
    gone = allocation(
        bound_at_ms=at("08:00"),
        confirmed_at_ms=at("09:00"),
        ended_at_ms=at("09:05:30"),
        end_kind="inferred",
    )
    hold = held(merge_allocation([gone]), as_of_ms=at("12:00"), grace_ms=GRACE)
    assert (hold.to_ms, hold.end, hold.confirmed_to_ms) == (at("09:05:30"), "inferred", at("09:00"))


def test_inferred_end_is_never_later_than_confirmation_and_grace(at: At, allocation: Make) -> None:
    gone = allocation(
        bound_at_ms=at("08:00"),
        confirmed_at_ms=at("09:00"),
        ended_at_ms=at("11:00"),
        end_kind="inferred",
    )
    hold = held(merge_allocation([gone]), as_of_ms=at("12:00"), grace_ms=GRACE)
    assert hold.to_ms == at("09:15")


def test_phantom_ends_at_confirmation_and_grace_and_a_later_confirmation_reopens_it(
    at: At, allocation: Make
) -> None:
    silent = allocation(bound_at_ms=at("08:00"), confirmed_at_ms=at("09:00"))
    hold = held(merge_allocation([silent]), as_of_ms=at("12:00"), grace_ms=GRACE)
    assert (hold.to_ms, hold.end, hold.confirmed_to_ms) == (at("09:15"), "grace", at("09:00"))
    back = allocation(bound_at_ms=at("08:00"), confirmed_at_ms=at("12:01"))
    hold = held(merge_allocation([silent, back]), as_of_ms=at("12:05"), grace_ms=GRACE)
    assert (hold.from_ms, hold.to_ms, hold.end) == (at("08:00"), at("12:05"), "open")


def test_within_the_grace_a_slice_is_held_until_now(at: At, allocation: Make) -> None:
    merged = merge_allocation([allocation(bound_at_ms=at("08:00"), confirmed_at_ms=at("09:00"))])
    assert held(merged, as_of_ms=at("09:15"), grace_ms=GRACE).to_ms == at("09:15")
    assert held(merged, as_of_ms=at("09:15"), grace_ms=GRACE).end == "open"


def test_answer_settles_once_nothing_depends_on_the_asking_instant(at: At, allocation: Make) -> None:
    open_one = merge_allocation([allocation(bound_at_ms=at("08:00"), confirmed_at_ms=at("09:00"))])
    assert held(open_one, as_of_ms=at("09:01"), grace_ms=GRACE).settles_at_ms == at("09:15")
    assert held(open_one, as_of_ms=at("09:16"), grace_ms=GRACE).settles_at_ms is None
    ended = merge_allocation(
        [allocation(confirmed_at_ms=at("09:00"), ended_at_ms=at("09:00"), end_kind="observed")]
    )
    assert held(ended, as_of_ms=at("09:01"), grace_ms=GRACE).settles_at_ms is None


def test_names_are_those_of_the_earliest_confirmation(at: At, allocation: Make) -> None:
    later = allocation(first_confirmed_at_ms=at("09:00"), tenant_key=TenantKey("renamed"), labels={"a": "2"})
    first = allocation(
        witness="node", first_confirmed_at_ms=at("08:00"), tenant_key=TenantKey("first"), labels={"a": "1"}
    )
    merged = merge_allocation([later, first])
    assert (merged.tenant_key, merged.labels) == ("first", (("a", "1"),))


def test_model_comes_from_the_earliest_witness_that_knows_it(allocation: Make) -> None:
    merged = merge_allocation(
        [
            allocation(witness="node", first_confirmed_at_ms=1, model=""),
            allocation(first_confirmed_at_ms=2, model="NVIDIA L4"),
        ]
    )
    assert merged.model == "NVIDIA L4"


def test_reports_of_two_slices_are_refused(allocation: Make) -> None:
    with pytest.raises(ValueError, match="exactly one slice"):
        merge_allocation([allocation(), allocation(pod_uid=PodUid("other"))])
    with pytest.raises(ValueError, match="exactly one slice"):
        merge_allocation([])


instants = st.integers(0, 40)


@st.composite
def reports(draw: st.DrawFn) -> AllocationFact:
    bound = draw(instants)
    end_kinds: list[EndKind | None] = ["observed", "inferred", None]
    end_kind = draw(st.sampled_from(end_kinds))
    return AllocationFact(
        cluster=ClusterCode("c"),
        pod_uid=PodUid("p"),
        container="main",
        device_uuid=DeviceUuid("GPU-1"),
        witness=draw(st.sampled_from(["node", "cluster"])),
        node_uid=NodeUid("n"),
        node="n",
        namespace="team",
        pod="p",
        vendor="NVIDIA",
        model=draw(st.sampled_from(["", "A", "B"])),
        mem_mib=draw(st.integers(0, 3)),
        core_percent=0,
        container_kind="app",
        tenant_key=TenantKey(draw(st.sampled_from(["x", "y"]))),
        bound_at_ms=bound,
        started_at_ms=draw(st.none() | instants),
        ended_at_ms=None if end_kind is None else bound + draw(instants),
        end_kind=end_kind,
        first_confirmed_at_ms=draw(instants),
        confirmed_at_ms=draw(instants),
        labels=draw(st.sampled_from([{}, {"a": "1"}])),
    )


@given(st.lists(reports(), min_size=1, max_size=6), st.data())
def test_merging_knows_no_order_and_no_repetition(facts: list[AllocationFact], data: st.DataObject) -> None:
    again = data.draw(st.permutations(facts + data.draw(st.lists(st.sampled_from(facts), max_size=4))))
    assert merge_allocation(again) == merge_allocation(facts)


def as_row(fact: AllocationFact) -> Report:
    said = {name: getattr(fact, name) for name in Report._fields[1:-1]}
    return Report(str(fact.allocation_id), **said, labels_json=json.dumps(fact.labels))


@given(st.lists(reports(), min_size=1, max_size=6))
def test_rows_merge_as_the_facts_that_they_keep(facts: list[AllocationFact]) -> None:
    assert merge_allocation(map(as_row, facts)) == merge_allocation(facts)


@given(st.lists(reports(), min_size=1, max_size=6), instants, st.integers(0, 10))
def test_hold_lies_between_bind_and_now(facts: list[AllocationFact], as_of: int, grace: int) -> None:
    merged = merge_allocation(facts)
    hold = held(merged, as_of_ms=as_of, grace_ms=grace)
    assert hold.from_ms <= hold.confirmed_to_ms <= hold.to_ms <= as_of
    observed = [fact.ended_at_ms for fact in facts if fact.end_kind == "observed"]
    if observed:
        assert hold.to_ms <= min(end for end in observed if end is not None)
