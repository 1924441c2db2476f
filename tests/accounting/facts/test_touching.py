"""Rating what facts marked, batch by batch, must give the ledger of rating everything at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from accounting.access.viewer import COMMAND_LINE
from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.periods.rate import rate
from accounting.prices.book import set_price
from accounting.store.database import Database
from accounting.store.models import DeviceHour, LedgerLine, Tenant
from accounting.tenants.registry import add_account, add_cluster
from contract.facts import AllocationFact, Fact, NodeStateFact, PresenceFact, SliceUsageFact, canonical_bytes

NewBooks = Callable[[], AbstractContextManager[Database]]

DAY_MS = 86_400_000
STEP_MS = 5 * 3_600_000
"""Some gaps of one step are bridged (6 h), those of two are not."""

FIRST_MS = 1_790_812_800_000
"""2026-10-01T00:00Z."""

NOW_MS = FIRST_MS + 6 * DAY_MS
GRACE_MS = 900_000

_ms = st.integers(0, 27).map(lambda step: FIRST_MS + step * STEP_MS)


def _fields(**others: Any) -> dict[str, Any]:
    return {"cluster": "a", "node_uid": "uid-1", "device_uuid": "GPU-1"} | others


@st.composite
def _allocations(draw: st.DrawFn) -> AllocationFact:
    bound, first, last, end = sorted(draw(st.tuples(_ms, _ms, _ms, _ms)))
    kind = draw(st.sampled_from([None, None, "observed", "inferred"]))
    fields = _fields(
        pod_uid=draw(st.sampled_from(["pod-1", "pod-2"])), container="main",
        witness=draw(st.sampled_from(["node", "cluster"])), node="node-1", namespace="team", pod="train",
        vendor="NVIDIA", model=draw(st.sampled_from(["", "NVIDIA L4"])),
        mem_mib=draw(st.sampled_from([6_144, 24_576])), core_percent=draw(st.sampled_from([0, 50])),
        container_kind="app", tenant_key=draw(st.sampled_from(["tenant-a", "tenant-b"])), bound_at_ms=bound,
        started_at_ms=draw(st.none() | st.just(first)), first_confirmed_at_ms=first, confirmed_at_ms=last,
        ended_at_ms=None if kind is None else draw(st.sampled_from([last, end])), end_kind=kind,
    )  # fmt: skip
    return AllocationFact(**fields)


@st.composite
def _presences(draw: st.DrawFn) -> PresenceFact:
    begins, ends = sorted(draw(st.tuples(_ms, _ms)))
    fields = _fields(
        node="node-1", witness=draw(st.sampled_from(["node", "cluster"])), from_ms=begins,
        to_ms=ends, state=draw(st.sampled_from(["healthy", "down"])), model="NVIDIA L4", vendor="NVIDIA",
        registered_mib=draw(st.sampled_from([0, 12_288, 24_576])), slots=10,
    )  # fmt: skip
    return PresenceFact(**fields)


@st.composite
def _node_states(draw: st.DrawFn) -> NodeStateFact:
    heartbeat, begins, ends = sorted(draw(st.tuples(_ms, _ms, _ms)))
    fields = _fields(
        node="node-1", from_ms=begins, to_ms=ends, ready=draw(st.booleans()),
        heartbeat_at_ms=draw(st.sampled_from([heartbeat, ends])),
    )  # fmt: skip
    del fields["device_uuid"]
    return NodeStateFact(**fields)


@st.composite
def _uses(draw: st.DrawFn) -> SliceUsageFact:
    hour = draw(_ms)
    fields = _fields(
        pod_uid="pod-1", container="main", hour_ms=hour, epoch=draw(st.sampled_from(["e1", "e2"])),
        revision=draw(st.integers(0, 1)), from_ms=hour, to_ms=hour + 3_600_000, covered_ms=3_600_000,
        unknown_ms=0, sm_ppm_ms=1_000, sm_down_ppm_ms=draw(st.sampled_from([0, 500])), mem_used_mib_ms=0,
        mem_peak_mib=0, energy_active_mj=0, blocked_ms=0, over_limit_ms=0, source="nvml",
    )  # fmt: skip
    return SliceUsageFact(**fields)


_facts = st.one_of(_allocations(), _allocations(), _presences(), _presences(), _node_states(), _uses())


def _send(database: Database, facts: list[Fact]) -> None:
    lines = read_lines(b"\n".join(map(canonical_bytes, facts)), Scope("a"), now_ms=NOW_MS)
    with database.writing() as session:
        ingest(session, lines, cluster="a", now_ms=NOW_MS)


def _ledger(database: Database) -> tuple[list[Any], list[Any]]:
    """Everything that a rating wrote, but ids."""
    line = [c for c in LedgerLine.__table__.columns if c.name not in {"id", "tenant_id", "period_id"}]
    hour = list(DeviceHour.__table__.columns)
    with database.reading() as session:
        joined = select(Tenant.path, *line).join(Tenant, Tenant.id == LedgerLine.tenant_id)
        lines = sorted(map(tuple, session.execute(joined)), key=repr)
        return lines, sorted(map(tuple, session.execute(select(*hour))))


@contextmanager
def _open_books(new_books: NewBooks) -> Iterator[Database]:
    """Books with accounts, a cluster and a price, and no fact yet."""
    with new_books() as database:
        zone: dict[str, Any] = {"currency": "EUR", "time_zone": "Europe/Berlin", "grace_days": 3}
        by: dict[str, Any] = {"by": COMMAND_LINE, "now_ms": 0}
        with database.writing() as session:
            add_account(session, "acme", kind="tenant", **zone, **by)
            add_account(session, "platform", kind="platform", **zone, **by)
            add_cluster(session, "a", account="acme", platform_account="platform", **by)
            price: dict[str, Any] = {"sku": "gpu-slice", "model": "", "currency": "EUR", "valid_from_ms": 0}
            set_price(session, **price, unit_price=Decimal("2.40"), **by)
        yield database


@st.composite
def _histories(draw: st.DrawFn) -> tuple[list[Fact], list[list[Fact]]]:
    facts = draw(st.lists(_facts, min_size=1, max_size=7))
    shuffled = list(draw(st.permutations(facts)))
    cuts = sorted(draw(st.lists(st.integers(0, len(shuffled)), min_size=1, max_size=3)))
    batches = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(shuffled)], strict=True)]
    return facts, batches


@given(history=_histories(), early_ms=st.sampled_from([NOW_MS, NOW_MS - DAY_MS]))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rating_after_each_batch_ends_in_the_ledger_of_one_rating(
    new_books: NewBooks, history: tuple[list[Fact], list[list[Fact]]], early_ms: int
) -> None:
    facts, batches = history
    with _open_books(new_books) as database:
        _send(database, facts)
        rate(database, as_of_ms=NOW_MS, grace_ms=GRACE_MS)
        expected = _ledger(database)
    with _open_books(new_books) as database:
        for batch in batches[:-1]:
            _send(database, batch)
            rate(database, as_of_ms=early_ms, grace_ms=GRACE_MS)
        _send(database, batches[-1])
        rate(database, as_of_ms=NOW_MS, grace_ms=GRACE_MS)
        assert _ledger(database) == expected
