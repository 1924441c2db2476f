"""`slicemeter annotation show`: DESIGN section 6."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from slicemeter.annotation import EXAMPLES, main

REGISTERED = "GPU-ebe7c3f7-303d-558d-435e-99a160631fe4,10,7680,100,NVIDIA-Tesla P4,0,true,1,hami-core:"


def device(
    uuid: str, memory_mib: int, core_percent: int, mig: dict[str, int] | None = None
) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "vendor": "NVIDIA",
        "memory_mib": memory_mib,
        "core_percent": core_percent,
        "mig": mig,
    }


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*argv: str) -> tuple[int, Any]:
        code = main(["show", *argv, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_pod_devices_are_shown_by_container(show: Any) -> None:
    code, shown = show("pod-devices", "GPU-a,NVIDIA,4000,0:;", "--containers", "i:setup,main*,sidecar")
    assert (code, shown) == (
        0,
        {"containers": [{"name": "main", "devices": [device("GPU-a", 4000, 0)]}], "errors": []},
    )


def test_without_a_pod_the_containers_have_no_name_and_that_is_no_error(show: Any) -> None:
    code, shown = show("pod-devices", "GPU-a[1-0],NVIDIA,20480,28:;")
    assert code == 0
    assert shown["containers"] == [
        {"name": None, "devices": [device("GPU-a", 20480, 28, {"template": 1, "slot": 0})]}
    ]


def test_a_part_that_cannot_be_read_is_a_finding(show: Any) -> None:
    code, shown = show("pod-devices", "GPU-a,NVIDIA,x,0:GPU-b,NVIDIA,1,0:;", "--containers", "app*")
    assert code == 1
    assert shown["containers"] == [{"name": "app", "devices": [device("GPU-b", 1, 0)]}]
    (error,) = shown["errors"]
    assert (error["segment"], error["reason"]) == ("GPU-a,NVIDIA,x,0", "bad_number")
    assert set(error) == {"segment", "reason", "detail"}


@pytest.mark.parametrize("value", ["GPU-a,NVIDIA:;", ";"])
def test_nothing_readable_is_bad_input_with_one_line(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "pod-devices", value, "--containers", "app*", "--json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["containers"] == []
    assert captured.err.count("\n") == 1
    assert "pod-devices" in captured.err


@pytest.mark.parametrize("kind", ["pod-devices", "node-register", "node-lock", "mig-allocations"])
def test_an_empty_value_is_fine(kind: str, show: Any) -> None:
    code, shown = show(kind, "")
    assert code == 0
    assert shown["errors"] == []


def test_to_allocate_says_whether_all_was_consumed(show: Any) -> None:
    code, shown = show("pod-devices-to-allocate", ";", "--containers", "app*")
    assert (code, shown) == (0, {"all_consumed": True, "containers": [], "errors": []})
    code, shown = show("pod-devices-to-allocate", ";GPU-b,NVIDIA,5,0:;", "--containers", "a*,b*")
    assert (code, shown["all_consumed"]) == (0, False)
    assert shown["containers"] == [{"name": "b", "devices": [device("GPU-b", 5, 0)]}]


def test_a_register_is_shown_by_device(show: Any) -> None:
    code, shown = show("node-register", REGISTERED)
    assert (code, shown["errors"]) == (0, [])
    assert shown["devices"] == [
        {
            "uuid": "GPU-ebe7c3f7-303d-558d-435e-99a160631fe4",
            "count": 10,
            "memory_mib": 7680,
            "core_percent": 100,
            "type": "NVIDIA-Tesla P4",
            "numa": 0,
            "health": True,
            "index": 1,
            "mode": "hami-core",
            "mig_profiles": [],
        }
    ]


def test_seven_fields_have_no_index(show: Any) -> None:
    _, shown = show("node-register", "GPU-a,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true:")
    assert (shown["devices"][0]["index"], shown["devices"][0]["mode"]) == (None, "hami-core")


def test_a_lock_is_shown_in_utc(show: Any) -> None:
    code, shown = show("node-lock", "2026-11-30T19:06:44+08:00,default,gpumem-pod-a")
    expected = {
        "acquired_at": "2026-11-30T11:06:44Z",
        "namespace": "default",
        "pod": "gpumem-pod-a",
        "errors": [],
    }
    assert (code, shown) == (0, expected)


def test_an_unreadable_lock_is_bad_input(show: Any) -> None:
    code, shown = show("node-lock", "2026-11-30T11:06:44Z,default")
    assert (code, shown["acquired_at"]) == (2, None)
    assert [error["reason"] for error in shown["errors"]] == ["field_count"]


def test_mig_allocations_are_shown_by_instance(show: Any) -> None:
    value = (
        '[{"containerIndex":0,"deviceIndex":0,"gpuUUID":"GPU-a","profile":"1g.10gb","placement":'
        '{"start":6,"size":1}}]'
    )
    code, shown = show("mig-allocations", value)
    assert code == 0
    assert shown["allocations"] == [
        {
            "container_index": 0,
            "device_index": 0,
            "uuid": "GPU-a",
            "profile": "1g.10gb",
            "placement": {"start": 6, "size": 1},
            "mig_uuid": None,
            "gpu_instance_id": None,
            "compute_instance_id": None,
        }
    ]


def test_a_dash_reads_standard_input(show: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"2026-11-30T11:06:44Z\n")))
    code, shown = show("node-lock", "-")
    assert (code, shown["acquired_at"]) == (0, "2026-11-30T11:06:44Z")


def test_bytes_that_are_no_text_are_an_error_and_no_crash(show: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe,NVIDIA,x,0:;")))
    code, shown = show("pod-devices", "-")
    assert code == 2
    assert [error["reason"] for error in shown["errors"]] == ["bad_number"]


def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "pod-devices", "GPU-a,NVIDIA,4000,30:;", "--containers", "app*"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "container  uuid   vendor  memory_mib  core_percent  mig",
        "app        GPU-a  NVIDIA  4000        30            -",
    ]


def test_a_terminal_never_gets_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "pod-devices", "\x1b]0;owned\x07,NVIDIA,x:;\ud800"]) == 2
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert "\\x1b" in captured.out


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ([], "show"),
        (["show", "pod-colours", ""], "pod-colours"),
        (["show", "pod-devices", "", "--containers", "Main*"], "Main*"),
        (["show", "pod-devices", "", "--containers", "a,a"], '"a"'),
        (["show", "pod-devices", "", "--containers", "a,i:b"], "i:b"),
        (["show", "node-lock", "", "--containers", "a"], "node-lock"),
    ],
)
def test_a_bad_command_line_is_told_in_one_line(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert named in captured.err


def test_help_has_an_example_of_every_kind_that_can_be_read_whole(
    show: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["show", "--help"])
    text = capsys.readouterr().out
    kinds = text[text.index("KIND  ") : text.index("VALUE  ")].replace("KIND", "").replace(",", " ").split()
    assert sorted(EXAMPLES) == kinds
    for kind, value in EXAMPLES.items():
        assert f"slicemeter annotation show {kind} " in text
        assert value in text
        code, shown = show(kind, value)
        assert (code, shown.get("errors", [])) == (0, [])
