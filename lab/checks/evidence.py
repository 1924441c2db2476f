"""Everything that was measured while the scenario played, as the checks read it.

Invariant: it holds only what came over HTTP from `/metrics`, `/readyz` and accounting's API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from lab.pages import Album, Page
from lab.scenarios.plan import Scenario


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the checks look at.

    Attributes:
        start_s: When the scenario started, Unix seconds.
        steady: The last page of each target before the pods ended.
        ready: What each target's `/readyz` said at that moment.
    """

    scenario: Scenario
    start_s: int
    album: Album
    steady: Mapping[str, Page]
    ready: Mapping[str, bool]

    def steady_value(self, target: str, name: str, **labels: str) -> float | None:
        """A series of a target's steady page."""
        return self.steady[target].value(name, **labels)

    def history(self, target: str, name: str, **labels: str) -> Iterator[tuple[Page, float]]:
        """A series over all pages of a target on which it stands."""
        for page in self.album.pages(target):
            value = page.value(name, **labels)
            if value is not None:
                yield page, value

    def extreme(
        self, pick: Callable[[list[float]], float], target: str, name: str, **labels: str
    ) -> float | None:
        """The smallest or largest value a series ever had; None if it was never there."""
        values = [value for _, value in self.history(target, name, **labels)]
        return pick(values) if values else None
