"""Pod and container from cgroup paths, in the forms that runtimes and drivers write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.node.sources.cgroups import CgroupContainer, container_of

UID = "0d9ad4a1-9b58-4f66-8d0a-3f2c4b1e9a01"
SLICE_UID = UID.replace("-", "_")
STATIC_UID = "c7d2f0a9b8e14d3f9a6b5c4d3e2f1a0b"
ID = "5f0a" * 16
OTHER_ID = "9c3e" * 16


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods/burstable/pod{UID}/{ID}",
        f"/kubepods/besteffort/pod{UID}/{ID}",
        f"/kubepods/pod{UID}/{ID}",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope",
        f"/kubepods.slice/kubepods-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope",
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE_UID}.slice/crio-{ID}.scope",
        f"/kubepods.slice/kubepods-pod{SLICE_UID}.slice/crio-{ID}.scope/container",
        f"/kubepods/burstable/pod{UID}/crio-{ID}",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE_UID}.slice/docker-{ID}.scope",
        f"/system.slice/containerd.service/kubepods-burstable-pod{SLICE_UID}.slice:cri-containerd:{ID}",
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope",
        f"/kubelet/kubepods/burstable/pod{UID}/{ID}",
        f"/docker/{OTHER_ID}/kubelet/kubepods/pod{UID}/{ID}",
        f"/docker/{OTHER_ID}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope",
        f"/system.slice/docker-{OTHER_ID}.scope/kubepods/pod{UID}/{ID}",
        f"/../../kubepods/burstable/pod{UID}/{ID}",
        f"/../cri-containerd-{OTHER_ID}.scope/../../kubepods-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope",
        f"/kubepods/pod{UID}/{ID}/user.slice/workers/7",
        f"/kubepods/pod{UID}/{ID}/nested/{OTHER_ID}",
        f"/kubepods/pod{UID}/{ID} (deleted)",
    ],
)
def test_every_form_of_a_container_path_gives_its_pod_and_its_container(path: str) -> None:
    assert container_of(f"0::{path}\n") == CgroupContainer(UID, ID)


def test_a_static_pod_has_32_hexadecimal_digits_for_a_uid() -> None:
    path = f"/kubepods.slice/kubepods-pod{STATIC_UID}.slice/cri-containerd-{ID}.scope"
    assert container_of(f"0::{path}") == CgroupContainer(STATIC_UID, ID)


def test_a_hierarchy_of_v1_or_a_hybrid_is_read_from_the_first_line_with_a_pod() -> None:
    first = f"12:pids:/user.slice\n11:memory:/kubepods/pod{UID}/{ID}\n"
    v1 = f"{first}1:name=systemd:/kubepods/pod{UID}/{OTHER_ID}\n"
    assert container_of(v1) == CgroupContainer(UID, ID)
    assert container_of(f"{v1}0::/system.slice/kubelet.service\n") == CgroupContainer(UID, ID)


def test_a_pod_within_a_pods_container_is_the_inner_one() -> None:
    inner = "11111111-2222-4333-8444-555555555555"
    path = f"/kubepods/pod{UID}/{OTHER_ID}/kubelet/kubepods/burstable/pod{inner}/{ID}"
    assert container_of(f"0::{path}") == CgroupContainer(inner, ID)


def test_the_monitor_process_of_cri_o_is_in_the_pod_but_in_no_container() -> None:
    for name in (f"crio-conmon-{ID}.scope", f"crio-conmon-{ID}"):
        path = f"/kubepods.slice/kubepods-pod{SLICE_UID}.slice/{name}"
        assert container_of(f"0::{path}") == CgroupContainer(UID, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/\n",
        "0::/user.slice/user-1000.slice/session-2.scope\n",
        f"0::/docker/{ID}\n",
        f"0::/system.slice/docker-{ID}.scope\n",
        f"0::/kubepods/burstable/podman-{UID}/{ID}\n",
        f"0::/kubepods/pod{UID[:-1]}/{ID}\n",
        f"0::/kubepods/tripod{UID}/{ID}\n",
        "0::/kubepods.slice/kubepods-burstable.slice\n",
    ],
)
def test_a_process_outside_of_pods_has_no_pod(text: str) -> None:
    assert container_of(text) is None


def test_an_id_that_is_too_short_is_no_container() -> None:
    assert container_of(f"0::/kubepods/pod{UID}/{ID[:-1]}") == CgroupContainer(UID, None)


@given(
    st.text(max_size=300) | st.lists(st.sampled_from(["/", "pod", UID, ID, ":", "-", "\n", "x"])).map("".join)
)
def test_any_text_gives_a_place_or_nothing(text: str) -> None:
    found = container_of(text)
    assert found is None or found.pod_uid.replace("-", "_") in text.replace("-", "_")
