"""The exporter's table of figures: each beside its floor, and a word where one does not hold."""

from __future__ import annotations

from benchmarks.bench_exporter import Row, decode_rows, footprint_rows, markdown, sampler_rows, scrape_rows


def test_a_figure_beyond_its_floor_is_said_to_be() -> None:
    result = {"decode_to_floor": 3.01, "at_most": 3.0, "files": 320, "processes": 2}
    assert [row.holds for row in decode_rows(result)] == [False]
    assert [row.holds for row in decode_rows(result | {"decode_to_floor": 3.0})] == [True]


def test_the_samplers_floor_is_judged_by_the_fastest_tick_on_a_full_node() -> None:
    tick = {"rung": "nvml", "at_most_percent": 1.0, "tick_least_ms": 9.0}
    best, median = "least_percent_of_core_per_100_slices", "percent_of_core_per_100_slices"
    rows = sampler_rows(
        {
            "results": [
                tick | {"slices": 10, best: 2.0, median: 2.5},
                tick | {"slices": 320, best: 0.9, median: 1.2},
                tick | {"slices": 320, best: 1.1, median: 1.2},
            ]
        }
    )
    assert [(row.floor, row.holds) for row in rows] == [("", None), ("1 %", True), ("1 %", False)]


def test_a_scrape_has_a_floor_for_a_page_that_is_made() -> None:
    row = {"encoding": "gzip", "scrapers": 4, "p50_ms": 3.0, "p99_ms": 20.0}
    found = list(
        scrape_rows({"series": 9, "rows": [row | {"page": page} for page in ("same", "ahead", "new")]})
    )
    assert [each.holds for each in found] == [False, None, None]
    assert found[0].what == "scrape 9 series, same page, gzip, 4 scrapers at once"
    assert found[0].measured == "p50 3.0 ms, p99 20.0 ms"


def test_memory_is_judged_by_its_largest_figure_at_320_slices() -> None:
    row = {"first_page_s": 1.0, "once_s": 2.0, "descriptors": 9, "threads": 6}
    rows = [
        row | {"slices": 100, "start_mib": 99.0, "end_mib": 99.0},
        row | {"slices": 320, "start_mib": 65.0, "end_mib": 60.0},
    ]
    found = [each for each in footprint_rows({"at_most_mib": 64, "rows": rows}) if "memory" in each.what]
    assert [(each.floor, each.holds) for each in found] == [("", None), ("64 MiB", False)]


def test_the_docs_section_names_the_machine_neutrally_and_every_figure() -> None:
    text = markdown([Row("decode", "2.5 ×", "at most 3 ×", True), Row("start", "1 s", "", None)])
    assert text.startswith("## Exporter\n")
    assert "| decode | 2.5 × | at most 3 × | yes |" in text
    assert "| start | 1 s |  |  |" in text
    assert " cores, " in text
