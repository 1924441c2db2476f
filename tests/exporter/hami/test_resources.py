"""What a pod asks for: `reference/hami-kubernetes.md §4`."""

from __future__ import annotations

import msgspec
import pytest

from exporter.hami.resources import Request, ResourceNames, layout_of, requests_of, whole_quantity
from exporter.kube.objects import Pod


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1),
        (3, 3),
        ("20k", 20_000),
        ("2Ki", 2048),
        ("1e3", 1000),
        ("0", 0),
        (None, None),
        ("1.5", None),
        ("", None),
        ("-1", None),
        ("x", None),
        ("500m", None),
    ],
)
def test_quantities_are_whole_numbers_or_nothing(text: str | int | None, number: int | None) -> None:
    assert whole_quantity(text) == number


def pod(*limits: dict[str, str], requests: dict[str, str] | None = None) -> Pod:
    containers = [
        {"name": f"c{i}", "resources": {"limits": limit, "requests": requests or {}}}
        for i, limit in enumerate(limits)
    ]
    return msgspec.convert({"metadata": {"name": "p"}, "spec": {"containers": containers}}, Pod)


def test_a_request_has_count_memory_and_cores() -> None:
    asked = pod(
        {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "20000", "nvidia.com/gpucores": "30"}, {"cpu": "1"}
    )
    assert requests_of(asked, ResourceNames()) == (Request("c0", "app", 2, 20000, None, 30),)


def test_memory_wins_over_percentage_and_cores_stop_at_one_card() -> None:
    asked = pod(
        {
            "nvidia.com/gpu": "1",
            "nvidia.com/gpumem": "100",
            "nvidia.com/gpumem-percentage": "50",
            "nvidia.com/gpucores": "120",
        },
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"},
        {"nvidia.com/gpu": "1"},
    )
    found = requests_of(asked, ResourceNames())
    assert [(r.memory_mib, r.memory_percent, r.core_percent) for r in found] == [
        (100, None, 100),
        (None, 50, 0),
        (None, None, 0),
    ]


def test_limits_go_before_requests_and_names_and_factor_are_the_clusters() -> None:
    names = ResourceNames(count="hami.io/gpu", memory_mib="hami.io/mem", memory_factor=256)
    asked = pod({"hami.io/gpu": "1"}, requests={"hami.io/gpu": "3", "hami.io/mem": "4"})
    assert requests_of(asked, names) == (Request("c0", "app", 1, 1024, None, 0),)


def test_a_count_of_zero_asks_for_nothing() -> None:
    assert requests_of(pod({"nvidia.com/gpu": "0"}), ResourceNames()) == ()
    assert layout_of(pod({"nvidia.com/gpu": "0"}), ResourceNames()).requesters == ()


def test_each_vendors_requesters_are_found_by_its_domain() -> None:
    asked = pod({"nvidia.com/gpu": "1"}, {"huawei.com/Ascend910B3": "1"}, {"vastai.com/va": "1", "cpu": "2"})
    names = ResourceNames()
    assert [c.name for c in layout_of(asked, names).requesters] == ["c0"]
    assert [c.name for c in layout_of(asked, names, "Ascend910B3").requesters] == ["c1"]
    # A family whose domain is not known: anything that is neither NVIDIA's nor Kubernetes' own.
    assert [c.name for c in layout_of(asked, names, "Vastai").requesters] == ["c1", "c2"]
