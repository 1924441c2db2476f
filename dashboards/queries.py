"""The few shapes of query that panels are made of, over families of the catalogue."""

from __future__ import annotations

from dashboards.names import metric
from dashboards.panels import Query


def total(name: str, scope: str, by: str = "") -> str:
    """A gauge's sum, now."""
    return f"{_sum(by)} ({metric(name)}{{{scope}}})"


def speed(name: str, scope: str, by: str = "") -> str:
    """A counter's rate a second, over the panel's own step."""
    return f"{_sum(by)} (rate({metric(name)}{{{scope}}}[$__rate_interval]))"


def mean_speed(name: str, scope: str, by: str = "") -> str:
    """A counter's rate a second over the whole range in view."""
    return f"{_sum(by)} (rate({metric(name)}{{{scope}}}[$__range]))"


def growth(name: str, scope: str, by: str = "") -> str:
    """How much a counter grew over the whole range in view."""
    return f"{_sum(by)} (increase({metric(name)}{{{scope}}}[$__range]))"


def age(name: str, scope: str, by: str) -> str:
    """Seconds since the latest of a family's timestamps."""
    return f"time() - max by ({by}) ({metric(name)}{{{scope}}})"


def part(used: str, whole: str, scope: str, by: str = "") -> str:
    """One gauge's sum over another's."""
    return f"{total(used, scope, by)} / {total(whole, scope, by)}"


def each(expr: str, legend: str) -> list[Query]:
    """One query whose series are named by their labels."""
    return [Query(expr, legend)]


def _sum(by: str) -> str:
    return f"sum by ({by})" if by else "sum"
