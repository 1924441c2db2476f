"""The one door between grafanalib and the files: JSON in, clean JSON out.

grafanalib's raw output is dated (schema version 12, nulls, keys of retired editors); Grafana migrates
it on load, and one of the old steps blanks thresholds. Invariants: pure, idempotent, and nothing but
what Grafana 10 and later reads is left. Facts: `reference/dashboards.md §1-2`.
"""

from __future__ import annotations

import json
from typing import TypeAlias, cast

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Object: TypeAlias = "dict[str, Json]"

SCHEMA_VERSION = 39
"""The lowest that covers what we use: the migrator only goes up."""

_LEGACY_DASHBOARD = frozenset(
    {"rows", "style", "hideControls", "sharedCrosshair", "gnetId", "__inputs", "id"}
)
_LEGACY_PANEL = frozenset(
    {
        *("height", "span", "minSpan", "error", "editable", "cacheTimeout", "hideTimeOverride"),
        *("color", "columns", "fontSize", "mappings", "maxDataPoints", "repeatDirection"),
    }
)
_LEGACY_VARIABLE = frozenset(
    {"tags", "useTags", "tagsQuery", "tagValuesQuery", "auto", "auto_min", "auto_count"}
)
_TARGET_KEYS = frozenset(
    {"datasource", "expr", "legendFormat", "format", "instant", "range", "refId", "exemplar"}
)


def normalise(dashboard: Object) -> Object:
    """A dashboard as Grafana's own classic JSON: no nulls, object datasources, stable ids.

    Args:
        dashboard: grafanalib's JSON, or this function's own output.

    Returns:
        A new tree; equal input gives equal output, and a second pass changes nothing.
    """
    kept = {key: value for key, value in dashboard.items() if key not in _LEGACY_DASHBOARD}
    result = cast("Object", _without_nulls(kept))
    result["schemaVersion"] = SCHEMA_VERSION
    result["editable"] = False
    timepicker = cast("Object", result.get("timepicker", {}))
    timepicker.pop("time_options", None)
    panels = [
        _panel(cast("Object", panel), number) for number, panel in enumerate(_list(result, "panels"), 1)
    ]
    result["panels"] = cast("Json", panels)
    annotations = cast("Object", result.get("annotations", {}))
    annotations["list"] = cast(
        "Json", [_annotation(cast("Object", each)) for each in _list(annotations, "list")]
    )
    result["annotations"] = annotations
    templating = cast("Object", result.get("templating", {}))
    templating["list"] = cast(
        "Json", [_variable(cast("Object", variable)) for variable in _list(templating, "list")]
    )
    result["templating"] = templating
    return result


def to_text(dashboard: Object) -> str:
    """The file's text: sorted keys, two blanks, a newline at the end."""
    return json.dumps(dashboard, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _list(parent: Object, key: str) -> list[Json]:
    return cast("list[Json]", parent.get(key) or [])


def _without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value


def _datasource(value: Json) -> Json:
    if isinstance(value, dict):
        return value
    return {"type": "prometheus", "uid": value if isinstance(value, str) else "${datasource}"}


def _panel(panel: Object, number: int) -> Object:
    result = {key: value for key, value in panel.items() if key not in _LEGACY_PANEL}
    result["id"] = number
    if result.get("type") in {"text", "row"}:
        result.pop("datasource", None)
        result.pop("targets", None)
        return result
    result["datasource"] = _datasource(result.get("datasource"))
    result["targets"] = cast(
        "Json",
        [_target(cast("Object", target), place) for place, target in enumerate(_list(panel, "targets"))],
    )
    defaults = cast("Object", cast("Object", result.setdefault("fieldConfig", {})).setdefault("defaults", {}))
    defaults["thresholds"] = _thresholds(defaults.get("thresholds"))
    if defaults.get("noValue") == "none":
        del defaults["noValue"]
    if not defaults.get("unit"):
        defaults.pop("unit", None)
    return result


def _thresholds(value: Json) -> Json:
    thresholds: Object = dict(value) if isinstance(value, dict) else {"mode": "absolute"}
    steps = thresholds.get("steps")
    if not isinstance(steps, list) or not steps:
        steps = [{"color": "green"}]
    # The base step's null is Grafana's own way to write minus infinity.
    base: Object = {"value": None}
    thresholds["steps"] = [
        {**base, **{key: item for key, item in cast("Object", step).items() if key != "index"}}
        for step in steps
    ]
    return thresholds


def _target(target: Object, place: int) -> Json:
    result = {key: value for key, value in target.items() if key in _TARGET_KEYS}
    result["datasource"] = _datasource(result.get("datasource"))
    result["refId"] = result.get("refId") or chr(ord("A") + place)
    result["range"] = not result.get("instant", False)
    return result


def _annotation(annotation: Object) -> Object:
    """The query stands under `target`, as in a panel; Grafana moves an old one there at every load."""
    result = dict(annotation)
    if "expr" in result:
        result["target"] = {"expr": result.pop("expr"), "refId": "Anno"}
    return result


def _variable(variable: Object) -> Object:
    result = {key: value for key, value in variable.items() if key not in _LEGACY_VARIABLE}
    result["refresh"] = 2
    result["sort"] = 1
    if result.get("type") == "datasource":
        result["current"] = {"selected": True, "text": "default", "value": "default"}
        result.pop("datasource", None)
        return result
    result["datasource"] = _datasource(result.get("datasource"))
    everything: Json = {"selected": True, "text": "All", "value": "$__all"}
    if result.get("includeAll"):
        result["current"] = everything
    else:
        result.pop("current", None)
    return result
