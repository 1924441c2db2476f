"""The cases that accounting decides: what each tenant owes, that the books close, that tenants are apart.

Expected card time comes from `lab/checks/card_time.py`, prices from the scenario; measured figures from
the API's documents.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

from lab.bookkeeping import Document, months_between
from lab.checks.card_time import charged_card_seconds
from lab.checks.check import Case, Check
from lab.checks.evidence import Evidence
from lab.scenarios.plan import ClusterPlan

PPM_MS_PER_CARD_SECOND = 10**9
"""1 s × 1,000 ms × 1,000,000 ppm."""

CARD_TIME_WITHIN_S = 1e-6
"""Each segment of each slice is rounded to a whole ppm·ms: a thousand of them are a millionth of a second."""

SM_WITHIN_S = 0.2


def tenant_owes(evidence: Evidence, case: Case, code: str) -> Iterator[Check]:
    """Card time and money of a cluster's tenant, over every month touched."""
    cluster = evidence.scenario.cluster(code)
    statements = evidence.books.statements[code]
    card_s = sum(charged_card_seconds(cluster).values())
    measured = sum(statement["totals"]["charged_ppm_ms"] for statement in statements)
    yield case.near(
        f"{cluster.tenant}: charged",
        card_s,
        float(Fraction(measured, PPM_MS_PER_CARD_SECOND)) if statements else None,
        CARD_TIME_WITHIN_S,
        "card-s",
    )
    exact = _exact_amount(cluster)
    amounts = [statement["amount"] for statement in statements]
    known = None if not amounts or None in amounts else float(sum(Decimal(amount) for amount in amounts))
    within = CARD_TIME_WITHIN_S / 3_600 * max(float(card.card_hour_price) for card in cluster.cards)
    yield case.near(
        f"{cluster.tenant}: amount before rounding", exact, known, within, evidence.scenario.currency
    )
    if len(statements) == 1:
        # A run across midnight of the first has two statements, each rounded by itself.
        total = _rounded(exact)
        yield case.equal(
            f"{cluster.tenant}: statement", total, statements[0]["total"], statements[0]["currency"]
        )


def _exact_amount(cluster: ClusterPlan) -> Fraction:
    charged = charged_card_seconds(cluster)
    amount = Fraction(0)
    for pod in cluster.pods:
        if pod.card is not None and pod.name in charged:
            amount += charged[pod.name] / 3_600 * Fraction(cluster.card(pod.card).card_hour_price)
    return amount


def _rounded(amount: Fraction) -> str:
    exact = Decimal(amount.numerator) / Decimal(amount.denominator)
    return str(exact.quantize(Decimal("0.01"), ROUND_HALF_EVEN))


def pod_owes(evidence: Evidence, case: Case, code: str, pod_name: str) -> Iterator[Check]:
    """Card time of one pod."""
    cluster = evidence.scenario.cluster(code)
    lines = _lines_of(evidence.books.statements[code], pod_name)
    measured = sum(line["charged_ppm_ms"] for line in lines)
    yield case.near(
        f"{pod_name}: charged",
        charged_card_seconds(cluster)[pod_name],
        float(Fraction(measured, PPM_MS_PER_CARD_SECOND)) if lines else None,
        CARD_TIME_WITHIN_S,
        "card-s",
    )


def sm_time_is_stated(evidence: Evidence, case: Case, code: str, pod_name: str) -> Iterator[Check]:
    """The measured SM time on the statement, of a pod whose process came and went.

    A killed exporter cannot measure: in the disturbed run its gap is missing, and said to be unknown.
    """
    work = evidence.scenario.cluster(code).pod(pod_name).work
    assert work is not None
    assert work.ends_s is not None
    cycles = Fraction(work.ends_s - work.begins_s, len(work.sm_percent))
    expected = cycles * sum(work.sm_percent) / 100
    lines = _lines_of(evidence.books.statements[code], pod_name)
    measured = sum(line["use"]["sm_ppm_ms"] for line in lines if line["use"] is not None)
    found = float(Fraction(measured, PPM_MS_PER_CARD_SECOND)) if lines else None
    if not evidence.was_disturbed:
        yield case.near(f"{pod_name}: SM time on the statement", expected, found, SM_WITHIN_S, "card-s")


def costs_nothing(evidence: Evidence, case: Case, code: str, pod_name: str) -> Iterator[Check]:
    """A pod that holds no slice is on no statement."""
    lines = _lines_of(evidence.books.statements[code], pod_name)
    yield case.equal(f"{pod_name}: lines on the statement", 0, len(lines))


def _lines_of(statements: Sequence[Document], pod_name: str) -> list[Document]:
    return [line for statement in statements for line in statement["lines"] if line["pod"] == pod_name]


def books_close(evidence: Evidence, case: Case) -> Iterator[Check]:
    """The identities: hours close, lines are the statement, what is stored is what is recomputed."""
    books = evidence.books
    held = sum(pod.holds_slice for cluster in evidence.scenario.clusters for pod in cluster.pods)
    rows = books.allocations
    observed = None if rows is None else sum(row["end"] == "observed" for row in rows)
    yield case.equal("slices with an observed end", held, observed)
    hours = None if books.capacity is None else books.capacity["rows"]
    devices = {
        (cluster.code, cluster.node_uid, card.uuid)
        for cluster in evidence.scenario.clusters
        for card in cluster.cards
    }
    seen = None if hours is None else {(h["cluster"], h["node_uid"], h["device_uuid"]) for h in hours}
    yield case.equal("devices with hours", len(devices), None if seen is None else len(seen & devices))
    open_hours = None if hours is None else sum(_is_open(hour) for hour in hours)
    yield case.equal("device-hours where charged + idle + down is not present", 0, open_hours)
    down = None if hours is None else sum(hour["down_ppm_ms"] for hour in hours)
    yield case.equal("time down", 0, down, "ppm·ms")
    verdicts = [_verdict(found) for found in books.verified]
    yield case.equal("verify", "holds", ", ".join(sorted(set(verdicts))) or None)
    recomputed = sum(found["checked"]["days_recomputed"] for found in books.verified)
    yield case.equal("verify recomputed something", "yes", "yes" if recomputed else "no")
    statements = [one for found in books.statements.values() for one in found if one["lines"]]
    months = [month for cluster in evidence.scenario.clusters for month in _months(evidence, cluster)]
    yield case.equal("statements with lines", len(months), len(statements))
    yield case.equal(
        "statements whose lines and rounding are not the total",
        0,
        sum(not _adds_up(statement) for statement in statements),
    )


def _months(evidence: Evidence, cluster: ClusterPlan) -> list[str]:
    """The months in which a cluster's pods hold something: two, if it plays across midnight of the first."""
    bound_s = [pod.bound_s for pod in cluster.pods if pod.holds_slice and pod.bound_s is not None]
    ended_s = [pod.ended_s for pod in cluster.pods if pod.holds_slice and pod.ended_s is not None]
    from_s, to_s = evidence.start_s + min(bound_s), evidence.start_s + max(ended_s)
    return months_between(from_s, to_s, evidence.scenario.time_zone)


def _verdict(verified: Document) -> str:
    if verified["holds"] and not verified["pending"]:
        return "holds"
    findings = [f"{finding['check']}: {finding['detail']}" for finding in verified["findings"]]
    return "; ".join([*findings, *(f"pending: {what}" for what in verified["pending"])])


def _is_open(hour: Document) -> bool:
    parts = hour["charged_ppm_ms"] + hour["idle_ppm_ms"] + hour["down_ppm_ms"]
    return bool(parts != hour["present_ppm_ms"])


def _adds_up(statement: Document) -> bool:
    shown = sum((Decimal(line["shown"]) for line in statement["lines"]), Decimal(statement["rounding"]))
    exact = sum((Decimal(line["amount"]) for line in statement["lines"]), Decimal(0))
    charged = sum(line["charged_ppm_ms"] for line in statement["lines"])
    return (
        shown == Decimal(statement["total"])
        and exact == Decimal(statement["amount"])
        and charged == statement["totals"]["charged_ppm_ms"]
    )


def tenants_are_apart(evidence: Evidence, case: Case) -> Iterator[Check]:
    """One tenant's token: its own rows, and not a word about the other."""
    isolation = evidence.books.isolation
    own, other = (evidence.scenario.cluster(code) for code in (isolation.own, isolation.other))
    unanswered = [path for path, answer in isolation.answers.items() if answer.status != 200]
    yield case.equal("answers to the tenant's own questions", "all", ", ".join(unanswered) or "all")
    texts = [answer.text for answer in isolation.answers.values()]
    yield case.equal(
        "own tenant is named", "yes", "yes" if any(own.tenant in text for text in texts) else "no"
    )
    # Names of namespaces, pods and nodes are equal in both clusters, and so is a card's UUID.
    words = [other.tenant, other.account, other.code, other.node_uid, *(c.nvml_model for c in other.cards)]
    words += [other.pod_uid(pod) for pod in other.pods]
    leaks = sum(text.count(word) for text in texts for word in words)
    yield case.equal("words about the other tenant", 0, leaks)
    yield from _counts(evidence, case, own)
    refused, unknown = isolation.of_the_other, isolation.of_nobody
    yield case.equal("the other's statement", 404, refused.status)
    alike = _without_names(refused.text, other.tenant_path) == _without_names(
        unknown.text, "nobody/no-such-tenant"
    )
    yield case.equal("refused as if it did not exist", "yes", "yes" if alike else "no")
    yield case.equal("whole cards, asked by a tenant", 403, isolation.whole_cards.status)
    yield case.equal("without a token", 401, isolation.without_token.status)
    for cluster in (own, other):
        tenants = {
            labels["tenant"]
            for labels, _ in evidence.steady[f"node {cluster.code}"].find("slice_memory_allocated_bytes")
        }
        yield case.equal(
            f"{cluster.code}: tenants of namespace {cluster.namespace}",
            cluster.tenant,
            ", ".join(sorted(tenants)),
        )


def _counts(evidence: Evidence, case: Case, own: ClusterPlan) -> Iterator[Check]:
    """Not even a count of the other's slices."""
    for path, answer in evidence.books.isolation.answers.items():
        if path.startswith("/api/v1/allocations") and answer.status == 200:
            rows = json.loads(answer.text)
            held = sum(pod.holds_slice for pod in own.pods)
            yield case.equal("slices it can count", held, rows["totals"]["allocations"])
            yield case.equal("slices it can list", held, len(rows["rows"]))


def _without_names(text: str, path: str) -> str:
    """A problem's text without the name that was asked for, which it may repeat."""
    for spelling in (path, urllib.parse.quote(path, safe=""), urllib.parse.quote(path)):
        text = text.replace(spelling, "TENANT")
    return text
