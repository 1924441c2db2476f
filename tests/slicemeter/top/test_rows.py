"""Live rows out of two pages, by hand."""

from __future__ import annotations

import pytest

from exporter.exposition.reading import Page, parse_page
from slicemeter.top.model import Watch
from slicemeter.top.rows import SORTS, Filters, Row, ordered, rows_of, sparkline
from slicemeter.top.scraping import Scrape

MIB = 1024 * 1024


def page(at_s: float, *slices: str) -> Page:
    info = 'slicemeter_device_info{node="n1",device_uuid="GPU-1",model="Tesla T4",index="0"} 1'
    return parse_page(
        "\n".join([f"slicemeter_snapshot_timestamp_seconds {at_s}", info, *slices, ""]), at_s + 0.5
    )


def slice_lines(pod: str = "a", *, tenant: str = "acme/x", sm_s: float | None = 0.0, **more: float) -> str:
    labels = f'node="n1",namespace="ns",pod="{pod}",container="main",device_uuid="GPU-1",tenant="{tenant}"'
    lines = [f"slicemeter_slice_memory_allocated_bytes{{{labels}}} {4000 * MIB}"]
    if sm_s is not None:
        lines.append(f"slicemeter_slice_sm_seconds_total{{{labels}}} {sm_s}")
    lines += [f"slicemeter_slice_{name}{{{labels}}} {value}" for name, value in more.items()]
    return "\n".join(lines)


def energy(pod: str, kind: str, joules: float) -> str:
    labels = f'node="n1",namespace="ns",pod="{pod}",container="main",device_uuid="GPU-1",tenant="acme/x"'
    return f'slicemeter_slice_energy_joules_total{{{labels},kind="{kind}"}} {joules}'


def only(rows: list[Row]) -> Row:
    (row,) = rows
    return row


def test_use_is_the_counters_growth_over_the_time_between_the_snapshots() -> None:
    before = page(100, slice_lines(sm_s=10), energy("a", "active", 50), energy("a", "idle", 5))
    now = page(104, slice_lines(sm_s=11.2), energy("a", "active", 250), energy("a", "idle", 99))
    row = only(rows_of("u", now, before))
    # 1.2 s of a whole card in 4 s; 200 J at work in 4 s.
    assert row.sm_ratio == pytest.approx(0.3)
    assert row.power_watts == pytest.approx(50.0)
    assert (row.card, row.model, row.allocated_bytes) == ("0", "Tesla T4", 4000 * MIB)


def test_one_page_has_figures_but_no_rates() -> None:
    row = only(rows_of("u", page(100, slice_lines(sm_s=10, memory_used_bytes=5 * MIB)), None))
    assert (row.sm_ratio, row.used_bytes) == (None, 5 * MIB)


def test_what_a_page_does_not_say_is_absent_and_not_0() -> None:
    row = only(rows_of("u", page(104, slice_lines(sm_s=None)), page(100, slice_lines(sm_s=None))))
    assert (row.sm_ratio, row.used_bytes, row.core_ratio, row.power_watts) == (None, None, None, None)


def test_a_counter_that_began_again_has_no_rate() -> None:
    row = only(rows_of("u", page(104, slice_lines(sm_s=1)), page(100, slice_lines(sm_s=10))))
    assert row.sm_ratio is None


def test_time_that_could_not_be_measured_is_told_and_is_no_idleness() -> None:
    before, now = (
        page(at_s, slice_lines(sm_s=5, unknown_seconds_total=unknown_s))
        for at_s, unknown_s in ((100, 0.0), (104, 4.0))
    )
    row = only(rows_of("u", now, before))
    assert (row.sm_ratio, row.unknown_ratio) == (None, 1.0)


def test_memory_above_the_limit_is_marked() -> None:
    lines = slice_lines(memory_used_bytes=11, memory_limit_bytes=10)
    assert only(rows_of("u", page(100, lines), None)).is_over_limit


def test_the_largest_use_comes_first_and_unknown_use_last() -> None:
    pods = ("a", "b", "c")
    before = page(100, *(slice_lines(pod, sm_s=0) for pod in pods))
    now = page(110, slice_lines("a", sm_s=1), slice_lines("b", sm_s=5), slice_lines("c", sm_s=None))
    assert [row.pod for row in ordered(rows_of("u", now, before), "sm")] == ["b", "a", "c"]
    assert [row.pod for row in ordered(rows_of("u", now, before), "pod", is_reversed=True)] == ["c", "b", "a"]


@pytest.mark.parametrize("sort", SORTS)
def test_every_order_takes_rows_that_lack_everything(sort: str) -> None:
    rows = rows_of("u", page(100, slice_lines("a", sm_s=None), slice_lines("b", sm_s=None)), None)
    assert len(ordered(rows, sort)) == 2


def test_a_tenant_is_shown_with_all_below_it_and_none_that_only_begins_alike() -> None:
    tenants = {"a": "acme/x", "b": "acme/x/y", "c": "acme/xy"}
    rows = rows_of("u", page(100, *(slice_lines(pod, tenant=path) for pod, path in tenants.items())), None)
    assert [row.pod for row in rows if Filters("acme/x").lets_pass(row)] == ["a", "b"]


def test_the_same_snapshot_twice_adds_no_rate() -> None:
    watch = Watch()
    pages = (page(100, slice_lines(sm_s=0)), page(101, slice_lines(sm_s=1)), page(101, slice_lines(sm_s=1)))
    for one in pages:
        watch.take([Scrape("u", one)])
    row = only(watch.rows)
    assert (row.sm_ratio, watch.history(row.key)) == (1.0, (1.0,))


def test_an_exporter_that_falls_silent_is_named_and_its_slices_stay() -> None:
    watch = Watch()
    watch.take([Scrape("u", page(100, slice_lines()))])
    watch.take([Scrape("u", None, "Connection refused")])
    assert (len(watch.rows), watch.errors) == (1, {"u": "Connection refused"})


def test_a_sparkline_has_a_gap_where_nothing_was_measured() -> None:
    assert sparkline([0.0, None, 0.5, 1.0, 7.0]) == "▁ ▅██"
