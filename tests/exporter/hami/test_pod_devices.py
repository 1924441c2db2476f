"""The allocation grammar: every value that `reference/hami-kubernetes.md §3.2` shows, and any other text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.hami.annotations.flaw import REASONS_OF
from exporter.hami.annotations.pod_devices import GrantedDevice, MigSlot, parse_pod_devices


def nvidia(uuid: str, memory_mib: int, core_percent: int, mig: MigSlot | None = None) -> GrantedDevice:
    return GrantedDevice(uuid, "NVIDIA", memory_mib, core_percent, mig)


A, B = "GPU-aaa", "GPU-bbb"

EXAMPLES = [
    (
        "GPU-859b872c-0ba2-97b0-10b4-8b7185c55039,NVIDIA,4000,0:;",
        [[nvidia("GPU-859b872c-0ba2-97b0-10b4-8b7185c55039", 4000, 0)]],
    ),
    ("GPU-aaa,NVIDIA,3000,0:GPU-bbb,NVIDIA,3000,0:;", [[nvidia(A, 3000, 0), nvidia(B, 3000, 0)]]),
    ("GPU-aaa,NVIDIA,3000,0:;GPU-bbb,NVIDIA,5000,0:;", [[nvidia(A, 3000, 0)], [nvidia(B, 5000, 0)]]),
    ("GPU-aaa,NVIDIA,500,3:;;GPU-bbb,NVIDIA,500,3:;", [[nvidia(A, 500, 3)], [], [nvidia(B, 500, 3)]]),
    (
        ";;GPU-aaa,NVIDIA,141000,100:GPU-bbb,NVIDIA,141000,100:;",
        [[], [], [nvidia(A, 141000, 100), nvidia(B, 141000, 100)]],
    ),
    (
        "GPU-0aa6b97c-d386-26ba-a94a-b9d27c2e3a71,NVIDIA,1000,0:;;,,0,0:;,,0,0:;,,0,0:;",
        [[nvidia("GPU-0aa6b97c-d386-26ba-a94a-b9d27c2e3a71", 1000, 0)], [], [], [], []],
    ),
    (
        "GPU-A,NVIDIA,2500,25:;GPU-B,NVIDIA,2500,25:;",
        [[nvidia("GPU-A", 2500, 25)], [nvidia("GPU-B", 2500, 25)]],
    ),
    ("GPU-d28a[0-2],NVIDIA,10240,14:;", [[nvidia("GPU-d28a", 10240, 14, MigSlot(0, 2))]]),
    ("GPU-a[1-0],NVIDIA,20480,28:;", [[nvidia("GPU-a", 20480, 28, MigSlot(1, 0))]]),
    (";", [[]]),
    (";;", [[], []]),
    (";;;", [[], [], []]),
    ("", []),
]


@pytest.mark.parametrize(("text", "devices"), EXAMPLES)
def test_every_example_of_the_reference_is_read(text: str, devices: list[list[GrantedDevice]]) -> None:
    parsed = parse_pod_devices(text)
    assert [list(entry.devices) for entry in parsed.entries] == devices
    assert [entry.position for entry in parsed.entries] == list(range(len(devices)))
    assert parsed.errors == ()


def test_a_value_without_amounts_is_an_error_and_its_entry_is_not_empty() -> None:
    parsed = parse_pod_devices("GPU-2409b7b6-2df6-0343-90dd-2d73da18e0e8,NVIDIA:;")
    assert [entry.devices for entry in parsed.filled] == [()]
    (error,) = parsed.errors
    assert (error.segment, error.reason) == ("GPU-2409b7b6-2df6-0343-90dd-2d73da18e0e8,NVIDIA", "field_count")


def test_a_bad_number_costs_that_device_alone() -> None:
    parsed = parse_pod_devices("GPU-a,NVIDIA,x,0:GPU-b,NVIDIA,1,2:;")
    assert parsed.entries[0].devices == (nvidia("GPU-b", 1, 2),)
    assert [(error.segment, error.reason) for error in parsed.errors] == [("GPU-a,NVIDIA,x,0", "bad_number")]


@pytest.mark.parametrize("number", ["-1", "1.5", "", "1_000", "２", "2147483648", "9" * 5000, "0x10"])
def test_only_whole_numbers_of_32_bits_are_amounts(number: str) -> None:
    parsed = parse_pod_devices(f"GPU-a,NVIDIA,{number},0:;")
    assert parsed.entries[0].devices == ()
    assert [error.reason for error in parsed.errors] == ["bad_number"]


def test_fields_after_the_fourth_are_kept() -> None:
    parsed = parse_pod_devices("Ascend910B3-0,Ascend910B3,16384,25,extra,{1}:;")
    assert parsed.entries[0].devices == (
        GrantedDevice("Ascend910B3-0", "Ascend910B3", 16384, 25, None, ("extra", "{1}")),
    )


def test_an_amount_without_a_uuid_is_an_error() -> None:
    assert [error.reason for error in parse_pod_devices(",NVIDIA,400,0:;").errors] == ["missing_uuid"]


def test_a_broken_mig_suffix_keeps_the_card() -> None:
    parsed = parse_pod_devices("GPU-a[x],NVIDIA,400,0:;")
    assert parsed.entries[0].devices == (nvidia("GPU-a", 400, 0),)
    assert [error.reason for error in parsed.errors] == ["bad_mig"]


def test_containers_that_volcano_joins_without_a_last_semicolon_are_read() -> None:
    parsed = parse_pod_devices("GPU-a,NVIDIA,1,0:;GPU-b,NVIDIA,2,0:")
    assert [entry.devices for entry in parsed.entries] == [(nvidia("GPU-a", 1, 0),), (nvidia("GPU-b", 2, 0),)]


def test_a_line_break_at_the_end_changes_nothing() -> None:
    assert parse_pod_devices("GPU-a,NVIDIA,1,0:;\n") == parse_pod_devices("GPU-a,NVIDIA,1,0:;")


@pytest.mark.parametrize(
    ("text", "consumed"),
    [(";", True), (";;", True), (";GPU-b,NVIDIA,1,0:;", False), ("GPU-b,NVIDIA:;", False)],
)
def test_all_consumed_means_that_no_entry_is_filled(text: str, *, consumed: bool) -> None:
    assert parse_pod_devices(text).all_consumed is consumed


def test_a_control_character_in_a_uuid_is_an_error() -> None:
    assert [error.reason for error in parse_pod_devices("GPU\x1b[2J,NVIDIA,1,0:;").errors] == [
        "bad_mig",
        "bad_uuid",
    ]
    assert [error.reason for error in parse_pod_devices("GPU\ud800,NVIDIA,1,0:;").errors] == ["bad_uuid"]


def test_a_flood_of_devices_is_read_up_to_a_bound_and_reported() -> None:
    parsed = parse_pod_devices("GPU-a,NVIDIA,1,0:" * 15_000 + ";")
    assert len(parsed.entries[0].devices) == 1_000
    assert [error.reason for error in parsed.errors] == ["too_many"]
    at_the_bound = parse_pod_devices("GPU-a,NVIDIA,1,0:" * 999 + ";")
    assert (len(at_the_bound.entries[0].devices), at_the_bound.errors) == (999, ())


pieces = st.sampled_from(
    ["GPU-a", ",", ":", ";", "[", "]", "-", "NVIDIA", "0", "1", " ", "x", "\x00", "\ud800"]
)


@given(st.one_of(st.text(), st.lists(pieces).map("".join)))
def test_any_text_gives_devices_and_reasons_but_no_exception(text: str) -> None:
    parsed = parse_pod_devices(text)
    for error in parsed.errors:
        assert error.reason in REASONS_OF[error.kind]
    for entry in parsed.entries:
        for device in entry.devices:
            assert device.uuid.isprintable()
            assert device.memory_mib >= 0
            assert entry in parsed.filled


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from([A, B]), st.integers(0, 2**31 - 1), st.integers(0, 100)), max_size=3
        ),
        max_size=5,
    )
)
def test_what_hami_would_write_is_read_back_without_an_error(pod: list[list[tuple[str, int, int]]]) -> None:
    text = "".join(
        "".join(f"{uuid},NVIDIA,{memory},{cores}:" for uuid, memory, cores in container) + ";"
        for container in pod
    )
    parsed = parse_pod_devices(text)
    assert parsed.errors == ()
    assert [[(d.uuid, d.memory_mib, d.core_percent) for d in e.devices] for e in parsed.entries] == pod
