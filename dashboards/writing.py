"""Writes dashboards and rules into a folder: one JSON a dashboard, one YAML of rules.

The bytes are a function of the code alone, so that a copy elsewhere can be compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import yaml
from grafanalib._gen import DashboardEncoder

from dashboards import card
from dashboards.normaliser import Object, normalise, to_text
from dashboards.rules import Alert, Group, Recording, groups
from dashboards.thresholds import DEFAULT, Thresholds

VIEWS = {"card": card.dashboard}
"""File name (without `.json`) to dashboard."""


def dashboard_files() -> dict[str, str]:
    """File name to text of every dashboard."""
    files = {}
    for name, view in VIEWS.items():
        raw = cast("Object", json.loads(json.dumps(view, cls=DashboardEncoder)))
        files[f"{name}.json"] = to_text(normalise(raw))
    return files


def rule_files(
    limits: Thresholds = DEFAULT, *, runbooks: str = "docs/runbooks", grafana: str = ""
) -> dict[str, str]:
    """File name to text of the rule files.

    Args:
        limits: Thresholds.
        runbooks: Where the runbook pages are (folder or address); the page is the alert's name in
            lower case with `.md`.
        grafana: Address put before dashboard paths; empty leaves them relative.
    """
    document = {"groups": [_group(group, runbooks, grafana) for group in groups(limits)]}
    text = yaml.dump(document, Dumper=_RuleDumper, sort_keys=False, width=10_000, allow_unicode=True)
    return {"slicemeter.rules.yaml": text}


def write(files: dict[str, str], folder: Path) -> list[Path]:
    """Write files into a folder, made if need be; returns their paths.

    Raises:
        OSError: The folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in files.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


class _RuleDumper(yaml.SafeDumper):
    """Writes text of several lines as a block, as people write rules."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_RuleDumper.add_representer(str, _text)


def _group(group: Group, runbooks: str, grafana: str) -> dict[str, object]:
    return {"name": group.name, "rules": [_rule(rule, runbooks, grafana) for rule in group.rules]}


def _rule(rule: Recording | Alert, runbooks: str, grafana: str) -> dict[str, object]:
    if isinstance(rule, Recording):
        return {"record": rule.name, "expr": rule.expr}
    annotations = {
        "summary": rule.summary,
        "description": rule.description,
        "runbook_url": f"{runbooks.rstrip('/')}/{rule.name.lower()}.md",
        "dashboard_url": grafana.rstrip("/") + rule.dashboard,
    }
    if rule.tenant_text:
        annotations["tenant_description"] = rule.tenant_text
    return {
        "alert": rule.name,
        "expr": rule.expr,
        "for": rule.hold,
        "labels": {"severity": rule.severity, **rule.labels},
        "annotations": annotations,
    }
