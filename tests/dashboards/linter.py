"""The public dashboard linter's rules, as functions from a dashboard to its faults.

The linter is a program of another language that no package index has; its rules are few and plain. A rule
goes by the linter's own name for it. What we leave out stands in `EXCLUDED`, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import promql_parser

Dashboard: TypeAlias = dict[str, Any]
Rule: TypeAlias = Callable[[Dashboard], Iterator[str]]

UNITS = {"percentunit", "bytes", "watt", "joule", "celsius", "hertz", "short", "none", "s"}
"""Those of Grafana's unit ids that we use; each stands in the linter's list."""

QUERY_FUNCTIONS = {"label_names", "label_values", "metrics", "query_result"}
RATE_INTERVAL = "11m11s"
"""What `$__rate_interval` becomes before an expression is parsed, so that it is found again in the tree."""

EXCLUDED = {
    "template-job-rule": "what a series is about is in labels of its own; a job's name is the monitor's own",
    "template-instance-rule": "the same: a node is found by `node`, and an exporter's instance changes",
    "target-job-rule": "no matcher may hide series because somebody's job has another name",
    "target-instance-rule": "the same",
    "target-logql-rule": "no panel asks Loki",
    "target-logql-auto-rule": "no panel asks Loki",
}
EXCLUDED_PANELS = {
    ("target-rate-interval-rule", "$__range"): "a mean over the whole range in view is what these panels say",
}
"""Single faults that are meant: (rule, what stands in the expression) to the reason."""


def parsed(expression: str) -> object:
    """The tree of an expression with Grafana's variables replaced.

    Raises:
        ValueError: It is no PromQL.
    """
    text = expression.replace("$__rate_interval", RATE_INTERVAL).replace("$__range", "5m")
    return promql_parser.parse(re.sub(r"\$\{?\w+\}?", "x", text))


def walk(node: object, parents: tuple[object, ...] = ()) -> Iterator[tuple[object, tuple[object, ...]]]:
    """Every node of a tree with those above it, the nearest last."""
    yield node, parents
    below = (*parents, node)
    for name in ("expr", "lhs", "rhs", "param", "vector_selector"):
        child = getattr(node, name, None)
        if child is not None:
            yield from walk(child, below)
    for child in getattr(node, "args", None) or ():
        yield from walk(child, below)


def _panels(dashboard: Dashboard) -> Iterator[Dashboard]:
    yield from dashboard["panels"]


def _targets(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    for panel in _panels(dashboard):
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def _variables(dashboard: Dashboard, kind: str) -> list[Dashboard]:
    return [each for each in dashboard["templating"]["list"] if each["type"] == kind]


def template_datasource(dashboard: Dashboard) -> Iterator[str]:
    """There is a data source variable, called and labelled as everybody calls it."""
    found = _variables(dashboard, "datasource")
    if not found:
        yield "no data source variable"
    for each in found:
        if each["name"] not in {"datasource", "prometheus_datasource"}:
            yield f"variable {each['name']} is not called datasource"
        if each["label"] not in {"Data source", "Prometheus data source"}:
            yield f'variable {each["name"]} is not labelled "Data source"'


def template_label_promql(dashboard: Dashboard) -> Iterator[str]:
    """A variable's query is one of the four functions over PromQL."""
    for each in _variables(dashboard, "query"):
        found = re.fullmatch(r"([a-z_]+)\((.+)\)", str(each["query"]))
        if found is None or found[1] not in QUERY_FUNCTIONS:
            yield f"variable {each['name']}: {each['query']}"
            continue
        selector, comma, _ = found[2].rpartition(",")
        try:
            parsed(selector if comma else found[2])
        except ValueError as error:
            yield f"variable {each['name']}: {error}"


def template_on_time_change_reload(dashboard: Dashboard) -> Iterator[str]:
    """Variables are read again when the time range changes."""
    for each in _variables(dashboard, "query"):
        if each["refresh"] != 2:
            yield f"variable {each['name']} refreshes by {each['refresh']}"


def uneditable(dashboard: Dashboard) -> Iterator[str]:
    """A dashboard that a file provides cannot be edited."""
    if dashboard.get("editable", True):
        yield "editable"


def panel_datasource(dashboard: Dashboard) -> Iterator[str]:
    """Each panel asks the data source of the variable."""
    names = {f"${{{each['name']}}}" for each in _variables(dashboard, "datasource")}
    for panel in _panels(dashboard):
        if panel.get("datasource", {}).get("uid") not in names:
            yield f"{panel['title']}: {panel.get('datasource')}"


def panel_title_description(dashboard: Dashboard) -> Iterator[str]:
    """Each panel has both."""
    for panel in _panels(dashboard):
        if not panel.get("title") or not panel.get("description"):
            yield f"panel {panel.get('title') or panel['id']}"


def panel_units(dashboard: Dashboard) -> Iterator[str]:
    """Each panel has a unit that Grafana knows, each column of a table too."""
    for panel in _panels(dashboard):
        config = panel["fieldConfig"]
        units = [config["defaults"].get("unit")]
        for override in config.get("overrides", ()):
            units += [each["value"] for each in override["properties"] if each["id"] == "unit"]
        for unit in units:
            if unit not in UNITS:
                yield f"{panel['title']}: unit {unit}"


def panel_no_targets(dashboard: Dashboard) -> Iterator[str]:
    """Each panel asks something."""
    for panel in _panels(dashboard):
        if not panel.get("targets"):
            yield panel["title"]


def target_promql(dashboard: Dashboard) -> Iterator[str]:
    """Each expression parses."""
    for title, expression in _targets(dashboard):
        try:
            parsed(expression)
        except ValueError as error:
            yield f"{title}: {error}"


def target_rate_interval(dashboard: Dashboard) -> Iterator[str]:
    """A rate looks back over `$__rate_interval`."""
    meant = [text for rule, text in EXCLUDED_PANELS if rule == "target-rate-interval-rule"]
    for title, expression in _targets(dashboard):
        for found in re.finditer(r"\b(?:rate|irate)\([^[\]]*\[([^\]]+)\]", expression):
            if found[1] not in {"$__rate_interval", *meant}:
                yield f"{title}: [{found[1]}]"


def target_counter_agg(dashboard: Dashboard) -> Iterator[str]:
    """A counter stands as a range in rate, irate or increase."""
    for title, expression in _targets(dashboard):
        for node, parents in walk(parsed(expression)):
            if isinstance(node, promql_parser.VectorSelector) and str(node.name).endswith("_total"):
                function = getattr(getattr(parents[-2], "func", None), "name", "") if len(parents) > 1 else ""
                if function not in {"rate", "irate", "increase"}:
                    yield f"{title}: {node.name}"


RULES: dict[str, Rule] = {
    "template-datasource-rule": template_datasource,
    "template-label-promql-rule": template_label_promql,
    "template-on-time-change-reload-rule": template_on_time_change_reload,
    "panel-datasource-rule": panel_datasource,
    "panel-title-description-rule": panel_title_description,
    "panel-units-rule": panel_units,
    "panel-no-targets-rule": panel_no_targets,
    "target-promql-rule": target_promql,
    "target-rate-interval-rule": target_rate_interval,
    "target-counter-agg-rule": target_counter_agg,
    "uneditable-dashboard": uneditable,
}
