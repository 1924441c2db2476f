"""Everything that was measured while the scenario played, as the checks read it.

Invariant: it holds only what came over HTTP from `/metrics`, `/readyz` and accounting's API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.bookkeeping import Document
from lab.pages import Album, Answer, Page
from lab.scenarios.plan import Scenario


@dataclass(frozen=True, slots=True)
class Isolation:
    """What a tenant's token was answered.

    Attributes:
        own: Code of the tenant's own cluster.
        other: Code of the cluster that it must not see.
        answers: By path, everything that may be read with it.
        of_the_other: When it asks for the other tenant's statement.
        of_nobody: When it asks for the statement of a tenant that does not exist.
        whole_cards: When it asks for capacity, which speaks of whole cards.
        without_token: When nobody in particular asks for the tenants.
    """

    own: str
    other: str
    answers: Mapping[str, Answer]
    of_the_other: Answer
    of_nobody: Answer
    whole_cards: Answer
    without_token: Answer


@dataclass(frozen=True, slots=True)
class BookEvidence:
    """What accounting said at the end; None or empty where it gave no answer.

    Attributes:
        statements: By cluster code, its tenant's statements of every month touched.
        allocations: Rows of every slice that was held.
        capacity: Hours of every device.
        verified: What `verify` found in every month touched.
    """

    statements: Mapping[str, Sequence[Document]]
    allocations: Sequence[Document] | None
    capacity: Document | None
    verified: Sequence[Document]
    isolation: Isolation


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the checks look at.

    Attributes:
        start_s: When the scenario started, Unix seconds.
        steady: The last page of each target before the pods ended.
        ready: What each target's `/readyz` said at that moment.
        was_disturbed: Programs were killed meanwhile.
    """

    scenario: Scenario
    start_s: int
    album: Album
    steady: Mapping[str, Page]
    ready: Mapping[str, bool]
    books: BookEvidence
    was_disturbed: bool = False

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
