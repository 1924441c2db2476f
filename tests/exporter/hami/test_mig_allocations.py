"""MIG allocations of HAMi 2.10: `reference/hami-kubernetes.md §3.7`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.hami.annotations.flaw import REASONS_OF
from exporter.hami.annotations.mig_allocations import MigAllocation, MigAllocations, parse_mig_allocations
from exporter.hami.annotations.node_register import Placement

EXAMPLE = (
    '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-…","profile":"1g.10gb",'
    '"placement":{"start":6,"size":1}}]'
)


def test_the_example_of_the_reference_is_read() -> None:
    assert parse_mig_allocations(EXAMPLE) == MigAllocations(
        (MigAllocation(0, 0, "GPU-…", "1g.10gb", Placement(6, 1)),), ()
    )


def test_the_ids_of_the_instance_come_after_allocate() -> None:
    element = json.loads(EXAMPLE)[0] | {"migUUID": "MIG-1", "gpuInstanceID": 13, "computeInstanceID": 0}
    (allocation,) = parse_mig_allocations(json.dumps([element])).allocations
    assert (allocation.mig_uuid, allocation.gpu_instance_id, allocation.compute_instance_id) == (
        "MIG-1",
        13,
        0,
    )


def test_a_part_of_the_ids_is_an_error_and_none_of_them_counts() -> None:
    element = json.loads(EXAMPLE)[0] | {"migUUID": "MIG-1"}
    parsed = parse_mig_allocations(json.dumps([element]))
    assert parsed.allocations[0].mig_uuid is None
    assert [error.reason for error in parsed.errors] == ["bad_value"]


def test_a_place_that_comes_twice_is_reported_and_the_first_holds() -> None:
    element = json.loads(EXAMPLE)[0]
    parsed = parse_mig_allocations(json.dumps([element, element | {"profile": "2g.20gb"}]))
    assert [allocation.profile for allocation in parsed.allocations] == ["1g.10gb"]
    assert [error.reason for error in parsed.errors] == ["duplicate"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gpuUUID": ""}, "missing_uuid"),
        ({"gpuUUID": 5}, "bad_uuid"),
        ({"profile": None}, "bad_value"),
        ({"placement": "start"}, "bad_number"),
        ({"placement": {"start": "x"}}, "bad_number"),
        ({"containerIndex": -1}, "bad_number"),
    ],
)
def test_an_allocation_that_cannot_be_read_has_its_reason(change: dict[str, object], reason: str) -> None:
    parsed = parse_mig_allocations(
        json.dumps([json.loads(EXAMPLE)[0] | change, {"gpuUUID": "GPU-b", "profile": "x"}])
    )
    assert [allocation.uuid for allocation in parsed.allocations] == ["GPU-b"]
    assert [error.reason for error in parsed.errors] == [reason]


@pytest.mark.parametrize("text", ["", "null", "[]"])
def test_nothing_is_no_allocation_and_no_error(text: str) -> None:
    assert parse_mig_allocations(text) == MigAllocations((), ())


@given(
    st.one_of(
        st.text(),
        st.dictionaries(
            st.sampled_from(
                ["gpuUUID", "profile", "placement", "containerIndex", "migUUID", "gpuInstanceID"]
            ),
            st.none()
            | st.integers()
            | st.text(max_size=3)
            | st.dictionaries(st.just("start"), st.integers()),
        ).map(lambda members: json.dumps([members])),
    )
)
def test_any_text_gives_allocations_and_reasons_but_no_exception(text: str) -> None:
    assert all(error.reason in REASONS_OF[error.kind] for error in parse_mig_allocations(text).errors)
