"""Who pays, as the exporter can tell: a plain key from a label or the namespace.

Accounting maps the key to its tree. Invariant: the first rule that finds a non-empty value wins, and
a pod for which none does has the empty key, which accounting lists as unassigned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from contract.ids import TenantKey
from exporter.errors import ExporterError
from exporter.kube.objects import Pod

TenantSource: TypeAlias = Literal["pod-label", "namespace-label", "namespace"]

DEFAULT_TENANT_FROM = "namespace-label:capsule.clastix.io/tenant, namespace"
"""Capsule's label on the namespaces of a tenant, else the namespace itself."""


class TenantRuleError(ExporterError):
    """`--tenant-from` cannot be read."""


@dataclass(frozen=True, slots=True)
class TenantRule:
    """One place to look; `label` is empty for `namespace`."""

    source: TenantSource
    label: str = ""


def parse_tenant_rules(text: str) -> tuple[TenantRule, ...]:
    """The rules of `--tenant-from`, a list with commas, in order.

    Raises:
        TenantRuleError: A rule is unknown, lacks its label, or the list is empty.
    """
    rules = tuple(_parse_rule(part.strip(), text) for part in text.split(","))
    for rule in rules:
        if rules.count(rule) > 1:
            raise _error(text, f'"{rule.source}:{rule.label}" stands there twice'.replace(':"', '"'))
    return rules


def tenant_key(pod: Pod, namespace_labels: Mapping[str, str], rules: Sequence[TenantRule]) -> TenantKey:
    """The key of a pod's tenant; empty when no rule finds one."""
    for rule in rules:
        match rule.source:
            case "pod-label":
                value = pod.metadata.labels.get(rule.label, "")
            case "namespace-label":
                value = namespace_labels.get(rule.label, "")
            case "namespace":
                value = pod.metadata.namespace
        if value:
            return TenantKey(value)
    return TenantKey("")


def _parse_rule(part: str, text: str) -> TenantRule:
    source, colon, label = part.partition(":")
    match source:
        case "namespace" if not colon:
            return TenantRule("namespace")
        case "pod-label" | "namespace-label" if label.strip():
            return TenantRule(source, label.strip())
        case "pod-label" | "namespace-label":
            raise _error(text, f'"{part}" names no label; write {source}:KEY')
        case "":
            raise _error(text, "there is an empty rule; write rules with one comma between them")
    raise _error(text, f'"{part}" is no rule; there are pod-label:KEY, namespace-label:KEY and namespace')


def _error(text: str, detail: str) -> TenantRuleError:
    return TenantRuleError("bad_tenant_rule", f'--tenant-from "{text}": {detail}')
