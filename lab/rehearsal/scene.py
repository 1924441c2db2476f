"""What a scene is: a plan of one cluster, how long it lasts, and exactly which alerts must arrive.

Texts are written out by hand, with `…` where the value depends on the moment. Invariant: a scene says
everything that may arrive; whatever else does is a fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lab.scenarios.plan import Scenario

CLUSTER = "lab"
ACCOUNT = "institute"
HOME = "books"
"""Target label `cluster` of accounting: where it runs, as its own series about money name no cluster."""
NODE = "gpu-1"


@dataclass(frozen=True, slots=True)
class Expected:
    """One alert that must arrive.

    Attributes:
        labels: All of them; `cluster` only where it is not the scene's own.
        text: The description.
        tenant_text: What the tenant's own channel is told; "" = nothing.
    """

    labels: Mapping[str, str]
    text: str
    tenant_text: str = ""

    @property
    def all_labels(self) -> dict[str, str]:
        """As they arrive."""
        return {"cluster": CLUSTER, **self.labels}

    @property
    def name(self) -> str:
        """The alert's name and what tells it from others of that name."""
        rest = [
            self.labels[key] for key in ("pod", "code", "why", "collector", "instance") if key in self.labels
        ]
        return " ".join([self.labels["alertname"].removeprefix("Slicemeter"), *rest])


def says(pattern: str, text: str) -> bool:
    """Whether a text is the pattern, with something in the place of each `…`."""
    parts = [re.escape(part) for part in pattern.split("…")]
    return re.fullmatch("(?s:.+?)".join(parts), text.strip()) is not None


@dataclass(frozen=True, slots=True)
class Scene:
    """One thing that may happen to a cluster.

    Attributes:
        name: As one asks for it.
        about: What happens, in a sentence.
        plan: Makes the scenario, for so many seconds a minute.
        lasts_minutes: How long nothing else may arrive.
        expected: What must arrive.
    """

    name: str
    about: str
    plan: Callable[[int], Scenario]
    lasts_minutes: int
    expected: tuple[Expected, ...] = ()
