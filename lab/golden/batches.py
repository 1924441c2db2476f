"""Facts as the requests that exporters make of them, and those requests sent.

Invariant: the same facts and seed make the same requests, to the byte but for the time they say they were
sent at. Each exporter speaks for itself: a node's of its node, the cluster's of what only it sees.
"""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias
from urllib.parse import urlsplit

from contract.facts import (
    CONTENT_TYPE,
    FACTS_PATH,
    HEADER_KUBE_SYSTEM_UID,
    HEADER_SENT_AT,
    HEADER_SOURCE,
    AllocationFact,
    Fact,
    NodeStateFact,
    PresenceFact,
    canonical_bytes,
)
from contract.version import VERSION

Exporter: TypeAlias = tuple[str, str, str]
"""Cluster, node UID and node name; the last two are empty for the cluster's exporter."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One request's worth of facts of one exporter."""

    exporter: Exporter
    facts: tuple[Fact, ...]

    def body(self) -> bytes:
        """Its facts as gzip NDJSON."""
        return gzip.compress(b"\n".join(map(canonical_bytes, self.facts)), mtime=0)

    def headers(self, *, sent_at_ms: int) -> dict[str, str]:
        """The headers of its request, without the token."""
        cluster, node_uid, node = self.exporter
        who = f"role=node;node_uid={node_uid};node={node}" if node_uid else "role=cluster"
        return {
            "Content-Type": CONTENT_TYPE,
            "Content-Encoding": "gzip",
            HEADER_SENT_AT: str(sent_at_ms),
            HEADER_KUBE_SYSTEM_UID: f"kube-system-of-{cluster}",
            HEADER_SOURCE: f"{who};epoch={node_uid or cluster}-pushes;version={VERSION}",
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What accounting said of a batch."""

    stored: int
    duplicate: int
    rejected: int


def in_order(facts: Iterable[Fact], *, per_batch: int = 2_000) -> list[Batch]:
    """Facts by exporter, in the order in which they are told."""
    by_exporter: dict[Exporter, list[Fact]] = {}
    node_names = {str(fact.node_uid): fact.node for fact in facts if isinstance(fact, PresenceFact)}
    for fact in facts:
        by_exporter.setdefault(_exporter_of(fact, node_names), []).append(fact)
    return [batch for exporter, told in by_exporter.items() for batch in _cut(exporter, told, per_batch)]


def shuffled(
    facts: Sequence[Fact], *, seed: int, repeated: float = 0.2, per_batch: int = 1_500
) -> list[Batch]:
    """Facts in any order, a part of them twice, in batches in any order."""
    random = Random(seed)
    told = [*facts, *random.sample(list(facts), int(len(facts) * repeated))]
    random.shuffle(told)
    batches = in_order(told, per_batch=per_batch)
    random.shuffle(batches)
    return batches


def _exporter_of(fact: Fact, node_names: Mapping[str, str]) -> Exporter:
    is_cluster = isinstance(fact, NodeStateFact) or (
        isinstance(fact, AllocationFact | PresenceFact) and fact.witness == "cluster"
    )
    if is_cluster:
        return fact.cluster, "", ""
    return fact.cluster, fact.node_uid, node_names[fact.node_uid]


def _cut(exporter: Exporter, facts: Sequence[Fact], per_batch: int) -> Iterator[Batch]:
    for start in range(0, len(facts), per_batch):
        yield Batch(exporter, tuple(facts[start : start + per_batch]))


def post(address: str, batches: Iterable[Batch], tokens: Mapping[str, str], *, sent_at_ms: int) -> Answer:
    """Send batches to a running accounting over HTTP.

    Args:
        address: Its URL.
        batches: In this order.
        tokens: A reporter's token for each cluster.
        sent_at_ms: What the exporters' clocks show.

    Returns:
        The answers, added up.

    Raises:
        RuntimeError: Accounting did not take a batch.
    """
    stored = duplicate = rejected = 0
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    try:
        for batch in batches:
            headers = batch.headers(sent_at_ms=sent_at_ms)
            headers["Authorization"] = f"Bearer {tokens[batch.exporter[0]]}"
            connection.request("POST", FACTS_PATH, batch.body(), headers)
            response = connection.getresponse()
            answer = response.read()
            if response.status != 200:
                raise RuntimeError(f"{address}{FACTS_PATH} answered {response.status}: {answer.decode()}")
            counts = json.loads(answer)
            stored += counts["stored"]
            duplicate += counts["duplicate"]
            rejected += len(counts["rejected"])
    finally:
        connection.close()
    return Answer(stored, duplicate, rejected)
