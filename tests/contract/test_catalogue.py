"""The rules of metric names and labels (`reference/metering.md §1`), walked over the whole table."""

from __future__ import annotations

import re

import pytest

from contract.catalogue import BY_NAME, DEVICE, FAMILIES, SLICE, TENANT, Family

by_family = pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])

SERVER_LABELS = {"job", "instance", "cluster", "__name__"}
"""What the Prometheus server or the monitors' relabelling adds."""

CLUSTER_IS_DATA = {
    "coverage_ratio",
    "source_contested_timestamp_seconds",
    "source_last_seen_timestamp_seconds",
    "tenant_mapping_info",
}
"""Accounting speaks of many clusters, so there the cluster is what a series is about."""


def test_a_name_stands_once() -> None:
    assert len(BY_NAME) == len(FAMILIES)


@by_family
def test_names_are_lower_case_words(family: Family) -> None:
    assert re.fullmatch(r"slicemeter_[a-z][a-z0-9]*(_[a-z0-9]+)*", family.full_name)


@by_family
def test_total_stands_on_counters_and_on_nothing_else(family: Family) -> None:
    assert (family.type == "counter") == family.name.endswith("_total")


@by_family
def test_info_stands_on_identities_and_on_nothing_else(family: Family) -> None:
    assert (family.type == "info") == family.name.endswith("_info")


@by_family
def test_only_base_units_stand_in_names(family: Family) -> None:
    words = set(family.name.split("_"))
    assert not words & {
        "mib",
        "gib",
        "kb",
        "mb",
        "mj",
        "ms",
        "milliseconds",
        "percent",
        "minutes",
        "hours",
        "mhz",
    }


@by_family
def test_a_point_in_time_says_timestamp_seconds(family: Family) -> None:
    assert ("timestamp" in family.name) == family.name.endswith("_timestamp_seconds")
    assert "age" not in family.name.split("_")


@by_family
def test_no_label_is_one_that_the_server_adds(family: Family) -> None:
    allowed = {"cluster"} if family.name in CLUSTER_IS_DATA else set()
    assert not (SERVER_LABELS - allowed) & set(family.labels)


@by_family
def test_labels_are_distinct_and_hold_no_measured_value(family: Family) -> None:
    assert len(set(family.labels)) == len(family.labels)
    measured = {"value", "limit", "used", "bytes", "seconds", "percent", "amount", "le", "quantile"}
    assert not measured & set(family.labels)


@pytest.mark.parametrize(("group", "level"), [("device", DEVICE), ("slice", SLICE), ("tenant", TENANT)])
def test_families_of_one_level_have_its_labels_first(group: str, level: tuple[str, ...]) -> None:
    families = [family for family in FAMILIES if family.group == group]
    assert families
    assert all(family.labels[: len(level)] == level for family in families)


@by_family
def test_only_info_series_carry_identity_beyond_their_level(family: Family) -> None:
    level = {"device": DEVICE, "slice": SLICE, "tenant": TENANT}.get(family.group)
    if level is not None and family.type != "info":
        assert len(family.labels) <= len(level) + 1


@by_family
def test_a_closed_label_has_distinct_words_and_a_label_to_stand_in(family: Family) -> None:
    if family.closed:
        assert len(set(family.closed)) == len(family.closed)
        assert family.labels


@by_family
def test_help_is_one_sentence_without_a_line_break(family: Family) -> None:
    assert re.fullmatch(r"[A-Z1][^\n]+\.", family.help)


def test_node_and_cluster_role_share_only_families_about_themselves() -> None:
    shared = [family for family in FAMILIES if {"node", "cluster"} <= set(family.emitters)]
    assert shared
    assert {family.group for family in shared} == {"self"}


def test_accounting_shares_no_family_with_an_exporter() -> None:
    assert all(family.emitters == ("accounting",) for family in FAMILIES if family.group == "accounting")
