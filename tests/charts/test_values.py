"""Values, their schema, their table and the programs behind them tell the same."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from contract.version import VERSION
from dashboards.rules.files import camel_case
from dashboards.rules.table import SWITCHES
from dashboards.thresholds import DEFAULT
from tests.charts.rendering import CHART, ROOT

VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def chart_values() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chart_values", ROOT / "docs" / "chart_values.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_has_the_table_of_the_values(chart_values: ModuleType) -> None:
    assert (CHART / "README.md").read_text(encoding="utf-8") == chart_values.readme(), "run: make docs"


def test_a_value_that_nobody_explained_is_refused(chart_values: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"a\.c: say what it means"):
        chart_values.rows("a:\n  # -- told\n  b: 1\n  c: 2\n")


def test_the_table_tells_maps_that_have_a_line_as_one_value(chart_values: ModuleType) -> None:
    rows = chart_values.rows("# -- all of it\na:\n  b: 1\nc:\n  # -- one\n  d: [x]\n")
    assert rows == [("a", "all of it", '{"b": 1}'), ("c.d", "one", '["x"]')]


def objects_of(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield path, schema
        for key, each in schema.get("properties", {}).items():
            yield from objects_of(each, f"{path}.{key}".lstrip("."))


def test_the_schema_knows_every_key_and_refuses_all_others() -> None:
    for path, schema in objects_of(SCHEMA):
        if (
            "$comment" in schema
        ):  # types that are not ours: Kubernetes', the operator's, another chart's globals
            continue
        more = schema.get("additionalProperties")
        assert more is False or (isinstance(more, dict) and "properties" not in schema), path


def test_the_schema_has_the_keys_of_the_values_and_no_more() -> None:
    def compare(schema: dict[str, Any], values: dict[str, Any], path: str) -> None:
        if "properties" not in schema or "$comment" in schema or path.endswith("resources"):
            return
        assert schema["properties"].keys() == values.keys(), path
        for key, value in values.items():
            if isinstance(value, dict):
                compare(schema["properties"][key], value, f"{path}.{key}")

    compare(SCHEMA, VALUES, "")


def test_thresholds_and_switches_are_those_of_the_rules() -> None:
    wanted = {camel_case(each.name): getattr(DEFAULT, each.name) for each in fields(DEFAULT)}
    assert VALUES["rules"]["thresholds"] == wanted
    assert VALUES["rules"]["groups"] == dict.fromkeys(SWITCHES, False)


def test_the_chart_installs_the_program_of_this_tree() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == VERSION


def test_every_rule_file_has_its_place_in_the_chart() -> None:
    names = {path.stem.removeprefix("slicemeter-") for path in (CHART / "files" / "rules").glob("*.yaml")}
    assert names > set(SWITCHES)
    used = set()
    for path in (CHART / "files" / "rules").glob("*.yaml"):
        used |= set(re.findall(r"\.Values\.rules\.thresholds\.(\w+)", path.read_text(encoding="utf-8")))
    assert used <= VALUES["rules"]["thresholds"].keys()


def test_every_default_is_what_its_schema_allows() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft7Validator(SCHEMA).validate(VALUES)
    for path in sorted(Path(CHART / "ci").glob("*.yaml")):
        merged = yaml.safe_load(path.read_text(encoding="utf-8"))
        jsonschema.Draft7Validator(SCHEMA).validate(merged)
