"""`verify` computes a card once for all who closed its month, and finds the same in one process and many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from accounting.ledger.calendar import parse_month
from accounting.periods import compute, verify_tasks
from accounting.periods.verify import verify_month
from accounting.periods.workers import Worker, WorkerEndedError
from contract.facts import AllocationFact, Fact, PresenceFact
from contract.ids import DeviceKey, DeviceUuid

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from tests.accounting.periods.conftest import Ledger

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]

HOUR = 3_600_000
OCTOBER = parse_month("2026-10")


@pytest.fixture
def october(ledger: Ledger, at: At, allocation: Allocation, presence: Presence) -> Ledger:
    """Forty cards of an open October, each held for an hour by a tenant."""
    now = at("12:00")
    ledger.price("3.00")
    facts: list[Fact] = []
    for number in range(40):
        device = DeviceUuid(f"GPU-{number:02}")
        held = allocation(
            pod_uid=f"pod-{number}", device_uuid=device, core_percent=50, bound_at_ms=at("11:00"),
            confirmed_at_ms=now,
        )  # fmt: skip
        facts += [presence(at("11:00"), now, device_uuid=device), held]
    ledger.send(facts, now_ms=now)
    ledger.rate(now)
    return ledger


def closed(ledger: Ledger, at: At) -> None:
    now = at("00:00", 31) + 5 * 24 * HOUR
    ledger.rate(now)
    for account in ("acme", "platform"):
        ledger.close(account, now_ms=now, override="a test")


def test_each_card_is_computed_once_whatever_number_of_accounts_closed_its_month(
    october: Ledger, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed(october, at)
    computed: Counter[DeviceKey] = Counter()
    compute_cards: Any = compute.compute_cards

    def counted(session: Any, cards: Sequence[DeviceKey], *rest: Any, **how: Any) -> Iterator[Any]:
        computed.update(cards)
        yield from compute_cards(session, cards, *rest, **how)

    monkeypatch.setattr(verify_tasks, "compute_cards", counted)
    verified = october.verify()
    assert verified.holds
    assert len(computed) == 40
    assert set(computed.values()) == {1}
    # The hours, which are compared with what holds now, are another computation once a price came since.
    october.price("4.00", from_ms=at("00:00", 31) + 30 * 24 * HOUR, model="NVIDIA L4")
    computed.clear()
    assert october.verify().holds
    assert set(computed.values()) == {2}


@pytest.mark.postgresql
def test_several_processes_find_what_one_finds_in_the_same_order(october: Ledger, at: At) -> None:
    forged = (
        "UPDATE ledger_line SET own_quantity = own_quantity + 1 WHERE device_uuid IN ('GPU-03', 'GPU-31')"
    )
    with october.database.writing() as session:
        session.execute(text(forged))
    told: list[tuple[int, int]] = []
    alone = verify_month(october.database, OCTOBER, jobs=1)
    together = verify_month(
        october.database, OCTOBER, jobs=3, progress=lambda _what, done, total: told.append((done, total))
    )
    assert together == alone
    assert len(alone.findings) == 4
    if october.database.is_postgresql:
        assert told[-1] == (40, 40)


def _ends(calls: Connection) -> None:
    calls.recv()
    raise SystemExit(3)


@pytest.mark.postgresql
def test_a_process_that_ends_by_itself_is_named_and_not_waited_for() -> None:
    with Worker(_ends, name="verify") as worker:
        worker.call("anything")
        with pytest.raises(WorkerEndedError, match="a process for verify ended with 3"):
            worker.answer()
