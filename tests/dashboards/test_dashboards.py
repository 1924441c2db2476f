"""Dashboards: what leaves the normaliser is what Grafana reads, and every name in it exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import promql_parser
import pytest

from contract.catalogue import FAMILIES
from dashboards.normaliser import SCHEMA_VERSION, Json, Object, normalise
from dashboards.rules.files import Addresses, plain_files
from dashboards.rules.rule import Recording
from dashboards.rules.table import groups
from dashboards.writing import dashboard_files, write

GOLDEN = Path(__file__).parent / "golden"
UNITS = {"percentunit", "bytes", "watt", "joule", "celsius", "hertz", "short", "none", "s"}
"""Grafana's own unit ids."""
RECORDED = {rule.name for group in groups() for rule in group.rules if isinstance(rule, Recording)}
SERVER_LABELS = {"cluster"}


def _dashboards() -> dict[str, Object]:
    return {name: json.loads(text) for name, text in dashboard_files().items()}


def _panels() -> Iterator[tuple[str, Object]]:
    for name, view in _dashboards().items():
        for panel in view["panels"]:  # type: ignore[union-attr]
            yield f"{name}: {panel['title']}", panel  # type: ignore[index, call-overload, misc]


PANELS = dict(_panels())


def _expressions() -> Iterator[tuple[str, str]]:
    for name, panel in PANELS.items():
        for target in panel["targets"]:  # type: ignore[union-attr]
            yield name, target["expr"]  # type: ignore[index, call-overload, misc]


@pytest.mark.parametrize("name", sorted(dashboard_files()))
def test_a_dashboard_is_what_the_golden_file_says(name: str) -> None:
    golden = GOLDEN / "views" / name
    assert dashboard_files()[name] == golden.read_text(encoding="utf-8"), (
        f"the dashboard changed; look and write it anew: slicemeter dashboards build {GOLDEN}/views"
    )


def test_rules_are_what_the_golden_file_says() -> None:
    built = plain_files(groups(), Addresses())
    kept = {path.name: path.read_text(encoding="utf-8") for path in (GOLDEN / "rules").iterdir()}
    assert built == kept, (
        f"the rules changed; look and write them anew: slicemeter rules build {GOLDEN}/rules --enable all"
    )


def test_written_files_have_the_text_that_was_built(tmp_path: Path) -> None:
    paths = write(dashboard_files(), tmp_path / "new" / "folder")
    assert {path.name: path.read_text(encoding="utf-8") for path in paths} == dashboard_files()


def test_normalising_twice_changes_nothing() -> None:
    for view in _dashboards().values():
        assert normalise(view) == view


def _walk(value: Json) -> Iterator[Json]:
    yield value
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for child in children:
        yield from _walk(child)


def test_no_null_and_no_legacy_key_is_left() -> None:
    for view in _dashboards().values():
        base_step = {"value": None}
        for value in _walk(view):
            children = value.items() if isinstance(value, dict) else ()
            assert all(child is not None or {key: child} == base_step for key, child in children)
        assert not {"rows", "style", "gnetId", "hideControls", "sharedCrosshair"} & set(view)
        assert view["schemaVersion"] == SCHEMA_VERSION
        assert view["editable"] is False


def test_uids_are_unique_and_chosen_by_hand() -> None:
    uids = [view["uid"] for view in _dashboards().values()]
    assert len(set(map(str, uids))) == len(uids)
    assert all(str(uid).startswith("slicemeter-") for uid in uids)


@pytest.mark.parametrize("name", sorted(PANELS))
def test_a_panel_says_what_it_shows_and_what_bad_looks_like(name: str) -> None:
    panel = PANELS[name]
    defaults = panel["fieldConfig"]["defaults"]  # type: ignore[index, call-overload]
    assert panel["title"]
    assert re.search(r"Bad: ", str(panel["description"]))
    assert defaults["unit"] in UNITS  # type: ignore[index, call-overload, operator]
    assert defaults["min"] == 0  # type: ignore[index, call-overload]
    assert defaults["noValue"]  # type: ignore[index, call-overload]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[str, int, int]] = set()
    for name, panel in PANELS.items():
        grid: dict[str, int] = panel["gridPos"]  # type: ignore[assignment]
        assert grid["x"] + grid["w"] <= 24
        cells = {
            (name.split(":")[0], x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, name
        taken |= cells


def _selectors(node: object) -> Iterator[promql_parser.VectorSelector]:
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    elif isinstance(node, promql_parser.MatrixSelector):
        yield node.vector_selector
    for attribute in ("expr", "lhs", "rhs", "param"):
        child = getattr(node, attribute, None)
        if child is not None:
            yield from _selectors(child)
    for child in getattr(node, "args", None) or ():
        yield from _selectors(child)


def _known_labels() -> dict[str, set[str]]:
    known = {family.full_name: set(family.labels) for family in FAMILIES}
    known |= {
        f"{family.full_name}_bucket": {*family.labels, "le"}
        for family in FAMILIES
        if family.type == "histogram"
    }
    slice_labels = {"node", "namespace", "pod", "container", "device_uuid", "tenant"}
    return known | dict.fromkeys(RECORDED, slice_labels)


def _plain(expression: str) -> str:
    text = re.sub(r"\$__(rate_interval|range)", "5m", expression)
    return re.sub(r"\$\w+", "x", text)


def test_every_expression_uses_series_and_labels_that_exist() -> None:
    known = _known_labels()
    rules = [(rule.name, rule.expr) for group in groups() for rule in group.rules]
    seen = 0
    for name, expression in [*_expressions(), *rules]:
        for selector in _selectors(promql_parser.parse(_plain(expression))):
            assert selector.name in known, f"{name}: {selector.name}"
            labels = {matcher.name for matcher in selector.matchers.matchers}
            assert labels <= known[selector.name] | SERVER_LABELS, f"{name}: {labels}"
            seen += 1
    assert seen > 40


def test_counters_stand_only_in_rate_or_increase() -> None:
    for name, expression in _expressions():
        for match in re.finditer(r"(\w+)\((slicemeter_\w+_total)", expression):
            assert match[1] in {"rate", "increase"}, f"{name}: {match[0]}"
        assert len(re.findall(r"_total\b", expression)) == len(
            re.findall(r"(?:rate|increase)\(slicemeter_\w+_total", expression)
        ), name


def test_every_selector_of_a_dashboard_carries_the_cluster() -> None:
    for name, expression in _expressions():
        for selector in _selectors(promql_parser.parse(_plain(expression))):
            assert "cluster" in {matcher.name for matcher in selector.matchers.matchers}, (
                f"{name}: {selector}"
            )


def _labels_in(name: str, text: str) -> set[str]:
    return set(re.findall(r"\{\{\s*(\w+)\s*\}\}", text)) if name else set()


def _grouped(node: object) -> Iterator[tuple[list[str], object]]:
    """Every `by (…)` of an expression with what stands under it."""
    if isinstance(node, promql_parser.AggregateExpr):
        modifier = node.modifier
        yield (list(modifier.labels) if modifier else []), node.expr
    for attribute in ("expr", "lhs", "rhs", "param"):
        child = getattr(node, attribute, None)
        if child is not None:
            yield from _grouped(child)
    for child in getattr(node, "args", None) or ():
        yield from _grouped(child)


def test_what_is_grouped_by_is_a_label_of_the_series() -> None:
    known = _known_labels()
    checked = 0
    for name, expression in _expressions():
        for labels, inner in _grouped(promql_parser.parse(_plain(expression))):
            carried = {label for each in _selectors(inner) for label in known[str(each.name)]}
            extra = set(labels) - carried - {*SERVER_LABELS, "instance"}
            assert not extra, f"{name}: {extra} in {expression}"
            checked += 1
    assert checked > 100


@pytest.mark.parametrize("name", sorted(PANELS))
def test_a_legend_names_labels_that_its_query_leaves(name: str) -> None:
    for target in PANELS[name]["targets"]:  # type: ignore[union-attr]
        legend, expression = str(target["legendFormat"]), str(target["expr"])  # type: ignore[index, call-overload]
        for label in _labels_in(name, legend):
            assert re.search(rf"\b{label}\b", expression) or "slice:slicemeter" in expression, legend


def test_every_variable_that_is_used_exists_and_every_one_that_exists_is_used() -> None:
    built_in = {"__rate_interval", "__range", "__url_time_range", "__field", "__data", "__all", "datasource"}
    for name, view in _dashboards().items():
        variables = {str(each["name"]) for each in view["templating"]["list"]}  # type: ignore[index, call-overload, union-attr]
        text = json.dumps(view["panels"]) + json.dumps(view["templating"])
        used = set(re.findall(r"\$\{?(\w+)", text)) - built_in
        assert used <= variables, f"{name}: {used - variables}"
        assert variables - {"datasource"} <= used, f"{name}: {variables - used} is never used"


def test_variables_stand_in_the_order_in_which_they_narrow() -> None:
    order = ["datasource", "cluster", "account", "period", "node", "tenant", "namespace", "pod", "device"]
    for name, view in _dashboards().items():
        names = [str(each["name"]) for each in view["templating"]["list"]]  # type: ignore[index, call-overload, union-attr]
        assert names == sorted(names, key=order.index), name


def test_every_link_leads_to_a_dashboard_and_sets_variables_that_it_has() -> None:
    views = _dashboards().values()
    variables = {
        str(view["uid"]): {str(each["name"]) for each in view["templating"]["list"]}  # type: ignore[index, call-overload, union-attr]
        for view in views
    }
    alerts = [alert.dashboard for group in groups() for alert in group.alerts()]
    links = re.findall(r"/d/[^\"]+", "\n".join(map(json.dumps, views))) + alerts
    seen = set()
    for link in links:
        found = re.match(r"/d/([\w-]+)", link)
        assert found, link
        assert found[1] in variables, link
        assert set(re.findall(r"var-(\w+)=", link)) <= variables[found[1]] | {"datasource"}, link
        seen.add(found[1])
    assert seen == set(variables), "a dashboard that nothing leads to"


def test_money_comes_from_accounting_alone_and_no_panel_multiplies() -> None:
    chargeback = json.loads(dashboard_files()["chargeback.json"])
    allowed = {family.full_name for family in FAMILIES if family.group == "accounting"}
    for panel in chargeback["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            assert "*" not in re.sub(r'"[^"]*"', "", expression)
            for selector in _selectors(promql_parser.parse(_plain(expression))):
                assert selector.name in allowed


def test_chinese_titles_change_titles_and_nothing_else() -> None:
    english, chinese = dashboard_files(), dashboard_files("zh")
    for name, text in chinese.items():
        one, other = json.loads(english[name]), json.loads(text)
        assert one["uid"] == other["uid"]
        for left, right in zip(one["panels"], other["panels"], strict=True):
            assert [t["expr"] for t in left["targets"]] == [t["expr"] for t in right["targets"]]
        if name != "pod.json":
            assert re.search(r"[\u4e00-\u9fff]", other["title"])
