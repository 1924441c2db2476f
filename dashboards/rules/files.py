"""Rules as files: plain for Prometheus, as a PrometheusRule for its operator, and for our own chart.

All three come from the one table. The bytes are a function of the code and the arguments alone, so that
a committed copy can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, cast

import yaml

from dashboards.rules.rule import Alert, Group, Recording, Rule
from dashboards.rules.table import groups
from dashboards.thresholds import Thresholds, as_mapping

Form: TypeAlias = Literal["plain", "operator"]

RUNBOOKS = "docs/runbooks"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where an alert's links lead.

    Attributes:
        runbooks: Folder or address of the runbook pages.
        grafana: Address put before dashboard paths; empty leaves them relative.
    """

    runbooks: str = RUNBOOKS
    grafana: str = ""


def plain_files(chosen: Sequence[Group], addresses: Addresses) -> dict[str, str]:
    """File name to text, one rule file a group, for `rule_files` of Prometheus 2.42 or newer."""
    return {f"{group.name}.rules.yaml": _yaml({"groups": [_group(group, addresses)]}) for group in chosen}


def operator_file(
    chosen: Sequence[Group], addresses: Addresses, *, labels: Mapping[str, str]
) -> dict[str, str]:
    """One PrometheusRule object with every group.

    Args:
        chosen: The groups.
        addresses: Where links lead.
        labels: The object's labels: what the operator's `ruleSelector` looks for.
    """
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "slicemeter", "labels": {"app.kubernetes.io/name": "slicemeter", **labels}},
        "spec": {"groups": [_group(group, addresses) for group in chosen]},
    }
    return {"slicemeter.prometheusrule.yaml": _yaml(document)}


def chart_files() -> dict[str, str]:
    """One template a group for the chart, with its values in the places of thresholds and addresses.

    The text is for Helm's `tpl`: braces that are Prometheus' own are quoted.
    """
    mark = "\N{LEFT WHITE SQUARE BRACKET}{}\N{RIGHT WHITE SQUARE BRACKET}"
    limits = Thresholds(
        **cast("dict[str, Any]", {each.name: mark.format(each.name) for each in fields(Thresholds)})
    )
    addresses = Addresses(runbooks=mark.format("runbooks"), grafana=mark.format("grafana"))
    # Helm reads every number as a float and would write a large one with an exponent.
    whole = {name for name, value in as_mapping().items() if isinstance(value, int)}
    values = {
        each.name: f"rules.thresholds.{camel_case(each.name)}{' | int64' if each.name in whole else ''}"
        for each in fields(Thresholds)
    }
    values |= {"runbooks": "rules.runbookUrl", "grafana": "rules.grafanaUrl"}
    texts = {}
    for group in groups(limits):
        text = _yaml([_rule(rule, addresses) for rule in group.rules])
        text = text.replace("{{", "\0").replace("}}", '{{ "}}" }}').replace("\0", '{{ "{{" }}')
        for name, value in values.items():
            text = text.replace(mark.format(name), f"{{{{ .Values.{value} }}}}")
        texts[f"{group.name}.yaml"] = text
    return texts


def camel_case(name: str) -> str:
    """A threshold's name as the chart's values write it."""
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


def _group(group: Group, addresses: Addresses) -> dict[str, object]:
    return {"name": group.name, "rules": [_rule(rule, addresses) for rule in group.rules]}


def _rule(rule: Rule, addresses: Addresses) -> dict[str, object]:
    if isinstance(rule, Recording):
        return {"record": rule.name, "expr": rule.expr}
    return {
        "alert": rule.name,
        "expr": rule.expr,
        "for": rule.hold,
        "labels": {"severity": rule.severity, **rule.labels},
        "annotations": _annotations(rule, addresses),
    }


def _annotations(alert: Alert, addresses: Addresses) -> dict[str, str]:
    annotations = {
        "summary": alert.summary,
        "description": alert.description,
        "runbook_url": f"{addresses.runbooks.rstrip('/')}/{alert.runbook}",
        "dashboard_url": addresses.grafana.rstrip("/") + alert.dashboard,
    }
    if alert.tenant_text:
        annotations["tenant_description"] = alert.tenant_text
    return annotations


class _RuleDumper(yaml.SafeDumper):
    """Writes text of several lines as a block, as people write rules."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_RuleDumper.add_representer(str, _text)


def _yaml(document: object) -> str:
    return yaml.dump(document, Dumper=_RuleDumper, sort_keys=False, width=10_000, allow_unicode=True)
