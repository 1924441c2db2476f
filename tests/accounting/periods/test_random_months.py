"""A month of any facts, told in any order, again and again, with failures: one ledger, one statement.

The month is sealed with a part of its facts and corrected with the rest; another is told everything at
once. What was sealed and what was posted since must come to the same, resource by resource and day by day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from accounting.access.viewer import COMMAND_LINE
from accounting.facts.ingest import ingest
from accounting.facts.reading import Scope, read_lines
from accounting.ledger.calendar import parse_month
from accounting.ledger.rounding import EXACT, exact_sum, to_currency
from accounting.periods.close import Closed, close_period
from accounting.periods.correct import correct_period
from accounting.periods.rate import rate
from accounting.periods.statement import state_statement
from accounting.periods.verify import verify_period
from accounting.prices.book import set_price
from accounting.prices.policies import set_policy
from accounting.store.database import Database
from accounting.store.models import BillingPeriod, DeviceHour, LedgerLine, Tenant
from accounting.tenants.registry import add_account, add_cluster
from contract.facts import (
    AllocationFact,
    DeviceUsageFact,
    Fact,
    NodeStateFact,
    PresenceFact,
    SliceUsageFact,
    canonical_bytes,
)

HOUR = 3_600_000
FIRST = 1_790_805_600_000
"""2026-10-01T00:00 in Berlin, 22:00Z the day before."""
LAST = FIRST + 745 * HOUR
"""2026-11-01T00:00 in Berlin: the clocks went back meanwhile."""
CLOSING = LAST + 5 * 24 * HOUR
LATE = CLOSING + 24 * HOUR
OCTOBER = parse_month("2026-10")

SomeFact = TypeVar("SomeFact", bound=Fact)

NewBooks = Callable[[], AbstractContextManager[Database]]

_fields: dict[str, Any] = {"cluster": "c", "node_uid": "node-uid-1"}
_devices = st.sampled_from(["GPU-1", "GPU-2"])
# Odd milliseconds in the month's last week, in which the clocks go back, and a little after it.
_instants = st.integers(570, 750).flatmap(
    lambda hour: st.sampled_from([0, 1, 1_234_567, HOUR - 1]).map(lambda odd: FIRST + hour * HOUR + odd)
)
_hours = st.integers(570, 744).map(lambda hour: FIRST + hour * HOUR)


def _fact(kind: type[SomeFact], **fields: Any) -> SomeFact:
    """A fact of the one node, out of values that strategies draw."""
    return kind(**_fields, **fields)


@st.composite
def _allocations(draw: st.DrawFn) -> AllocationFact:
    bound, first, last, end = sorted(draw(st.tuples(*[_instants] * 4)))
    kind = draw(st.sampled_from(["observed", "observed", "inferred", None]))
    device = draw(_devices)
    return _fact(
        AllocationFact, pod_uid=draw(st.sampled_from(["pod-1", "pod-2", "pod-3"])), container="main",
        device_uuid=device, witness=draw(st.sampled_from(["node", "cluster"])), node="node-1",
        namespace="team", pod="train", vendor="NVIDIA", model="Tesla T4",
        mem_mib=draw(st.sampled_from([1_000, 7_680, 15_360])),
        core_percent=draw(st.sampled_from([0, 33, 100])), container_kind="app",
        tenant_key=draw(st.sampled_from(["a", "b", ""])), bound_at_ms=bound,
        started_at_ms=draw(st.none() | st.just(first)), first_confirmed_at_ms=first, confirmed_at_ms=last,
        ended_at_ms=None if kind is None else draw(st.sampled_from([last, end])), end_kind=kind,
    )  # fmt: skip


@st.composite
def _presences(draw: st.DrawFn) -> PresenceFact:
    begins, ends = sorted(draw(st.tuples(_instants, _instants)))
    state = draw(st.sampled_from(["healthy", "healthy", "down"]))
    return _fact(
        PresenceFact, device_uuid=draw(_devices), node="node-1",
        witness=draw(st.sampled_from(["node", "cluster"])), from_ms=begins, to_ms=ends, state=state,
        reason="xid_79" if state == "down" else None, model="Tesla T4", vendor="NVIDIA",
        registered_mib=draw(st.sampled_from([15_360, 30_720])), physical_mib=15_360, slots=10,
    )  # fmt: skip


@st.composite
def _node_states(draw: st.DrawFn) -> NodeStateFact:
    heartbeat, begins, ends = sorted(draw(st.tuples(_instants, _instants, _instants)))
    return _fact(
        NodeStateFact, node="node-1", from_ms=begins, to_ms=ends, ready=draw(st.booleans()),
        heartbeat_at_ms=heartbeat,
    )  # fmt: skip


@st.composite
def _uses(draw: st.DrawFn) -> SliceUsageFact:
    hour = draw(_hours)
    return _fact(
        SliceUsageFact, pod_uid=draw(st.sampled_from(["pod-1", "pod-2"])), container="main",
        device_uuid=draw(_devices), hour_ms=hour, epoch=draw(st.sampled_from(["e1", "e2"])),
        revision=draw(st.integers(0, 2)), from_ms=hour, to_ms=hour + draw(st.sampled_from([HOUR, 7])),
        covered_ms=7, unknown_ms=0, sm_ppm_ms=draw(st.integers(0, 7)),
        sm_down_ppm_ms=0, mem_used_mib_ms=0, mem_peak_mib=0,
        energy_active_mj=draw(st.sampled_from([0, 123_457])), blocked_ms=0, over_limit_ms=0, source="nvml",
    )  # fmt: skip


@st.composite
def _device_uses(draw: st.DrawFn) -> DeviceUsageFact:
    hour = draw(_hours)
    idle = draw(st.sampled_from([0, 1, 333_333]))
    return _fact(
        DeviceUsageFact, device_uuid=draw(_devices), hour_ms=hour, epoch="e1",
        revision=draw(st.integers(0, 1)), from_ms=hour, to_ms=hour + HOUR, covered_ms=HOUR, busy_ppm_ms=0,
        energy_mj=idle + draw(st.sampled_from([0, 123_457])), energy_idle_mj=idle,
        energy_unattributed_mj=0, sm_unattributed_ppm_ms=0,
    )  # fmt: skip


_facts = st.one_of(
    _allocations(), _allocations(), _allocations(), _presences(), _presences(), _node_states(), _uses(),
    _device_uses(),
)  # fmt: skip

# The card is seen for some days at least, so that most examples have something to rate.
_seen = st.builds(
    PresenceFact, **{key: st.just(value) for key, value in _fields.items()}, device_uuid=st.just("GPU-1"),
    node=st.just("node-1"), witness=st.just("node"), from_ms=st.just(FIRST + 575 * HOUR),
    to_ms=st.integers(600, 750).map(lambda hour: FIRST + hour * HOUR), state=st.just("healthy"),
    model=st.just("Tesla T4"), vendor=st.just("NVIDIA"), registered_mib=st.just(15_360), slots=st.just(10),
)  # fmt: skip


@dataclass(frozen=True)
class Batch:
    """Some facts, told at once."""

    facts: Sequence[Fact]
    fails_first: bool
    """The transaction breaks at its end, and the batch comes again."""
    then_rates: bool


@dataclass(frozen=True)
class History:
    """A month, and how it was told: before the seal and after it."""

    facts: Sequence[Fact]
    before: Sequence[Batch]
    after: Sequence[Batch]
    currency: str


@st.composite
def _batches(draw: st.DrawFn, facts: Sequence[Fact]) -> list[Batch]:
    again = draw(st.lists(st.sampled_from(list(facts)), max_size=3)) if facts else []
    told = draw(st.permutations([*facts, *again]))
    cut = draw(st.integers(0, len(told)))
    flags = st.tuples(st.booleans(), st.booleans())
    return [Batch(part, *draw(flags)) for part in (told[:cut], told[cut:]) if part]


@st.composite
def _histories(draw: st.DrawFn) -> History:
    facts = [draw(_seen), *draw(st.lists(_facts, min_size=2, max_size=7))]
    shuffled = draw(st.permutations(facts))
    sealed_with = draw(st.integers(0, len(facts)))
    return History(
        facts,
        draw(_batches(shuffled[:sealed_with])),
        draw(_batches(shuffled[sealed_with:])),
        draw(st.sampled_from(["EUR", "JPY", "KWD"])),
    )


def open_books(database: Database, currency: str) -> None:
    by: dict[str, Any] = {"by": COMMAND_LINE, "now_ms": 0}
    zone: dict[str, Any] = {"currency": currency, "time_zone": "Europe/Berlin", "grace_days": 3}
    with database.writing() as session:
        add_account(session, "acme", kind="tenant", **zone, **by)
        add_account(session, "platform", kind="platform", **zone, **by)
        add_cluster(session, "c", account="acme", platform_account="platform", **by)
        for sku, unit_price, from_ms in (
            ("gpu-slice", "2.40", 0),
            ("gpu-slice", "3.333333", FIRST + 650 * HOUR + 17),
            ("gpu-energy", "0.31", 0),
        ):
            price: dict[str, Any] = {"sku": sku, "model": "", "currency": currency}
            set_price(session, **price, unit_price=Decimal(unit_price), valid_from_ms=from_ms, **by)
        from_the_30th = FIRST + 700 * HOUR
        set_policy(session, kind="share", value="memory", valid_from_ms=from_the_30th, **by)


def tell(database: Database, facts: Sequence[Fact], *, now_ms: int, breaks: bool = False) -> None:
    lines = read_lines(b"\n".join(map(canonical_bytes, facts)), Scope("c"), now_ms=now_ms)
    with database.writing() as session:
        taken = ingest(session, lines, cluster="c", now_ms=now_ms)
        # The one fact that loses to another of its key and revision goes to quarantine, no other.
        assert {one.reason for one in taken.rejected} <= {"conflict"}
        if breaks:
            session.rollback()


def rated(database: Database, as_of_ms: int) -> None:
    rate(database, as_of_ms=as_of_ms, grace_ms=900_000)


def play(database: Database, batches: Sequence[Batch], *, now_ms: int) -> None:
    for batch in batches:
        if batch.fails_first:
            tell(database, batch.facts, now_ms=now_ms, breaks=True)
        tell(database, batch.facts, now_ms=now_ms)
        if batch.then_rates:
            rated(database, now_ms)


def months_in(database: Database, state: str) -> list[str]:
    """The accounts whose October is in this state; one without any line has no October."""
    with database.reading() as session:
        rows = session.scalars(
            select(BillingPeriod.account).where(
                BillingPeriod.starts_at_ms == FIRST, BillingPeriod.state == state
            )
        )
        return sorted(rows)


def close(database: Database) -> None:
    for account in months_in(database, "open"):
        closed = close_period(
            database, account, OCTOBER, by=COMMAND_LINE, now_ms=CLOSING, grace_ms=900_000,
            override_reason="whatever was seen of the cards",
        )  # fmt: skip
        assert isinstance(closed, Closed), closed


def correct(database: Database) -> int:
    lines = 0
    for account in months_in(database, "closed"):
        lines += len(correct_period(database, account, OCTOBER, by=COMMAND_LINE, now_ms=LATE).deltas)
    return lines


def owed(database: Database) -> dict[tuple[Any, ...], tuple[int, int, Decimal]]:
    """By what it is for: own and charged quantity and amount, sealed and posted since; nothing of zero."""
    found: dict[tuple[Any, ...], tuple[int, int, Decimal]] = defaultdict(lambda: (0, 0, Decimal(0)))
    with database.reading() as session:
        for path, line in session.execute(
            select(Tenant.path, LedgerLine).join(Tenant, Tenant.id == LedgerLine.tenant_id)
        ):
            day = line.day_ms if line.corrects_day_ms is None else line.corrects_day_ms
            key = (path, line.corrects_kind or line.kind, line.sku, line.resource_key, day)
            own, quantity, amount = found[key]
            amount = EXACT.add(amount, line.amount or Decimal(0))
            found[key] = (own + line.own_quantity, quantity + line.quantity, amount)
    return {key: value for key, value in found.items() if value != (0, 0, Decimal(0))}


def hours(database: Database) -> list[tuple[Any, ...]]:
    with database.reading() as session:
        rows = session.execute(select(*DeviceHour.__table__.columns)).all()
    return sorted(map(tuple, rows))


def require_identities(database: Database, currency: str) -> None:
    """The card closes in every hour, and every statement says the sum of its lines."""
    with database.reading() as session:
        for hour in session.scalars(select(DeviceHour)):
            parts = (hour.charged_ppm_ms, hour.idle_ppm_ms, hour.down_ppm_ms)
            assert sum(parts) == hour.present_ppm_ms
            assert min(parts) >= 0
        for month in ("2026-10", "2026-11"):
            for account in ("acme", "platform"):
                stated = state_statement(
                    session, COMMAND_LINE, parse_month(month), None, account_code=account
                )
                assert stated.total is not None
                assert stated.rounding is not None
                exact = exact_sum(line.amount for line in stated.lines if line.amount is not None)
                shown = exact_sum(line.shown for line in stated.lines if line.shown is not None)
                assert stated.total == to_currency(exact, currency) == EXACT.add(shown, stated.rounding)
                digits = {"EUR": 2, "JPY": 0, "KWD": 3}[currency]
                assert stated.total.as_tuple().exponent == -digits
            assert verify_period(session, parse_month(month)).holds


@pytest.mark.slow
def test_a_month_told_in_any_order_with_repetition_and_failures_through_close_and_correction_is_one_month(
    new_books: NewBooks, database_kind: str
) -> None:
    @settings(
        max_examples=12 if database_kind == "sqlite" else 5,
        deadline=None,
        # An example takes seconds, and shrinking one an hour.
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(history=_histories())
    def check(history: History) -> None:
        with new_books() as at_once, new_books() as piece_by_piece:
            for database in (at_once, piece_by_piece):
                open_books(database, history.currency)
            tell(at_once, history.facts, now_ms=CLOSING)
            rated(at_once, CLOSING)
            close(at_once)
            rated(at_once, LATE)
            assert correct(at_once) == 0

            play(piece_by_piece, history.before, now_ms=CLOSING)
            rated(piece_by_piece, CLOSING)
            rated(piece_by_piece, CLOSING)
            close(piece_by_piece)
            play(piece_by_piece, history.after, now_ms=LATE)
            rated(piece_by_piece, LATE)
            correct(piece_by_piece)
            assert correct(piece_by_piece) == 0

            assert hours(piece_by_piece) == hours(at_once)
            assert owed(piece_by_piece) == owed(at_once)
            require_identities(piece_by_piece, history.currency)

    check()
