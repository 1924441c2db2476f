"""What a node offers: every value of `reference/hami-kubernetes.md §2.1, §12`, and any other text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.hami.annotations.flaw import REASONS_OF
from exporter.hami.annotations.node_register import (
    MigProfile,
    NodeRegister,
    Placement,
    RegisteredDevice,
    parse_node_register,
    registered,
)


def reasons(register: NodeRegister) -> list[str]:
    return [error.reason for error in register.errors]


def test_seven_fields_leave_index_open_and_mode_at_its_default() -> None:
    text = (
        "GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true:"
        "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true:"
    )
    register = parse_node_register(text)
    model = "NVIDIA-Tesla V100-PCIE-32GB"
    assert register.errors == ()
    assert register.devices == tuple(
        RegisteredDevice(uuid, 10, 32768, 100, model, 0, health=True, index=None, mode="hami-core")
        for uuid in ("GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec", "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448")
    )


def test_nine_fields_have_index_and_mode() -> None:
    text = "GPU-ebe7c3f7-303d-558d-435e-99a160631fe4,10,7680,100,NVIDIA-Tesla P4,0,true,1,hami-core:"
    (device,) = parse_node_register(text).devices
    assert (device.index, device.mode, device.memory_mib) == (1, "hami-core", 7680)


def test_a_model_with_a_doubled_prefix_is_kept_as_it_stands() -> None:
    text = "GPU-fc28df76-54d2-c387-e52e-5f0a9495968c,10,49140,100,NVIDIA-NVIDIA L40S,0,true:"
    (device,) = parse_node_register(text).devices
    assert (device.type, device.memory_mib) == ("NVIDIA-NVIDIA L40S", 49140)


def test_json_of_2_8_with_its_empty_noise_is_read() -> None:
    text = (
        '[{"id":"GPU-859b872c-0ba2-97b0-10b4-8b7185c55039","count":10,"devmem":15360,"devcore":100,'
        '"type":"NVIDIA-Tesla T4","mode":"hami-core","health":true,"devicepairscore":{}}]'
    )
    register = parse_node_register(text)
    assert register == NodeRegister(
        (
            RegisteredDevice(
                "GPU-859b872c-0ba2-97b0-10b4-8b7185c55039",
                10,
                15360,
                100,
                "NVIDIA-Tesla T4",
                0,
                health=True,
                index=0,
                mode="hami-core",
            ),
        ),
        (),
    )


def test_json_without_health_is_an_unhealthy_device() -> None:
    text = (
        '[{"id":"GPU-a…","count":10,"devmem":81920,"devcore":100,"type":"NVIDIA A100-SXM4-80GB",'
        '"mode":"hami-core","health":true},{"id":"GPU-b…","index":1,"count":10,"devmem":81920,"devcore":100,'
        '"type":"NVIDIA A100-SXM4-80GB","numa":1,"mode":"hami-core"}]'
    )
    register = parse_node_register(text)
    assert [(device.uuid, device.index, device.numa, device.health) for device in register.devices] == [
        ("GPU-a…", 0, 0, True),
        ("GPU-b…", 1, 1, False),
    ]
    assert register.errors == ()


def test_mig_profiles_of_2_10_are_read() -> None:
    profile = {
        "name": "1g.10gb",
        "memoryMB": 9728,
        "core": 14,
        "sliceCount": 1,
        "placements": [{"start": 0, "size": 1}, {"start": 6, "size": 1}],
    }
    text = json.dumps([{"id": "GPU-a", "mode": "mig", "health": True, "migProfiles": [profile]}])
    (device,) = parse_node_register(text).devices
    placements = (Placement(0, 1), Placement(6, 1))
    assert device.mig_profiles == (MigProfile("1g.10gb", 9728, 14, 1, placements),)


@pytest.mark.parametrize("text", ["", "  \n", "null", "[]", "[ ]\n", ":"])
def test_nothing_is_no_device_and_no_error(text: str) -> None:
    assert parse_node_register(text) == NodeRegister((), ())


def test_pretty_printed_json_is_read() -> None:
    text = json.dumps([{"id": "GPU-a", "count": 4, "devmem": 81920, "health": True}], indent=2) + "\n"
    assert [device.memory_mib for device in parse_node_register(text).devices] == [81920]


def test_a_bad_segment_costs_itself_alone() -> None:
    text = "GPU-a,10,1,100,T4,0,true:GPU-b,10,1,100,T4:GPU-c,10,1,100,T4,0,maybe:GPU-d,ten,1,100,T4,0,true:"
    register = parse_node_register(text)
    assert [device.uuid for device in register.devices] == ["GPU-a"]
    assert reasons(register) == ["field_count", "bad_boolean", "bad_number"]
    assert register.errors[0].segment == "GPU-b,10,1,100,T4"


@pytest.mark.parametrize("word", ["1", "t", "T", "TRUE", "true", "True"])
def test_true_has_the_spellings_of_go(word: str) -> None:
    assert parse_node_register(f"GPU-a,1,1,1,m,0,{word}:").devices[0].health is True


@pytest.mark.parametrize("word", ["0", "f", "F", "FALSE", "false", "False"])
def test_false_has_the_spellings_of_go(word: str) -> None:
    assert parse_node_register(f"GPU-a,1,1,1,m,0,{word}:").devices[0].health is False


def test_of_two_equal_uuids_the_first_is_kept_and_the_second_reported() -> None:
    register = parse_node_register("GPU-a,1,10,100,m,0,true:GPU-a,1,20,100,m,0,true:")
    assert [device.memory_mib for device in register.devices] == [10]
    assert reasons(register) == ["duplicate"]


def test_json_that_breaks_off_gives_what_stood_before_the_break() -> None:
    register = parse_node_register('[{"id":"GPU-a","devmem":1},{"id":"GPU-b","dev')
    assert [device.uuid for device in register.devices] == ["GPU-a"]
    assert reasons(register) == ["bad_json"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[{"devmem":1}]', "missing_uuid"),
        ('[{"id":7}]', "bad_uuid"),
        ('[{"id":"GPU-a\\u0007"}]', "bad_uuid"),
        ('[{"id":"GPU-\\ud800"}]', "bad_uuid"),
        ('[{"id":"GPU-a","devmem":1.5}]', "bad_number"),
        ('[{"id":"GPU-a","devmem":true}]', "bad_number"),
        ('[{"id":"GPU-a","devmem":-1}]', "bad_number"),
        ('[{"id":"GPU-a","devmem":1e400}]', "bad_number"),
        ('[{"id":"GPU-a","health":null}]', "bad_boolean"),
        ('[{"id":"GPU-a","type":[]}]', "bad_value"),
        ("[1]", "bad_json"),
        ("[" * 100_000, "bad_json"),
        ('[{"id":"GPU-a","devmem":' + "9" * 5_000 + "}]", "bad_json"),
    ],
)
def test_json_that_says_nothing_sensible_has_its_reason(text: str, reason: str) -> None:
    register = parse_node_register(text)
    assert register.devices == ()
    assert reasons(register) == [reason]


def test_volcano_has_five_or_six_fields_with_the_model_fourth() -> None:
    old = registered({"volcano.sh/node-vgpu-register": "GPU-a,10,15360,NVIDIA-Tesla T4,true:"})
    new = registered({"volcano.sh/node-vgpu-register": "GPU-a,10,15360,NVIDIA-Tesla T4,false,mig:"})
    assert [(device.type, device.memory_mib, device.health, device.mode) for device in old.devices] == [
        ("NVIDIA-Tesla T4", 15360, True, "hami-core")
    ]
    assert [(device.health, device.mode) for device in new.devices] == [(False, "mig")]
    assert reasons(registered({"volcano.sh/node-vgpu-register": "GPU-a,10,15360,100,T4,0,true:"})) == [
        "field_count"
    ]


def test_hamis_own_key_goes_before_volcanos() -> None:
    both = {
        "hami.io/node-nvidia-register": "GPU-a,1,1,1,m,0,true:",
        "volcano.sh/node-vgpu-register": "GPU-b,1,1,m,true:",
    }
    assert [device.uuid for device in registered(both).devices] == ["GPU-a"]
    assert registered({}) == NodeRegister((), ())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "count", "health", "type", "migProfiles", "placements"]), inner
        )
    ),
    max_leaves=12,
)


@given(
    st.one_of(
        st.text(),
        st.text(alphabet='[]{}",:GPU-a10\n '),
        json_values.map(lambda value: json.dumps([value])),
        json_values.map(json.dumps),
    )
)
def test_any_text_gives_devices_and_reasons_but_no_exception(text: str) -> None:
    for form in ("hami", "volcano"):
        register = parse_node_register(text, "hami" if form == "hami" else "volcano")
        uuids = [device.uuid for device in register.devices]
        assert len(uuids) == len(set(uuids))
        assert all(error.reason in REASONS_OF[error.kind] for error in register.errors)
