"""The short keys: `reference/hami-kubernetes.md §2.3, §3.6, §6, §12`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.hami.annotations.flaw import REASONS_OF
from exporter.hami.annotations.pod_keys import PodKeys, allocation_keys, parse_device_cordon, parse_pod_keys


def test_hamis_short_keys_are_read() -> None:
    keys = parse_pod_keys(
        {
            "hami.io/vgpu-node": "node-a",
            "hami.io/vgpu-time": "1700000100",
            "hami.io/bind-time": "1700000000",
            "hami.io/bind-phase": "allocating",
        }
    )
    assert keys == PodKeys("node-a", 1_700_000_100_000, 1_700_000_000_000, "allocating", ())


def test_volcanos_largest_number_is_no_time_and_no_error() -> None:
    keys = parse_pod_keys(
        {"volcano.sh/vgpu-time": "18446744073709551615", "volcano.sh/bind-phase": "success"}
    )
    assert keys == PodKeys(None, None, None, "success", ())


def test_bad_values_are_reported_and_missing_ones_are_not() -> None:
    keys = parse_pod_keys({"hami.io/bind-time": "yesterday", "hami.io/bind-phase": "done"})
    assert [(error.segment, error.reason) for error in keys.errors] == [
        ("done", "bad_value"),
        ("yesterday", "bad_time"),
    ]
    assert parse_pod_keys({}) == PodKeys(None, None, None, None, ())


def test_a_cordon_lists_uuids_with_any_blanks() -> None:
    assert parse_device_cordon(" GPU-a , GPU-b,,GPU-a\n") == (("GPU-a", "GPU-b"), ())
    assert [error.reason for error in parse_device_cordon("GPU-a,G\x00PU")[1]] == ["bad_uuid"]


VENDOR_KEYS = [
    ("hami.io/vgpu-devices-allocated", "vgpu"),
    ("hami.io/Ascend910B3-devices-allocated", "Ascend910B3"),
    ("hami.io/cambricon-mlu-devices-allocated", "cambricon-mlu"),
    ("hami.io/dcu-devices-allocated", "dcu"),
    ("hami.io/MR-V100-devices-allocated", "MR-V100"),
    ("hami.io/enflame-vgpu-devices-allocated", "enflame-vgpu"),
    ("hami.io/metax-sgpu-devices-allocated", "metax-sgpu"),
    ("hami.io/kunlun-allocated", "kunlun"),
    ("hami.io/xpu-devices-allocated", "xpu"),
    ("hami.io/amd-devices-allocated", "amd"),
    ("hami.io/aws-neuron-devices-allocated", "aws-neuron"),
    ("hami.io/Vastai-devices-allocated", "Vastai"),
    ("volcano.sh/vgpu-ids-new", "vgpu"),
]


@pytest.mark.parametrize(("key", "family"), VENDOR_KEYS)
def test_every_vendors_allocation_is_found_by_its_key(key: str, family: str) -> None:
    others = {"hami.io/vgpu-devices-to-allocate": "", "huawei.com/Ascend910B3": "", "hami.io/vgpu-node": ""}
    assert allocation_keys({key: "", **others}) == ((key, family),)


def test_nvidias_allocation_is_read_first() -> None:
    keys = allocation_keys({"hami.io/dcu-devices-allocated": "", "hami.io/vgpu-devices-allocated": ""})
    assert [family for _, family in keys] == ["vgpu", "dcu"]


@given(
    st.dictionaries(
        st.sampled_from(["hami.io/bind-time", "hami.io/bind-phase", "hami.io/vgpu-time"]), st.text()
    )
)
def test_any_texts_give_keys_and_reasons(annotations: dict[str, str]) -> None:
    assert all(error.reason in REASONS_OF[error.kind] for error in parse_pod_keys(annotations).errors)


@given(st.text())
def test_any_cordon_gives_uuids_and_reasons(text: str) -> None:
    uuids, errors = parse_device_cordon(text)
    assert all(uuid.isprintable() for uuid in uuids)
    assert all(error.reason in REASONS_OF[error.kind] for error in errors)
