from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from accounting.facts import kinds
from contract.facts import (
    AllocationFact,
    DeviceUsageFact,
    Fact,
    NodeStateFact,
    PresenceFact,
    SliceUsageFact,
    UnallocatedUseFact,
    canonical_bytes,
    natural_key,
)

KINDS: dict[type[Fact], Any] = {
    AllocationFact: kinds.ALLOCATION,
    PresenceFact: kinds.PRESENCE,
    NodeStateFact: kinds.NODE_STATE,
    SliceUsageFact: kinds.SLICE_USAGE,
    UnallocatedUseFact: kinds.UNALLOCATED_USE,
    DeviceUsageFact: kinds.DEVICE_USAGE,
}
each_kind = pytest.mark.parametrize("fact_type", KINDS, ids=lambda kind: kind.__name__)


def drawn(data: st.DataObject, fact_type: type[Fact], count: int) -> list[Fact]:
    facts = [data.draw(st.from_type(fact_type)) for _ in range(count)]
    first = facts[0]
    key_fields = ("pod_uid", "witness", "from_ms", "epoch")
    alike = {name: getattr(first, name) for name in key_fields if name in fact_type.__struct_fields__}
    if fact_type in {PresenceFact, NodeStateFact}:
        assume(all(fact.to_ms >= first.from_ms for fact in facts))  # type: ignore[union-attr]
    return [msgspec.structs.replace(fact, **alike) for fact in facts]


def test_every_type_of_fact_has_its_kind() -> None:
    assert set(KINDS) == set(get_args(Fact))


@each_kind
@given(data=st.data())
def test_merging_knows_no_order(fact_type: type[Fact], data: st.DataObject) -> None:
    merge = KINDS[fact_type].merge
    one, other = drawn(data, fact_type, 2)
    assert natural_key(one) == natural_key(other)
    assert merge(one, other) == merge(other, one)


@each_kind
@given(data=st.data())
def test_merging_knows_no_grouping(fact_type: type[Fact], data: st.DataObject) -> None:
    merge = KINDS[fact_type].merge
    one, two, three = drawn(data, fact_type, 3)
    assert merge(merge(one, two).kept, three).kept == merge(one, merge(two, three).kept).kept


@each_kind
@given(data=st.data())
def test_merging_again_changes_nothing(fact_type: type[Fact], data: st.DataObject) -> None:
    merge = KINDS[fact_type].merge
    one, other = drawn(data, fact_type, 2)
    kept = merge(one, other).kept
    for fact in (one, other, kept):
        assert merge(kept, fact).kept == kept
    assert merge(one, one).loser is None


@each_kind
@given(data=st.data())
def test_a_row_gives_its_fact_back_byte_by_byte(fact_type: type[Fact], data: st.DataObject) -> None:
    kind = KINDS[fact_type]
    (fact,) = drawn(data, fact_type, 1)
    assert canonical_bytes(kind.fact_of(kind.row_of(fact))) == canonical_bytes(fact)


T0 = 1_790_838_000_000
"""2026-10-01T07:00Z."""


def allocation(**changes: Any) -> AllocationFact:
    fields: dict[str, Any] = {
        "cluster": "a", "pod_uid": "pod-1", "container": "main", "device_uuid": "GPU-1", "witness": "node",
        "node_uid": "uid-1", "node": "node-1", "namespace": "team", "pod": "train", "vendor": "NVIDIA",
        "model": "NVIDIA L4", "mem_mib": 8_000, "core_percent": 50, "container_kind": "app",
        "tenant_key": "tenant-a", "bound_at_ms": T0, "first_confirmed_at_ms": T0, "confirmed_at_ms": T0,
    }  # fmt: skip
    return AllocationFact(**(fields | changes))


def merged(*facts: AllocationFact) -> AllocationFact:
    kept = facts[0]
    for fact in facts[1:]:
        kept = kinds.ALLOCATION.merge(kept, fact).kept
    return kept


def test_the_earliest_observed_end_is_final() -> None:
    first = allocation(ended_at_ms=T0 + 5, end_kind="observed", end_reason="Failed")
    second = allocation(ended_at_ms=T0 + 9, end_kind="observed", end_reason="DELETED")
    later = allocation(confirmed_at_ms=T0 + 90_000)
    kept = merged(second, later, first)
    assert (kept.ended_at_ms, kept.end_reason, kept.confirmed_at_ms) == (T0 + 5, "Failed", T0 + 90_000)


def test_an_observed_end_beats_any_inferred_one() -> None:
    inferred = allocation(ended_at_ms=T0 + 1, end_kind="inferred", end_reason="relist")
    observed = allocation(ended_at_ms=T0 + 9, end_kind="observed", end_reason="DELETED")
    assert merged(inferred, observed).end_kind == "observed"


def test_of_inferred_ends_the_latest_stands() -> None:
    # The witness missed the pod at T0+1 s, saw it again, and missed it for good at T0+7 s.
    early = allocation(ended_at_ms=T0 + 1_000, end_kind="inferred", end_reason="relist")
    again = allocation(confirmed_at_ms=T0 + 5_000)
    late = allocation(ended_at_ms=T0 + 7_000, end_kind="inferred", end_reason="relist")
    assert merged(late, early, again).ended_at_ms == T0 + 7_000


def test_names_and_sizes_are_those_of_the_earliest_confirmation() -> None:
    early = allocation(first_confirmed_at_ms=T0 + 1, confirmed_at_ms=T0 + 1, tenant_key="before")
    late = allocation(first_confirmed_at_ms=T0 + 2, confirmed_at_ms=T0 + 2, tenant_key="after", mem_mib=1)
    kept = merged(late, early)
    assert (kept.tenant_key, kept.mem_mib, kept.confirmed_at_ms) == ("before", 8_000, T0 + 2)


def test_a_model_that_is_known_later_fills_the_empty_one() -> None:
    assert merged(allocation(model=""), allocation(model="NVIDIA L4")).model == "NVIDIA L4"


def usage(revision: int, covered_ms: int) -> SliceUsageFact:
    fields: dict[str, Any] = {
        "cluster": "a", "pod_uid": "pod-1", "container": "main", "device_uuid": "GPU-1", "node_uid": "uid-1",
        "hour_ms": T0, "epoch": "e1", "from_ms": T0, "to_ms": T0 + 3_600_000, "unknown_ms": 0, "sm_ppm_ms": 0,
        "sm_down_ppm_ms": 0, "mem_used_mib_ms": 0, "mem_peak_mib": 0, "energy_active_mj": 0, "blocked_ms": 0,
        "over_limit_ms": 0, "source": "nvml",
    }  # fmt: skip
    return SliceUsageFact(**fields, revision=revision, covered_ms=covered_ms)


def test_a_lower_revision_that_comes_late_changes_nothing() -> None:
    # reference/ledger.md §5: revision 1 says 90 s, 3 says 260 s, 2 (170 s) comes last.
    kept = usage(1, 90_000)
    for fact in (usage(3, 260_000), usage(2, 170_000)):
        kept = kinds.SLICE_USAGE.merge(kept, fact).kept
    assert kept.covered_ms == 260_000


def test_of_one_revision_with_two_contents_the_better_covered_stands_and_the_other_is_named() -> None:
    better, worse = usage(3, 260_000), usage(3, 200_000)
    for one, other in ((better, worse), (worse, better)):
        result = kinds.SLICE_USAGE.merge(one, other)
        assert (result.kept, result.loser) == (better, worse)
