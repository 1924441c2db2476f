"""The live table: what pages say, and a dash where they say nothing."""

from __future__ import annotations

import re
import shlex
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console

from lab.footprint import Footprint
from lab.live.front_page import Question, StatementLink, front_page
from lab.live.render import Screen, render
from lab.live.view import Address, ClusterLine, Cost, PodKey, SliceRow, cluster_line, slice_rows
from lab.live.watch import picture
from lab.pages import Page, parse_page

SLICE = 'node="n",namespace="research",pod="held",container="cuda",device_uuid="GPU-1",tenant="research"'
MOCK = 'node="n",namespace="team",pod="share-a",container="main",device_uuid="GPU-1",tenant="tenant-a"'

QUESTION = Question("as the operator", Path("/tmp/x/operator.token"), "http://127.0.0.1:1/api?a=1&b=2")


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
        "lab-c", [measured(0.0, 0.0), measured(10.0, 3.0)], {key: Cost(Decimal("1234.5678"), "EUR")}
    )
    screen = Screen(
        elapsed_s=75,
        step="lab-c: held is bound",
        rows=[*rows, *slice_rows("lab-a", [mock()], {})],
        clusters=[cluster_line("lab-c", measured(10.0, 3.0), None)],
        addresses=[Address("node lab-c", "http://127.0.0.1:9476/metrics")],
        question=None,
        peak=Footprint(1_250_000_000, 1.5),
        hint="Ctrl-C stops everything",
    )
    text = shown(screen, 120, 60)

    for words in (
        "01:15", "lab-c: held is bound", "research/held", "T4", "2,000 /  4,000", "84%", "30%",
        "1,234.57 EUR",        "20,000 granted", "4,000 of 15,360 MiB, cores 0.30, slots 1/10", "http://127.0.0.1:9476",
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


def full_screen() -> Screen:
    """As many slices, cards and addresses as the demo has, with figures as long as they get."""
    cost = Cost(Decimal("1234.5678"), "EUR")
    names = ["a-1", "a-2", "a-3", "b-1", "b-2", *(f"small-{number}" for number in range(10))]
    rows = [
        SliceRow(
            key=PodKey("lab", "research", name),
            tenant="tenant-a" if name.startswith("a") else "tenant-b" if name.startswith("b") else "research",
            device="A100-SXM4-80GB",
            granted_mib=20_000,
            used_mib=None if name.startswith("a") else 19_321,
            limit_mib=20_000,
            sm_now=1.0,
            sm_mean=0.37,
            cost=cost,
        )
        for name in names
    ]
    card = "A100-SXM4-80GB: 60,000 of 81,920 MiB, cores 0.90, slots 3/10"
    notes = ("1 pod pending: CardInsufficientMemory", "1 can never fit", "1 past HAMi")
    return Screen(
        elapsed_s=75,
        step="lab-c: held is bound",
        rows=rows,
        clusters=[ClusterLine(code, (card,), notes) for code in ("lab-a", "lab-b", "lab-c")],
        addresses=[
            Address("start here", "file:///tmp/slicemeter-demo-01234567/statements/index.html"),
            *(Address(f"cluster lab-{n}", f"http://127.0.0.1:4000{n}/metrics") for n in range(8)),
        ],
        question=QUESTION,
        peak=Footprint(1_250_000_000, 1.5),
        hint="Ctrl-C stops everything",
    )


SIZES = [(160, 50), (132, 60), (120, 50), (120, 30), (100, 30), (80, 50), (80, 24)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_in_every_usual_window_each_figure_is_whole_and_the_last_line_says_how_to_stop(
    size: tuple[int, int],
) -> None:
    text = shown(full_screen(), *size)

    lines = text.splitlines()
    assert len(lines) <= size[1]
    assert "…" not in text
    assert text.count("1,234.57 EUR") == 15
    assert text.count("19,321 / 20,000") == 12
    assert len(re.findall(r"100% +37%", text)) == 15
    assert lines[-1].startswith("Ctrl-C stops everything")
    assert "statements/index.html" in text


@pytest.mark.parametrize("size", [(160, 50), (120, 60), (80, 60)], ids=str)
def test_a_window_with_room_shows_clusters_beside_or_above_the_addresses(size: tuple[int, int]) -> None:
    text = shown(full_screen(), *size)

    assert text.count("60,000 of 81,920 MiB, cores 0.90, slots 3/10") == 3
    assert text.count("/metrics") == 8
    assert 'curl -H "Authorization: Bearer $(cat /tmp/x/operator.token)" \\\n' in text
    assert "a larger window" not in text


@pytest.mark.parametrize("lines", [4, 5, 12, 18])
def test_a_window_that_is_too_low_says_how_many_slices_it_leaves_out(lines: int) -> None:
    text = shown(full_screen(), 80, lines).splitlines()

    left_out = 15 - sum("1,234.57 EUR" in line for line in text)
    assert len(text) <= lines
    assert f"{left_out} more slices" in text[-1]


def test_a_window_that_is_too_narrow_for_the_devices_still_has_every_figure() -> None:
    text = shown(full_screen(), 64, 24)

    assert text.count("1,234.57 EUR") == 15
    assert "A100" not in text


def test_the_front_page_links_what_exists_and_names_no_token() -> None:
    links = [
        StatementLink("tenant-a", "acme", "one <A100>", "228.48 EUR", "tenant-a.html"),
        StatementLink("tenant-b", "globex", "two L4", None, "tenant-b.html"),
    ]
    page = front_page(links, [QUESTION], [Address("accounting", "http://127.0.0.1:1/metrics")])

    assert re.findall(r'href="([^"]+)"', page) == ["tenant-a.html", "http://127.0.0.1:1/metrics"]
    assert "228.48 EUR" in page
    assert "one &lt;A100&gt;" in page
    assert "$(cat /tmp/x/operator.token)" in page
    assert "no statement yet" in page


def test_a_question_is_one_shell_command_whatever_its_paths_are_called() -> None:
    question = Question("as a", Path("/tmp/my demo/a.token"), "http://127.0.0.1:1/api?a=1&b=2")

    for text in (question.command, question.text):
        words = shlex.split(text.replace("\\\n", ""))
        assert words[:2] == ["curl", "-H"]
        assert words[-1] == "http://127.0.0.1:1/api?a=1&b=2"
        assert "$(cat '/tmp/my demo/a.token')" in text
    assert "\n" not in question.command


def test_a_picture_names_no_path_of_this_computer() -> None:
    addresses = [
        Address("start here", "file:///tmp/x/statements/index.html"),
        Address("accounting", "http://127.0.0.1:1/metrics"),
    ]
    screen = Screen(5, "", [], [], addresses, QUESTION, Footprint(), "")

    svg = picture(screen)

    assert svg.startswith("<svg")
    assert "http://127.0.0.1:1/metrics" in svg
    assert "file:///…/statements/index.html" in svg
    assert "/tmp" not in svg
    assert "@font-face" not in svg
