"""What delivery counts about itself: native counters in the role's registry, each word from 0 on.

They are not on pages, because the push thread moves them between ticks (`NATIVE_FAMILIES`).
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from contract.catalogue import BY_NAME, FACTS_LOST_REASONS, PUSH_RESULTS, RESTART_REASONS


class DeliveryMetrics:
    """The counters of state, outbox and push.

    Emits:
        # TYPE slicemeter_push_total counter
        slicemeter_push_total{result="ok"} 0.0
        # TYPE slicemeter_facts_lost_total counter
        slicemeter_facts_lost_total{reason="disk_full"} 0.0
        # TYPE slicemeter_counters_restarted_total counter
        slicemeter_counters_restarted_total{why="first_start"} 0.0
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pushes = _counter(registry, "push_total", PUSH_RESULTS)
        self._lost = _counter(registry, "facts_lost_total", FACTS_LOST_REASONS)
        self._restarts = _counter(registry, "counters_restarted_total", RESTART_REASONS)

    def pushed(self, result: str) -> None:
        """One request to accounting ended: a word of `PUSH_RESULTS`."""
        self._pushes.labels(result).inc()

    def lost(self, reason: str, facts: int) -> None:
        """Facts are gone for good: a word of `FACTS_LOST_REASONS`."""
        self._lost.labels(reason).inc(facts)

    def restarted(self, why: str) -> None:
        """Counters began again at 0: a word of `RESTART_REASONS`."""
        self._restarts.labels(why).inc()


def _counter(registry: CollectorRegistry, name: str, words: tuple[str, ...]) -> Counter:
    family = BY_NAME[name]
    counter = Counter(family.full_name, family.help, family.labels, registry=registry)
    for word in words:
        counter.labels(word)
    return counter
