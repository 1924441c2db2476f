from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kube.objects import Meta, Pod
from exporter.kube.tenant import (
    DEFAULT_TENANT_FROM,
    TenantRule,
    TenantRuleError,
    parse_tenant_rules,
    tenant_key,
)

CAPSULE = "capsule.clastix.io/tenant"


def pod(namespace: str = "team-ns", **labels: str) -> Pod:
    return Pod(Meta(name="p", namespace=namespace, labels=labels))


def test_by_default_the_capsule_label_of_the_namespace_pays() -> None:
    rules = parse_tenant_rules(DEFAULT_TENANT_FROM)
    assert tenant_key(pod(), {CAPSULE: "tenant-a"}, rules) == "tenant-a"


def test_by_default_a_namespace_without_the_label_pays_itself() -> None:
    rules = parse_tenant_rules(DEFAULT_TENANT_FROM)
    assert tenant_key(pod(), {}, rules) == "team-ns"
    assert tenant_key(pod(), {CAPSULE: ""}, rules) == "team-ns"


def test_the_first_rule_with_a_value_wins() -> None:
    rules = parse_tenant_rules("pod-label:team,namespace-label:team,namespace")
    assert tenant_key(pod(team="red"), {"team": "blue"}, rules) == "red"
    assert tenant_key(pod(), {"team": "blue"}, rules) == "blue"


def test_a_pod_for_which_no_rule_finds_a_value_has_no_tenant() -> None:
    assert tenant_key(pod(), {}, parse_tenant_rules("pod-label:team")) == ""


def test_rules_keep_their_order() -> None:
    assert parse_tenant_rules(" namespace , pod-label:a/b ") == (
        TenantRule("namespace"),
        TenantRule("pod-label", "a/b"),
    )


@pytest.mark.parametrize(
    ("text", "way_out"),
    [
        ("", "empty rule"),
        ("namespace,,pod-label:a", "empty rule"),
        ("pod-label:", "write pod-label:KEY"),
        ("namespace-label", "write namespace-label:KEY"),
        ("label:team", "there are pod-label:KEY"),
        ("namespace:team", "there are pod-label:KEY"),
        ("namespace, namespace", "stands there twice"),
        ("pod-label:a, pod-label:a", '"pod-label:a" stands there twice'),
    ],
)
def test_a_rule_that_cannot_be_read_is_named_with_the_way_out(text: str, way_out: str) -> None:
    with pytest.raises(TenantRuleError) as caught:
        parse_tenant_rules(text)
    assert text in caught.value.detail
    assert way_out in caught.value.detail


@given(st.text())
def test_any_text_is_rules_or_a_typed_error(text: str) -> None:
    try:
        rules = parse_tenant_rules(text)
    except TenantRuleError:
        return
    assert rules
