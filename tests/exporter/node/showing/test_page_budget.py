"""The node's page over budget: which slices stay, and that it is always the same ones."""

from __future__ import annotations

import random

from contract.ids import DeviceUuid, PodUid
from exporter.exposition.page import Page
from exporter.node.metering.counters import Labels, OwnerKey
from exporter.node.showing.page import make_page
from exporter.node.snapshot import (
    DeviceView,
    OwnerTotals,
    SliceGauges,
    SliceView,
    Snapshot,
    TenantView,
    UnallocatedView,
)

CARD = DeviceUuid("GPU-1")
TOTALS = OwnerTotals(0, 0, 0, 0, 0, 0, 0, 0, {}, is_measured=True)


def key(name: str, *, is_slice: bool = True) -> OwnerKey:
    return OwnerKey(PodUid(f"uid-{name}"), "main", CARD, is_slice=is_slice)


def labels(name: str) -> Labels:
    return Labels("ns", name, "main", "t", "T4", "NVIDIA")


def held(name: str, from_ms: int) -> SliceView:
    gauges = SliceGauges(
        key(name), labels(name), 4_000, 30, 1, from_ms, "default", "none", "nvml", used_bytes=1, processes=1
    )
    return SliceView(key(name), labels(name), gauges, TOTALS)


def ended(name: str) -> SliceView:
    return SliceView(key(name), labels(name), None, TOTALS)


SLICES = [ended("gone"), held("young", 3_000), held("old", 1_000), held("middle", 2_000)]
"""A held slice has 11 series here (identity, four gauges, six counters), an ended one its 6 counters."""

DEVICE = DeviceView(
    CARD, "T4", "NVIDIA", 0, "hami-core", None, None, None, None, None, None, None, None, None, None
)
"""Two series: info and health."""

TENANT = TenantView("t", "T4", 12_000, 90, 3, None, 0, 0, is_measured=False)
"""Three series: memory, cores, slices."""

USER = UnallocatedView(key("rogue", is_slice=False), labels("rogue"), 1, TOTALS)
"""Two series: memory and SM time."""


def snapshot(slices: list[SliceView]) -> Snapshot:
    return Snapshot(1_000, "n", (DEVICE,), tuple(slices), (USER,), (TENANT,))


def shown(page: Page) -> set[str]:
    """Pods that have any series of a slice or of unallocated use."""
    return {
        series[2] for family in page.families if family.family.group == "slice" for series in family.labels
    }


def series(page: Page) -> int:
    return sum(len(family.values) for family in page.families)


def of_ourselves() -> int:
    return series(make_page(Snapshot(1_000, "n")))


def test_within_the_budget_everything_is_shown() -> None:
    page = make_page(snapshot(SLICES))
    assert shown(page) == {"gone", "young", "old", "middle", "rogue"}
    assert series(page) == of_ourselves() + 2 + 3 + 3 * 11 + 2 + 6
    assert page.dropped_series == 0


def test_ended_slices_go_first_then_unallocated_use_then_the_youngest_slices() -> None:
    base = of_ourselves() + 2 + 3
    for budget, expected, dropped in (
        (base + 33 + 2 + 5, {"old", "middle", "young", "rogue"}, 6),
        (base + 33 + 1, {"old", "middle", "young"}, 8),
        (base + 32, {"old", "middle"}, 19),
        (base + 21, {"old"}, 30),
        (base + 10, set(), 41),
    ):
        page = make_page(snapshot(SLICES), budget)
        assert (shown(page), page.dropped_series) == (expected, dropped)
        assert series(page) <= budget


def test_a_slice_is_shown_with_all_its_series_or_with_none() -> None:
    whole = make_page(snapshot([held("old", 1_000)]))
    cut = make_page(snapshot(SLICES), of_ourselves() + 2 + 3 + 15)
    for page in (whole, cut):
        assert sum("old" in labels for family in page.families for labels in family.labels) == 11


def test_the_choice_does_not_depend_on_the_order_in_which_slices_were_found() -> None:
    budget = of_ourselves() + 2 + 3 + 25
    first = make_page(snapshot(SLICES), budget)
    for seed in range(10):
        shuffled = SLICES.copy()
        random.Random(seed).shuffle(shuffled)
        assert make_page(snapshot(shuffled), budget) == first


def test_what_we_say_of_ourselves_is_never_dropped() -> None:
    page = make_page(snapshot(SLICES), 1)
    assert {family.family.group for family in page.families} == {"self"}
    assert series(page) == of_ourselves()
    assert page.dropped_series == 2 + 3 + 33 + 2 + 6
