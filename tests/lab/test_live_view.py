"""The live table: what pages say, and a dash where they say nothing."""

from __future__ import annotations

from decimal import Decimal

from rich.console import Console

from lab.footprint import Footprint
from lab.live.render import Screen, render
from lab.live.view import Address, Cost, PodKey, cluster_line, slice_rows
from lab.live.watch import picture
from lab.pages import Page, parse_page

SLICE = 'node="n",namespace="research",pod="held",container="cuda",device_uuid="GPU-1",tenant="research"'
MOCK = 'node="n",namespace="team",pod="share-a",container="main",device_uuid="GPU-1",tenant="tenant-a"'


def measured(at_s: float, sm_seconds: float) -> Page:
    text = f"""\
# TYPE slicemeter_device_info gauge
slicemeter_device_info{{node="n",device_uuid="GPU-1",model="NVIDIA-Tesla T4"}} 1
# TYPE slicemeter_device_memory_allocated_bytes gauge
slicemeter_device_memory_allocated_bytes{{node="n",device_uuid="GPU-1"}} {4_000 * 1024 * 1024}
# TYPE slicemeter_device_memory_registered_bytes gauge
slicemeter_device_memory_registered_bytes{{node="n",device_uuid="GPU-1"}} {15_360 * 1024 * 1024}
# TYPE slicemeter_device_core_allocated_ratio gauge
slicemeter_device_core_allocated_ratio{{node="n",device_uuid="GPU-1"}} 0.3
# TYPE slicemeter_device_slots gauge
slicemeter_device_slots{{node="n",device_uuid="GPU-1"}} 10
# TYPE slicemeter_device_slots_allocated gauge
slicemeter_device_slots_allocated{{node="n",device_uuid="GPU-1"}} 1
# TYPE slicemeter_slice_memory_allocated_bytes gauge
slicemeter_slice_memory_allocated_bytes{{{SLICE}}} {4_000 * 1024 * 1024}
# TYPE slicemeter_slice_memory_limit_bytes gauge
slicemeter_slice_memory_limit_bytes{{{SLICE}}} {4_000 * 1024 * 1024}
# TYPE slicemeter_slice_memory_used_bytes gauge
slicemeter_slice_memory_used_bytes{{{SLICE}}} {2_000 * 1024 * 1024}
# TYPE slicemeter_slice_sm_utilization_ratio gauge
slicemeter_slice_sm_utilization_ratio{{{SLICE},source="nvml"}} 0.84
# TYPE slicemeter_slice_sm_seconds_total counter
slicemeter_slice_sm_seconds_total{{{SLICE}}} {sm_seconds}
"""
    return parse_page(text, at_s)


def mock() -> Page:
    return parse_page(
        "# TYPE slicemeter_slice_memory_allocated_bytes gauge\n"
        f"slicemeter_slice_memory_allocated_bytes{{{MOCK}}} {20_000 * 1024 * 1024}\n",
        1.0,
    )


def shown(screen: Screen, columns: int, lines: int) -> str:
    console = Console(width=columns, color_system=None)
    with console.capture() as capture:
        console.print(render(screen, (columns, lines)))
    return capture.get()


def test_the_mean_is_the_counters_rate_over_at_most_the_last_minute() -> None:
    pages = [measured(0.0, 0.0), measured(50.0, 9.0), measured(100.0, 24.0)]

    (row,) = slice_rows("lab-c", pages, {})

    assert row.sm_mean == 15.0 / 50.0
    assert (row.used_mib, row.limit_mib, row.sm_now) == (2_000, 4_000, 0.84)


def test_on_a_mock_node_nothing_is_used_and_nothing_is_zero() -> None:
    (row,) = slice_rows("lab-a", [mock()], {})

    assert (row.used_mib, row.limit_mib, row.sm_now, row.sm_mean) == (None, None, None, None)
    assert row.granted_mib == 20_000


def test_the_screen_shows_tenant_pod_device_memory_sm_cost_and_addresses() -> None:
    key = PodKey("lab-c", "research", "held")
    rows = slice_rows(
        "lab-c", [measured(0.0, 0.0), measured(10.0, 3.0)], {key: Cost(Decimal("0.0123"), "EUR")}
    )
    screen = Screen(
        elapsed_s=75,
        step="lab-c: held is bound",
        rows=[*rows, *slice_rows("lab-a", [mock()], {})],
        clusters=[cluster_line("lab-c", measured(10.0, 3.0), None)],
        addresses=[Address("node lab-c", "http://127.0.0.1:9476/metrics")],
        peak=Footprint(1_250_000_000, 1.5),
        hint="Ctrl-C stops everything",
    )
    text = shown(screen, 120, 60)

    for words in (
        "01:15", "lab-c: held is bound", "research/held", "T4", "2,000 /  4,000", "84%", "30%", "0.0123 EUR",
        "20,000 granted", "4,000 of 15,360 MiB, cores 0.30, slots 1/10", "http://127.0.0.1:9476",
        "peak 1.25 GB of memory, 1.5 cores", "Ctrl-C stops everything",
    ):  # fmt: skip
        assert words in text


def test_a_clusters_troubles_are_told_in_words() -> None:
    page = parse_page(
        """\
# TYPE slicemeter_pending_pods gauge
slicemeter_pending_pods{namespace="team",tenant="a",reason="CardInsufficientCore"} 1
# TYPE slicemeter_node_lock_held gauge
slicemeter_node_lock_held{node="n"} 1
# TYPE slicemeter_node_lock_acquired_timestamp_seconds gauge
slicemeter_node_lock_acquired_timestamp_seconds{node="n",owner_namespace="team",owner_pod="share-a"} 5
# TYPE slicemeter_node_lock_waiting_pods gauge
slicemeter_node_lock_waiting_pods{node="n"} 2
# TYPE slicemeter_bypassing_pods gauge
slicemeter_bypassing_pods{namespace="team",tenant="a",why="scheduler"} 1
""",
        1.0,
    )

    assert cluster_line("lab-a", None, page).notes == (
        "1 pod pending: CardInsufficientCore",
        "node locked by share-a, 2 waiting",
        "1 past HAMi",
    )


def test_a_small_window_shows_fewer_things_and_each_of_them_whole() -> None:
    key = PodKey("lab-c", "research", "held")
    rows = slice_rows(
        "lab-c", [measured(0.0, 0.0), measured(10.0, 3.0)], {key: Cost(Decimal("0.0123"), "EUR")}
    )
    screen = Screen(
        elapsed_s=75,
        step="lab-c: held is bound",
        rows=[*rows, *slice_rows("lab-a", [mock()], {})],
        clusters=[],
        addresses=[Address("node lab-c", "http://127.0.0.1:9476/metrics")],
        peak=Footprint(),
        hint="Ctrl-C stops everything",
    )

    text = shown(screen, 80, 24)

    assert "…" not in text
    for words in ("held", "2,000 /  4,000", "84%", "30%", "0.0123 EUR", "– / 20,000", "a taller window"):
        assert words in text
    assert "http://" not in text


def test_a_picture_names_no_path_of_this_computer() -> None:
    addresses = [
        Address("API token", "/tmp/x/operator.token"),
        Address("accounting", "http://127.0.0.1:1/metrics"),
    ]
    screen = Screen(5, "", [], [], addresses, Footprint(), "")

    svg = picture(screen)

    assert svg.startswith("<svg")
    assert "http://127.0.0.1:1/metrics" in svg
    assert "operator.token" not in svg
    assert "@font-face" not in svg
