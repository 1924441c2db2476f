"""Each rule of the public dashboard linter holds for each dashboard, and each can fail."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from dashboards.writing import dashboard_files
from tests.dashboards.linter import EXCLUDED, EXCLUDED_PANELS, RULES, Dashboard

FILES = {language: dashboard_files(language) for language in ("en", "zh")}
THEIR_RULES = 17
"""As the linter prints them: eleven stand in RULES, six are left out for a reason."""


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", sorted(FILES["en"]))
def test_a_dashboard_keeps_a_rule_of_the_linter(name: str, rule: str) -> None:
    assert list(RULES[rule](json.loads(FILES["en"][name]))) == []


@pytest.mark.parametrize("name", sorted(FILES["zh"]))
def test_a_chinese_dashboard_keeps_all_rules_but_that_of_an_english_label(name: str) -> None:
    board = json.loads(FILES["zh"][name])
    faults = {rule: list(find(board)) for rule, find in RULES.items()}
    assert {rule for rule, found in faults.items() if found} <= {"template-datasource-rule"}


def test_every_rule_is_kept_or_left_out_for_a_reason() -> None:
    assert len(RULES) + len(EXCLUDED) == THEIR_RULES
    assert not set(RULES) & set(EXCLUDED)
    for rule, what in EXCLUDED_PANELS:
        assert rule in RULES
        assert any(what in text for text in FILES["en"].values()), f"{what} is in no dashboard any more"


def _panel(change: Callable[[Dashboard], object]) -> Callable[[Dashboard], object]:
    return lambda board: change(board["panels"][0])


def _expr(text: str) -> Callable[[Dashboard], object]:
    return _panel(lambda panel: panel["targets"][0].update(expr=text))


def _variable(kind: str, **changes: object) -> Callable[[Dashboard], object]:
    def change(board: Dashboard) -> None:
        next(each for each in board["templating"]["list"] if each["type"] == kind).update(changes)

    return change


BROKEN = [
    ("template-datasource-rule", _variable("datasource", name="source")),
    ("template-datasource-rule", _variable("datasource", label="Where from")),
    ("template-datasource-rule", _variable("datasource", type="constant")),
    ("template-label-promql-rule", _variable("query", query="label_value(up, job)")),
    ("template-label-promql-rule", _variable("query", query="label_values(up{, job)")),
    ("template-on-time-change-reload-rule", _variable("query", refresh=1)),
    ("panel-datasource-rule", _panel(lambda panel: panel.update(datasource={"uid": "prom-1"}))),
    ("panel-title-description-rule", _panel(lambda panel: panel.update(description=""))),
    ("panel-title-description-rule", _panel(lambda panel: panel.update(title=""))),
    ("panel-units-rule", _panel(lambda panel: panel["fieldConfig"]["defaults"].update(unit="cards"))),
    ("panel-no-targets-rule", _panel(lambda panel: panel.update(targets=[]))),
    ("target-promql-rule", _expr("sum by (node (up)")),
    ("target-rate-interval-rule", _expr("rate(slicemeter_slice_sm_seconds_total[5m])")),
    ("target-counter-agg-rule", _expr("sum(slicemeter_slice_sm_seconds_total)")),
    ("target-counter-agg-rule", _expr("max_over_time(slicemeter_slice_sm_seconds_total[1h])")),
    ("uneditable-dashboard", lambda board: board.update(editable=True)),
]


@pytest.mark.parametrize(
    ("rule", "spoil"), BROKEN, ids=[f"{rule} {number}" for number, (rule, _) in enumerate(BROKEN)]
)
def test_a_dashboard_that_breaks_a_rule_is_found(rule: str, spoil: Callable[[Dashboard], object]) -> None:
    board = json.loads(FILES["en"]["fleet.json"])
    spoil(board)
    assert len(list(RULES[rule](board))) == 1


def test_every_rule_is_seen_to_fail() -> None:
    assert {rule for rule, _ in BROKEN} == set(RULES)
