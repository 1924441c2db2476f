"""Every case of the demo's scenario, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Iterator

from lab.checks import books, slices
from lab.checks.check import Case, Check
from lab.checks.evidence import Evidence


def judge(evidence: Evidence) -> Iterator[Check]:
    """All checks; the names of the cases are those of HAMi's labs."""
    case = Case("three pods on one card")
    yield from slices.card_is_shared(evidence, case, "lab-a")
    yield from books.tenant_owes(evidence, case, "lab-a")
    case = Case("over memory")
    yield from slices.pod_is_refused(evidence, case, "lab-a", "over-memory")
    yield from slices.never_fits(evidence, case, "lab-a")
    case = Case("over cores")
    yield from slices.pod_is_refused(evidence, case, "lab-a", "over-cores")
    case = Case("release and lock")
    for code in ("lab-a", "lab-b", "lab-c"):
        yield from slices.locks(evidence, case, code)
    yield from books.tenants_are_apart(evidence, Case("tenants invisible"))
    case = Case("two pods, one card")
    yield from slices.card_is_shared(evidence, case, "lab-b")
    yield from books.tenant_owes(evidence, case, "lab-b")
    yield from slices.limit_is_seen(evidence, Case("limit seen"), "lab-c", "idle-1")
    case = Case("refusal contained")
    yield from slices.refusal_is_contained(evidence, case, "lab-c", "refused")
    yield from books.pod_owes(evidence, case, "lab-c", "refused")
    case = Case("30 % held")
    yield from slices.share_is_held(evidence, case, "lab-c", "held")
    yield from books.sm_time_is_stated(evidence, case, "lab-c", "held")
    case = Case("eleventh refused")
    yield from slices.card_is_shared(evidence, case, "lab-c")
    yield from slices.pod_is_refused(evidence, case, "lab-c", "eleventh")
    yield from books.tenant_owes(evidence, case, "lab-c")
    case = Case("bypass seen")
    yield from slices.bypass_is_seen(evidence, case, "lab-a")
    yield from books.costs_nothing(evidence, case, "lab-a", "bypass")
    yield from books.books_close(evidence, Case("the books close"))
