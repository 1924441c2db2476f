"""The frame: page, process and native metrics together, and no name twice."""

from __future__ import annotations

import pytest
from prometheus_client import Counter, Gauge, Histogram, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import DuplicateTimeseries

from exporter.delivery.metrics import DeliveryMetrics
from exporter.exposition.board import Board
from exporter.exposition.collector import Exposition
from exporter.exposition.page import PageBuilder


def exposition_with_a_page() -> Exposition:
    board = Board()
    builder = PageBuilder()
    builder.add("device_power_watts", ["n1", "GPU-1"], 71.25)
    builder.add("device_busy_seconds_total", ["n1", "GPU-1"], 3)
    board.publish(builder.build(1.0))
    return Exposition(board, "node")


def test_before_the_first_tick_only_our_own_process_is_shown() -> None:
    names = {metric.name for metric in Exposition(Board(), "node").everything.collect()}
    assert "process_resident_memory_bytes" in names
    assert "python_info" in names
    assert [name for name in names if name.startswith("slicemeter_")] == ["slicemeter_series_dropped"]


def test_a_native_metric_with_the_name_of_a_page_family_is_refused() -> None:
    with pytest.raises(DuplicateTimeseries):
        Gauge("slicemeter_device_power_watts", "twice", registry=exposition_with_a_page().registry)
    with pytest.raises(DuplicateTimeseries):
        Counter("slicemeter_device_busy_seconds_total", "twice", registry=exposition_with_a_page().registry)


def test_what_delivery_and_the_cluster_role_count_natively_finds_its_names_free() -> None:
    exposition = Exposition(Board(), "cluster")
    DeliveryMetrics(exposition.registry)
    Histogram("slicemeter_grant_seconds", "waits", registry=exposition.registry)


def test_native_counters_begin_at_0_and_have_no_created_series() -> None:
    exposition = exposition_with_a_page()
    DeliveryMetrics(exposition.registry)
    text = generate_latest(exposition.registry).decode()
    for line in (
        'slicemeter_push_total{result="ok"} 0.0',
        'slicemeter_push_total{result="set_aside"} 0.0',
        'slicemeter_facts_lost_total{reason="disk_full"} 0.0',
        'slicemeter_counters_restarted_total{why="new_boot"} 0.0',
    ):
        assert line in text.splitlines()
    assert "_created" not in text


def test_text_and_openmetrics_hold_the_same_samples_of_ours() -> None:
    exposition = exposition_with_a_page()
    DeliveryMetrics(exposition.registry)
    text = generate_latest(exposition.everything).decode()
    openmetrics = generate_openmetrics(exposition.everything_openmetrics).decode()  # type: ignore[no-untyped-call]

    def ours(families: object) -> set[tuple[str, tuple[tuple[str, str], ...], float]]:
        return {
            (sample.name, tuple(sorted(sample.labels.items())), sample.value)
            for family in families  # type: ignore[attr-defined]
            for sample in family.samples
            if sample.name.startswith("slicemeter_")
        }

    parsed = ours(parse_text(text))
    assert ("slicemeter_device_power_watts", (("device_uuid", "GPU-1"), ("node", "n1")), 71.25) in parsed
    assert ours(parse_openmetrics(openmetrics)) == parsed  # type: ignore[no-untyped-call]
