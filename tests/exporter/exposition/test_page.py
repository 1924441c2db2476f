"""Building a page: names and labels are checked, absent stays absent, and the budget drops whole groups."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.exposition.page import NATIVE_FAMILIES, Page, PageBuilder


def pods(page: Page, name: str) -> list[str]:
    """The pods of a slice family's series."""
    return [labels[2] for family in page.families if family.family.name == name for labels in family.labels]


def of(pod: str) -> tuple[str, ...]:
    return ("n", "ns", pod, "c", "GPU-1", "t")


def test_a_value_of_none_adds_nothing() -> None:
    builder = PageBuilder()
    builder.add("slice_processes", of("a"), None)
    assert builder.build(1.0).families == ()


def test_a_name_out_of_the_catalogue_is_refused() -> None:
    with pytest.raises(KeyError):
        PageBuilder().add("slice_colour", of("a"), 1)


def test_a_wrong_number_of_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="slice_processes: labels"):
        PageBuilder().add("slice_processes", ("n", "ns"), 1)


@pytest.mark.parametrize("name", sorted(NATIVE_FAMILIES))
def test_what_the_registry_counts_is_refused_on_pages(name: str) -> None:
    with pytest.raises(ValueError, match="counted in the registry"):
        PageBuilder().add(name, (), 1)


def test_families_stand_in_the_catalogues_order_and_series_in_that_of_their_labels() -> None:
    builder = PageBuilder()
    for pod in ("c", "a", "b"):
        builder.add("slice_stale_processes", of(pod), 1)
        builder.add("slice_processes", of(pod), ord(pod))
    builder.add("device_slots", ("n", "GPU-1"), 10)
    page = builder.build(1.0)
    assert [family.family.name for family in page.families] == [
        "device_slots",
        "slice_processes",
        "slice_stale_processes",
    ]
    assert [(sample.labels[2], sample.value) for sample in page.families[1].samples] == [
        ("a", 97.0),
        ("b", 98.0),
        ("c", 99.0),
    ]


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=4))
def test_every_familys_series_are_sorted_whatever_the_one_before_had(columns: list[list[str]]) -> None:
    names = (
        "slice_memory_allocated_bytes",
        "slice_memory_limit_bytes",
        "slice_processes",
        "slice_blocked_seconds_total",
    )
    builder = PageBuilder()
    for name, column in zip(names, columns, strict=False):
        for pod in column:
            builder.add(name, of(pod), 1)
    page = builder.build(1.0)
    for name, column in zip(names, columns, strict=False):
        assert pods(page, name) == sorted(column)


def test_zero_has_no_sign() -> None:
    builder = PageBuilder()
    builder.add("device_slots", ("n", "GPU-1"), -0.0)
    assert math.copysign(1, builder.build(1.0).families[0].values[0]) == 1


def test_a_group_stands_whole_or_not_at_all() -> None:
    builder = PageBuilder(series_budget=5)
    for pod in ("a", "b", "c"):
        with builder.group():
            builder.add("slice_processes", of(pod), 1)
            builder.add("slice_stale_processes", of(pod), 0)
    page = builder.build(1.0)
    assert pods(page, "slice_processes") == pods(page, "slice_stale_processes") == ["a", "b"]
    assert page.dropped_series == 2


def test_after_the_first_group_without_room_a_smaller_one_gets_none_either() -> None:
    builder = PageBuilder(series_budget=3)
    for pod, size in (("a", 2), ("b", 2), ("c", 1)):
        with builder.group():
            for name in ("slice_processes", "slice_stale_processes")[:size]:
                builder.add(name, of(pod), 1)
    page = builder.build(1.0)
    assert pods(page, "slice_processes") == ["a"]
    assert page.dropped_series == 3


def test_what_stands_in_no_group_is_never_left_out() -> None:
    builder = PageBuilder(series_budget=1)
    builder.add("device_slots", ("n", "GPU-1"), 1)
    builder.add("device_slots", ("n", "GPU-2"), 1)
    with builder.group():
        builder.add("slice_processes", of("a"), 1)
    page = builder.build(1.0)
    assert [family.family.name for family in page.families] == ["device_slots"]
    assert page.dropped_series == 1
