"""Every object of the goldens is what Kubernetes and the Prometheus operator take, to the last field."""

from __future__ import annotations

import json
from pathlib import Path

import kubernetes_validate
import pytest

from tests.charts.rendering import CASES, KUBERNETES, Manifest, golden

OPERATOR = "monitoring.coreos.com/v1"
_ENDPOINT = {
    "port",
    "path",
    "scheme",
    "honorLabels",
    "interval",
    "scrapeTimeout",
    "authorization",
    "tlsConfig",
    "relabelings",
}
_RULE = {"alert", "expr", "for", "labels", "annotations", "record"}


@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_every_object_is_valid_to_the_last_field(kubernetes: str) -> None:
    """Each distinct object once: most are the same in many cases."""
    found = [each for values in CASES for each in golden(values) if each["apiVersion"] != OPERATOR]
    distinct = {json.dumps(each, sort_keys=True): each for each in found}
    assert len(distinct) > 50
    for each in distinct.values():
        kubernetes_validate.validate(each, kubernetes, strict=True)


def test_an_unknown_field_is_refused() -> None:
    """The validation above can fail."""
    [deployment] = [each for each in golden(CASES[-1]) if each["kind"] == "DaemonSet"]
    wrong = {**deployment, "spec": {**deployment["spec"], "replica": 1}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(wrong, KUBERNETES[0], strict=True)


@pytest.mark.parametrize("values", CASES, ids=lambda path: path.stem)
def test_the_operators_objects_have_only_fields_that_it_knows(values: Path) -> None:
    for each in golden(values):
        if each["apiVersion"] != OPERATOR:
            continue
        spec = each["spec"]
        if each["kind"] == "PrometheusRule":
            assert spec.keys() == {"groups"}
            for group in spec["groups"]:
                assert group.keys() == {"name", "rules"}
                assert all(
                    rule.keys() <= _RULE and ("alert" in rule) != ("record" in rule)
                    for rule in group["rules"]
                )
        else:
            listed = "podMetricsEndpoints" if each["kind"] == "PodMonitor" else "endpoints"
            assert spec.keys() == {"selector", listed}
            assert all(_is_endpoint(endpoint) for endpoint in spec[listed])


def _is_endpoint(endpoint: Manifest) -> bool:
    token = endpoint.get("authorization", {"type": "Bearer", "credentials": {"name": "", "key": ""}})
    return (
        endpoint.keys() <= _ENDPOINT
        and token.keys() == {"type", "credentials"}
        and token["credentials"].keys() == {"name", "key"}
    )
