"""The check table's own arithmetic, and that a figure which is off or missing is never a pass."""

from __future__ import annotations

from collections.abc import Iterable

from lab.checks.check import Case, show
from lab.checks.evidence import BookEvidence, Evidence, Isolation
from lab.checks.slices import expected_outcomes, mean_of_whole_cycles, share_is_held
from lab.pages import Album, Answer, parse_page
from lab.scenarios.demo import demo

CASE = Case("a case")
START_S = 1_790_000_000
SAMPLES = (32, 82, 0, 84, 0, 60, 0, 57, 11, 25, 0, 9)


NOBODY = Answer(0, "")
NO_BOOKS = BookEvidence({}, None, None, (), Isolation("lab-a", "lab-b", {}, NOBODY, NOBODY, NOBODY, NOBODY))


def evidence(pages: Iterable[str]) -> Evidence:
    album = Album()
    for text in pages:
        album.add("node lab-c", parse_page(text, 0.0))
    steady = {"node lab-c": album.pages("node lab-c")[-1]}
    return Evidence(demo(ends=True), START_S, album, steady, {}, NO_BOOKS)


def held_page(at_s: float, sm_seconds: float, unknown_s: float = 0.0, now: float = 0.0) -> str:
    """A page `at_s` seconds after the held process's start."""
    return f"""\
# TYPE slicemeter_slice_sm_seconds_total counter
slicemeter_slice_sm_seconds_total{{pod="held"}} {sm_seconds}
# TYPE slicemeter_slice_unknown_seconds_total counter
slicemeter_slice_unknown_seconds_total{{pod="held",reason="gap"}} {unknown_s}
# TYPE slicemeter_slice_sm_utilization_ratio gauge
slicemeter_slice_sm_utilization_ratio{{pod="held",source="nvml"}} {now}
# TYPE slicemeter_slice_core_limit_ratio gauge
slicemeter_slice_core_limit_ratio{{pod="held"}} 0.3
# TYPE slicemeter_slice_info gauge
slicemeter_slice_info{{pod="held",policy="force"}} 1
# TYPE slicemeter_snapshot_timestamp_seconds gauge
slicemeter_snapshot_timestamp_seconds {START_S + 20 + at_s}
"""


def true_pages(seconds: range, factor: float = 1.0) -> list[str]:
    whole = [sum(SAMPLES[k % 12] for k in range(s)) / 100 * factor for s in seconds]
    return [
        held_page(s + 0.5, sm, now=SAMPLES[(s - 1) % 12] / 100) for s, sm in zip(seconds, whole, strict=True)
    ]


def mean(pages: list[str]) -> float | None:
    return mean_of_whole_cycles(evidence(pages), "node lab-c", demo(ends=True).cluster("lab-c").pod("held"))


def test_a_figure_that_was_not_measured_is_no_pass() -> None:
    assert not CASE.equal("memory", 5, None).is_right
    assert not CASE.near("mean", 0.3, None, 0.01).is_right


def test_a_figure_that_is_off_is_no_pass_and_an_equal_one_is() -> None:
    assert not CASE.equal("memory", 62_914_560_000, 62_914_560_001.0).is_right
    assert CASE.equal("memory", 62_914_560_000, 62_914_560_000.0).is_right
    assert not CASE.near("mean", 0.30, 0.3101, 0.01).is_right
    assert CASE.near("mean", 0.30, 0.3099, 0.01).is_right


def test_figures_are_shown_for_people() -> None:
    assert show(62_914_560_000, "bytes") == "62,914,560,000 bytes"
    assert show(0.3) == "0.30"
    assert show(0.3051) == "0.3051"
    assert show(0.0070191, "EUR") == "0.007019 EUR"
    assert show(None, "bytes") == "absent"


def test_the_locks_of_cluster_a_expire_twice_and_the_third_is_freed_by_hand() -> None:
    outcomes = {
        code: expected_outcomes(demo(ends=True).cluster(code)) for code in ("lab-a", "lab-b", "lab-c")
    }

    assert outcomes["lab-a"] == {"acquired": 3, "released": 0, "expired": 2, "dangling": 0, "manual": 1}
    assert outcomes["lab-b"] == {"acquired": 2, "released": 0, "expired": 1, "dangling": 0, "manual": 0}
    assert outcomes["lab-c"] == {"acquired": 11, "released": 11, "expired": 0, "dangling": 0, "manual": 0}


def test_the_mean_is_taken_over_whole_cycles_wherever_the_pages_begin() -> None:
    for first in range(12):
        found = mean(true_pages(range(first, first + 30)))
        assert found is not None
        assert abs(found - 0.30) < 1e-9


def test_no_whole_cycle_is_no_mean() -> None:
    assert mean(true_pages(range(3, 14))) is None


def test_time_that_could_not_be_measured_cuts_the_stretch() -> None:
    before = [held_page(s + 0.5, s * 0.3) for s in range(13)]
    # After a kill two seconds are missing from the counter, and the exporter says so.
    after = [held_page(s + 0.5, s * 0.3 - 0.6, unknown_s=2.0) for s in range(15, 22)]

    found = mean(before + after)

    assert found is not None
    assert abs(found - 0.30) < 1e-9


def test_a_counter_that_misses_four_percent_of_the_time_fails_the_case() -> None:
    def verdicts(pages: list[str]) -> dict[str, bool]:
        return {
            check.figure: check.is_right for check in share_is_held(evidence(pages), CASE, "lab-c", "held")
        }

    right, wrong = verdicts(true_pages(range(1, 49))), verdicts(true_pages(range(1, 49), factor=0.96))

    assert all(right.values())
    assert [figure for figure, is_right in wrong.items() if not is_right] == ["held: mean SM by its counter"]
