from __future__ import annotations

from typing import Any

import pytest

from lab.kube.json_object import copy_of, merge_patch

# RFC 7386, appendix A: the cases whose target and patch are objects.
APPENDIX_A: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), APPENDIX_A)
def test_patches_merge_as_the_standards_appendix_shows(
    target: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    assert merge_patch(target, patch) == result


def test_a_patch_leaves_its_target_as_it_was() -> None:
    target = {"metadata": {"annotations": {"a": "1"}}}
    merge_patch(target, {"metadata": {"annotations": {"a": None, "b": "2"}}})
    assert target == {"metadata": {"annotations": {"a": "1"}}}


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(TypeError):
        copy_of({"a": object()})
