"""What a rule is: recording rules, alerts and the groups they stand in, as frozen values.

The level comes first in a recording rule's name (`level:metric:operations`); an alert's name is
CamelCase with the prefix `Slicemeter`, and its runbook is the page of that name in lower case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["critical", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert.

    Attributes:
        name: Also the name of its runbook.
        expr: PromQL; its result carries `cluster`, and `tenant` where the subject has one.
        hold: How long the expression must hold before it fires (`for`).
        severity: `critical` wakes someone, `warning` is for working hours, `info` is shown.
        summary: What is wrong, without values.
        description: With values and units; may name other tenants, so it goes to platform receivers.
        tenant_text: What a tenant's own receiver may show: names its own slices and "another slice".
        dashboard: Path and variables of the dashboard to open.
    """

    name: str
    expr: str
    hold: str
    severity: Severity
    summary: str
    description: str
    dashboard: str
    tenant_text: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def runbook(self) -> str:
        """File name of the runbook."""
        return f"{self.name.lower()}.md"


Rule: TypeAlias = Recording | Alert


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together, in order: a later rule reads what an earlier one wrote.

    Attributes:
        name: With the prefix `slicemeter-`.
        switch: The name by which people turn the group on; None = always on.
    """

    name: str
    rules: tuple[Rule, ...]
    switch: str | None = None

    def alerts(self) -> Iterator[Alert]:
        """The group's alerts."""
        return (rule for rule in self.rules if isinstance(rule, Alert))

    def recordings(self) -> Iterator[Recording]:
        """The group's recording rules."""
        return (rule for rule in self.rules if isinstance(rule, Recording))
