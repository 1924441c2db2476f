"""Which container an entry belongs to: `reference/hami-kubernetes.md §3.9` and the rules around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.hami.annotations.containers import (
    ContainerRole,
    PodLayout,
    container_of_directory,
    map_entries,
)
from exporter.hami.annotations.pod_devices import parse_pod_devices


def pod(spec: str) -> PodLayout:
    """`i:setup main* sidecar` in one line, by the words of the reference's table."""
    words = spec.split()
    return PodLayout(
        tuple(
            ContainerRole(
                word.removeprefix("i:").rstrip("*"),
                "init" if word.startswith("i:") else "app",
                word.endswith("*"),
            )
            for word in words
        )
    )


FIXTURES = [
    ("GPU-a,NVIDIA,4000,0:;", "app*", {"app": [("GPU-a", 4000, 0)]}),
    (
        "GPU-a,NVIDIA,3000,0:GPU-b,NVIDIA,3000,0:;",
        "app*",
        {"app": [("GPU-a", 3000, 0), ("GPU-b", 3000, 0)]},
    ),
    ("GPU-a,NVIDIA,1000,0:;;,,0,0:;,,0,0:;", "c0 c1* c2 c3", {"c1": [("GPU-a", 1000, 0)]}),
    ("GPU-a,NVIDIA,1000,0:;", "c0 c1*", {"c1": [("GPU-a", 1000, 0)]}),
    (";GPU-a,NVIDIA,1000,0:;", "c0 c1*", {"c1": [("GPU-a", 1000, 0)]}),
    (";GPU-a,NVIDIA,1000,0:;", "i:i0 c0*", {"c0": [("GPU-a", 1000, 0)]}),
    (
        "GPU-a,NVIDIA,2500,25:;GPU-b,NVIDIA,2500,25:;",
        "i:i0 c0* c1*",
        {"c0": [("GPU-a", 2500, 25)], "c1": [("GPU-b", 2500, 25)]},
    ),
    (
        "GPU-a,NVIDIA,100,0:;GPU-b,NVIDIA,200,0:;",
        "i:i0* c0*",
        {"i0": [("GPU-a", 100, 0)], "c0": [("GPU-b", 200, 0)]},
    ),
    ("GPU-a[1-0],NVIDIA,20480,28:;", "app*", {"app": [("GPU-a", 20480, 28)]}),
    ("", "app*", {}),
]


@pytest.mark.parametrize(("text", "spec", "expected"), FIXTURES)
def test_every_fixture_maps_to_its_containers(
    text: str, spec: str, expected: dict[str, list[tuple[str, int, int]]]
) -> None:
    mapping = map_entries(parse_pod_devices(text), pod(spec))
    found = {
        container.name: [
            (device.uuid, device.memory_mib, device.core_percent) for device in container.devices
        ]
        for container in mapping.containers
    }
    assert found == expected
    assert mapping.errors == ()


def test_a_requester_without_an_entry_is_an_error() -> None:
    mapping = map_entries(parse_pod_devices(";"), pod("app*"))
    assert mapping.containers == ()
    assert [error.reason for error in mapping.errors] == ["no_entry"]


def test_a_broken_entry_still_counts_for_the_order() -> None:
    mapping = map_entries(parse_pod_devices("GPU-a,NVIDIA:;GPU-b,NVIDIA,5,0:;"), pod("c0* c1*"))
    assert [(container.name, container.devices[0].uuid) for container in mapping.containers] == [
        ("c1", "GPU-b")
    ]
    assert mapping.errors == ()


def test_init_requesters_are_left_out_where_hami_left_them_out() -> None:
    mapping = map_entries(parse_pod_devices("GPU-a,NVIDIA,5,0:;"), pod("i:i0* c0*"))
    assert [container.name for container in mapping.containers] == ["c0"]


def test_position_decides_when_the_order_cannot() -> None:
    mapping = map_entries(parse_pod_devices(";GPU-b,NVIDIA,5,0:;"), pod("c0* c1*"))
    assert [container.name for container in mapping.containers] == ["c1"]
    assert [error.reason for error in mapping.errors] == ["no_entry"]


def test_devices_of_an_unknown_container_are_kept() -> None:
    mapping = map_entries(parse_pod_devices("GPU-a,NVIDIA,5,0:;"), pod("c0* c1*"))
    assert [(container.name, container.devices[0].uuid) for container in mapping.containers] == [
        (None, "GPU-a")
    ]
    assert [error.reason for error in mapping.errors] == ["unmapped"]


two_gpus = parse_pod_devices("GPU-a,NVIDIA,2500,25:;GPU-b,NVIDIA,2500,25:;")


@pytest.mark.parametrize(("directory", "container"), [("i0", "c0"), ("c0", "c1")])
def test_directories_that_2_10_0_shifted_are_shifted_back(directory: str, container: str) -> None:
    found = container_of_directory(directory, {"i0", "c0"}, two_gpus, pod("i:i0 c0* c1*"))
    assert found == container


def test_a_directory_that_names_a_requester_is_its_own() -> None:
    layout = pod("i:i0 c0* c1*")
    padded = parse_pod_devices(";GPU-a,NVIDIA,2500,25:;GPU-b,NVIDIA,2500,25:;")
    assert container_of_directory("c0", {"c0", "c1"}, padded, layout) == "c0"
    assert container_of_directory("c1", {"c0", "c1"}, padded, layout) == "c1"


def test_the_only_gpu_container_owns_the_directory_whatever_its_name() -> None:
    devices = parse_pod_devices("GPU-a,NVIDIA,1000,0:;")
    assert container_of_directory("c0", {"c0"}, devices, pod("c0 c1* c2")) == "c1"


def test_the_shared_directory_of_old_hami_belongs_to_no_one_container() -> None:
    assert container_of_directory("c0", {"c0"}, two_gpus, pod("c0 c1* c2*")) is None


def test_a_directory_of_a_name_that_hami_would_not_write_is_unknown() -> None:
    assert container_of_directory("c9", {"c9"}, two_gpus, pod("i:i0 c0* c1*")) is None


layouts = st.lists(st.booleans(), min_size=1, max_size=6).map(
    lambda wants: PodLayout(tuple(ContainerRole(f"c{i}", "app", want) for i, want in enumerate(wants)))
)


@given(layouts)
def test_order_names_every_container_however_the_entries_are_padded(layout: PodLayout) -> None:
    entries = [f"GPU-{role.name},NVIDIA,1,0:" if role.is_requester else "" for role in layout.containers]
    padded = "".join(entry + ";" for entry in entries)
    bare = "".join(entry + ";" for entry in entries if entry)
    for text in (padded, bare):
        mapping = map_entries(parse_pod_devices(text), layout)
        assert [container.name for container in mapping.containers] == [
            role.name for role in layout.requesters
        ]
        assert all(container.devices[0].uuid == f"GPU-{container.name}" for container in mapping.containers)
        assert mapping.errors == ()


@given(
    st.text(alphabet="Ga,:;0[-]"), layouts, st.text(max_size=3), st.sets(st.sampled_from(["c0", "c1", "x"]))
)
def test_no_text_and_no_directory_breaks_the_mapping(
    text: str, layout: PodLayout, name: str, siblings: set[str]
) -> None:
    devices = parse_pod_devices(text)
    readable = sum(len(entry.devices) for entry in devices.entries)
    mapping = map_entries(devices, layout)
    assert sum(len(container.devices) for container in mapping.containers) == readable
    found = container_of_directory(name, siblings, devices, layout)
    assert found is None or found in {role.name for role in layout.requesters}
