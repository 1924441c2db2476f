from __future__ import annotations

import pytest

from lab.kube.kinds import BY_NAME, BadSelectorError, Selection, parse_field_selector

POD = BY_NAME["Pod"]


@pytest.mark.parametrize(
    ("text", "is_selected"),
    [
        ("", True),
        ("spec.nodeName=gpu-1", True),
        ("spec.nodeName==gpu-1", True),
        ("spec.nodeName!=gpu-1", False),
        ("spec.nodeName!=", True),
        ("spec.nodeName=", False),
        ("metadata.name=a,metadata.namespace=n", True),
        ("metadata.name=a,metadata.namespace!=n", False),
        ("status.phase=", True),
    ],
)
def test_a_field_selector_selects_as_an_api_server_does(text: str, is_selected: bool) -> None:
    pod = {"metadata": {"name": "a", "namespace": "n"}, "spec": {"nodeName": "gpu-1"}}
    assert Selection(POD, requirements=parse_field_selector(POD, text)).has(pod) is is_selected


def test_a_namespace_selects_its_own_objects() -> None:
    pod = {"metadata": {"name": "a", "namespace": "n"}}
    assert Selection(POD, "n").has(pod)
    assert not Selection(POD, "other").has(pod)


@pytest.mark.parametrize("text", ["spec.hostname=x", "metadata.uid=x", "spec.nodeName", "=x"])
def test_a_selector_that_an_api_server_refuses_is_refused(text: str) -> None:
    with pytest.raises(BadSelectorError):
        parse_field_selector(POD, text)
