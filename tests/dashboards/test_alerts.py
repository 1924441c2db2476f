"""Every alert but the noisy neighbour and the two old ones of the node lock, judged by promtool.

Each fires in its case and says the right words, not a minute before its time, not in the near miss, once
where two scrapes repeat the series, and in the right one of two clusters.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from accounting.periods.preflight import MIN_COVERAGE
from dashboards.alerts_page import alerts_page
from dashboards.rules.files import Addresses, chart_files, plain_files
from dashboards.rules.rule import Alert
from dashboards.rules.table import SWITCHES, chosen, groups
from dashboards.thresholds import DEFAULT, with_changes
from dashboards.writing import write
from tests.dashboards.alert_cases import ALWAYS_ON, BY_SWITCH, CASES, Case, Series

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks"
IN_TEST_RULES = {"SlicemeterNoisyNeighbour", "SlicemeterNodeLockBlocking", "SlicemeterNodeLockTimeout"}
"""Those have longer stories in test_rules.py."""


def _alerts() -> list[Alert]:
    return [alert for group in groups() for alert in group.alerts()]


def _in_cluster(series: Series, cluster: str, extra: str = "") -> list[dict[str, str]]:
    added = f'cluster="{cluster}"{extra}'
    found = []
    for name, values in series.items():
        bare, brace, rest = name.partition("{")
        labelled = f"{bare}{{{added}, {rest}" if brace else f"{bare}{{{added}}}"
        found.append({"series": labelled, "values": values})
    return found


def _sample(case: Case, cluster: str) -> dict[str, object]:
    labels = {
        "alertname": case.alert,
        "alertstate": "firing",
        "severity": case.severity,
        "cluster": cluster,
        **case.labels,
    }
    text = ", ".join(f'{name}="{value}"' for name, value in labels.items())
    return {"labels": f"ALERTS{{{text}}}", "value": 1}


def _story(case: Case) -> dict[str, object]:
    """promtool's document for one case: every behaviour a test of its own."""
    return {
        "evaluation_interval": "1m",
        "tests": [
            _told(case),
            _firing(case, "not a minute too early", case.fires_at - 1, _in_cluster(case.series, "c"), []),
            *(
                _firing(case, "near miss", minute, _in_cluster({**case.series, **case.near_miss}, "c"), [])
                for minute in (case.fires_at, 95)
            ),
            *_repeated(case),
            *_in_two_clusters(case),
        ],
    }


def _told(case: Case) -> dict[str, object]:
    [rule] = [each for each in _alerts() if (each.name, each.severity) == (case.alert, case.severity)]
    annotations = {
        "summary": rule.summary,
        "description": case.description,
        "runbook_url": f"docs/runbooks/{case.alert.lower()}.md",
        "dashboard_url": case.dashboard,
    }
    if case.tenant_text:
        annotations["tenant_description"] = case.tenant_text
    alert = {
        "exp_labels": {"severity": case.severity, "cluster": "c", **case.labels},
        "exp_annotations": annotations,
    }
    return {
        "name": "fires and says what is wrong",
        "interval": "1m",
        "input_series": _in_cluster(case.series, "c"),
        "alert_rule_test": [
            {"eval_time": f"{case.fires_at}m", "alertname": case.alert, "exp_alerts": [alert]}
        ],
    }


def _repeated(case: Case) -> Iterator[dict[str, object]]:
    twice = [*_in_cluster(case.series, "c"), *_in_cluster(case.series, "c", ', replica="b"')]
    yield _firing(case, "a second scrape changes nothing", case.fires_at, twice, ["c"])
    yield _firing(case, "nor does it hurry", case.fires_at - 1, twice, [])


def _in_two_clusters(case: Case) -> Iterator[dict[str, object]]:
    quiet: Mapping[str, str] = {**case.series, **case.near_miss}
    one = [*_in_cluster(case.series, "c"), *_in_cluster(quiet, "d")]
    both = [*_in_cluster(case.series, "c"), *_in_cluster(case.series, "d")]
    yield _firing(case, "one of two clusters", case.fires_at, one, ["c"])
    yield _firing(case, "both clusters", case.fires_at, both, ["c", "d"])


def _firing(
    case: Case, name: str, minute: int, series: list[dict[str, str]], clusters: Sequence[str]
) -> dict[str, object]:
    expectation = {
        "expr": f'ALERTS{{alertname="{case.alert}", alertstate="firing", severity="{case.severity}"}}',
        "eval_time": f"{minute}m",
        "exp_samples": [_sample(case, cluster) for cluster in clusters],
    }
    return {"name": name, "interval": "1m", "input_series": series, "promql_expr_test": [expectation]}


@pytest.mark.promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_an_alert_fires_in_time_in_its_case_in_the_right_cluster_and_in_no_near_miss(
    case: Case, tmp_path: Path, need_tool: Callable[[str, str], str]
) -> None:
    program = need_tool("promtool", "prometheus")
    rules = write(plain_files(groups(), Addresses()), tmp_path / "rules")
    story = tmp_path / "story.yaml"
    document = {"rule_files": [str(path) for path in rules], **_story(case)}
    story.write_text(yaml.safe_dump(document), encoding="utf-8")
    done = subprocess.run([program, "test", "rules", story], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    told = {(case.alert, case.severity) for case in CASES}
    assert {(a.name, a.severity) for a in _alerts() if a.name not in IN_TEST_RULES} == told


def test_at_most_twelve_alerts_are_on_by_default() -> None:
    names = {alert.name for group in chosen(()) for alert in group.alerts()}
    assert names == {case.alert for case in ALWAYS_ON} | IN_TEST_RULES
    assert len(names) == 12


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_adds_its_alerts_and_no_other(switch: str) -> None:
    before = {alert.name for group in chosen(()) for alert in group.alerts()}
    after = {alert.name for group in chosen([switch]) for alert in group.alerts()}
    assert after - before == {case.alert for case in BY_SWITCH[switch]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_text_names_only_labels_that_the_alert_carries(case: Case) -> None:
    carried = {label for each in CASES if each.alert == case.alert for label in each.labels} | {"cluster"}
    for alert in _alerts():
        if alert.name == case.alert:
            texts = alert.description + alert.tenant_text + alert.dashboard
            assert set(re.findall(r"\$labels\.(\w+)", texts)) <= carried


def test_what_a_tenant_reads_names_nobody_else() -> None:
    for alert in _alerts():
        assert "$labels.tenant" not in alert.tenant_text
        assert "query" not in alert.tenant_text


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    pages = {path.name for path in RUNBOOKS.glob("slicemeter*.md")}
    assert pages == {alert.runbook for alert in _alerts()}


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("slicemeter*.md")), ids=lambda page: page.stem)
def test_a_runbook_tells_what_it_means_what_to_look_at_what_to_do_and_when_to_ignore_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    title = text.splitlines()[0]
    assert page.stem == title.removeprefix("# ").lower()
    for heading in ("What to look at", "Likely causes", "What to do", "When to ignore it"):
        assert f"\n## {heading}\n" in text, heading


def test_the_page_of_alerts_is_what_the_table_says() -> None:
    page = RUNBOOKS.parent / "alerts.md"
    assert page.read_text(encoding="utf-8") == alerts_page(), "run: make docs"


def test_the_ledger_gap_is_the_coverage_under_which_a_month_does_not_close() -> None:
    assert Decimal(str(DEFAULT.coverage_ratio)) == MIN_COVERAGE


def test_a_changed_threshold_stands_in_the_rules_and_a_wrong_one_is_named() -> None:
    changed = chosen((), with_changes({"near_limit_ratio": 0.8}))
    [alert] = [
        each for group in changed for each in group.alerts() if each.name == "SlicemeterSliceNearLimit"
    ]
    assert alert.expr.endswith("> 0.8")
    with pytest.raises(ValueError, match='no threshold "near_limit"'):
        with_changes({"near_limit": 0.8})
    with pytest.raises(TypeError, match="\"busy_ratio\": '90 %'"):
        with_changes({"busy_ratio": "90 %"})


def test_the_chart_templates_carry_values_in_the_places_of_numbers_and_quote_prometheus_braces() -> None:
    text = chart_files()["slicemeter-limits.yaml"]
    assert "> {{ .Values.rules.thresholds.nearLimitRatio }}" in text
    assert '{{ "{{" }} $labels.pod {{ "}}" }}' in text
    assert "runbook_url: {{ .Values.rules.runbookUrl }}/slicemeterslicenearlimit.md" in text
    assert "0.95" not in text


def test_a_ratio_beyond_one_is_no_threshold() -> None:
    with pytest.raises(ValueError, match="no ratio from 0 to 1"):
        with_changes({"near_limit_ratio": 95})
