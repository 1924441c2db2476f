"""Facts to lines (`reference/ledger.md §2, §5, §7`); each expected value is worked out beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import update

import accounting.periods.rate as rating
from accounting.periods.batch import BatchRated, Stop, rate_batch
from accounting.store.database import Database
from accounting.store.models import BillingPeriod
from contract.facts import AllocationFact, NodeStateFact, PresenceFact, SliceUsageFact
from contract.ids import DeviceKey

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

HOUR = 3_600_000
CARD_HOUR = 3_600_000_000_000
CARD_MINUTE = CARD_HOUR // 60

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]
State = Callable[..., NodeStateFact]
Usage = Callable[..., SliceUsageFact]


def ended(at_ms: int) -> dict[str, object]:
    return {"ended_at_ms": at_ms, "end_kind": "observed", "confirmed_at_ms": at_ms}


def totals(ledger: Ledger, kind: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for path, line in ledger.lines():
        if line.kind == kind:
            found[path] = found.get(path, 0) + line.quantity
    return found


def test_lines_of_a_shared_card_add_up_to_the_card(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    # The example of segments: X 0.50 from 09:00 to 09:40, Y 0.75 from 09:30 to 10:00.
    now = at("12:00")
    ledger.price("3.00")
    ledger.send(
        [
            presence(at("09:00"), at("10:00"), registered_mib=16_000),
            allocation(
                pod_uid="x",
                mem_mib=8_000,
                core_percent=0,
                tenant_key="x",
                bound_at_ms=at("09:00"),
                **ended(at("09:40")),
            ),
            allocation(
                pod_uid="y",
                mem_mib=12_000,
                core_percent=0,
                tenant_key="y",
                bound_at_ms=at("09:30"),
                **ended(at("10:00")),
            ),
        ],
        now_ms=now,
    )
    ledger.rate(now)
    assert totals(ledger, "usage") == {"acme/x": 19 * CARD_MINUTE, "acme/y": 21 * CARD_MINUTE}
    assert totals(ledger, "idle") == {"platform/idle": 20 * CARD_MINUTE}
    by_path = dict(ledger.lines())
    assert by_path["acme/y"].own_quantity == 22 * CARD_MINUTE + CARD_MINUTE // 2
    # 19, 21 and 20 minutes at 3.00 an hour.
    amounts = {path: line.amount for path, line in by_path.items()}
    assert amounts == {
        "acme/x": Decimal("0.95"),
        "acme/y": Decimal("1.05"),
        "platform/idle": Decimal("1.00"),
    }
    (hour,) = ledger.hours()
    assert hour.charged_ppm_ms + hour.idle_ppm_ms + hour.down_ppm_ms == hour.present_ppm_ms == CARD_HOUR


def test_october_in_berlin_has_745_hours_and_one_line_a_day(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    start, end = at("22:00", 1) - 24 * HOUR, at("23:00", 31)
    now = end + HOUR
    ledger.price("0.40")
    ledger.send(
        [
            presence(start, end, registered_mib=16_000),
            allocation(mem_mib=4_000, core_percent=0, bound_at_ms=start, started_at_ms=start, **ended(end)),
        ],
        now_ms=now,
    )
    ledger.rate(now)
    usage = [line for _, line in ledger.lines() if line.kind == "usage"]
    assert len(usage) == 31
    assert sum(line.quantity for line in usage) == 745 * CARD_HOUR // 4
    assert [line.charge_to_ms - line.charge_from_ms for line in usage].count(25 * HOUR) == 1
    # 745 h × 0.25 × 0.40 = 74.50
    assert sum(line.amount for line in usage if line.amount is not None) == Decimal("74.50")
    assert ledger.statement("team").total == Decimal("74.50")


def test_change_of_price_splits_the_days_line_at_its_instant(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    # Half a card from 11:00 to 14:00; 2.40 until 12:00, then 3.00: 1.20 + 3.00 = 4.20.
    now = at("15:00")
    ledger.price("2.40")
    ledger.price("3.00", from_ms=at("12:00"))
    ledger.send(
        [
            presence(at("11:00"), at("14:00"), registered_mib=16_000),
            allocation(mem_mib=8_000, core_percent=0, bound_at_ms=at("11:00"), **ended(at("14:00"))),
        ],
        now_ms=now,
    )
    ledger.rate(now)
    usage = [(line.charge_from_ms, line.amount) for _, line in ledger.lines() if line.kind == "usage"]
    assert usage == [(at("11:00"), Decimal("1.20")), (at("12:00"), Decimal("3.00"))]


def test_rating_again_changes_nothing(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    now = at("12:00")
    ledger.price("3.00")
    ledger.send(
        [presence(at("09:00"), now), allocation(bound_at_ms=at("09:00"), confirmed_at_ms=now)], now_ms=now
    )
    first = ledger.rate(now)
    before = [(path, line.quantity, line.amount, line.charge_to_ms) for path, line in ledger.lines()]
    ledger.rate(now)
    assert [(path, line.quantity, line.amount, line.charge_to_ms) for path, line in ledger.lines()] == before
    assert first.lines == 2


def test_crash_between_two_cards_ends_in_the_same_ledger(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = at("12:00")
    for card in ("GPU-1", "GPU-2"):
        held = allocation(device_uuid=card, bound_at_ms=at("09:00"), confirmed_at_ms=now)
        ledger.send([presence(at("09:00"), now, device_uuid=card), held], now_ms=now)

    def crash_on_the_second(database: Database, keys: Sequence[DeviceKey], *, stop: Stop) -> BatchRated:
        if keys[0].device_uuid == "GPU-2":
            raise KeyboardInterrupt
        return rate_batch(database, keys, stop=stop)

    monkeypatch.setattr(rating, "_DAYS_PER_BATCH", 1)
    monkeypatch.setattr(rating, "rate_batch", crash_on_the_second)
    with pytest.raises(KeyboardInterrupt):
        ledger.rate(now)
    assert {line.device_uuid for _, line in ledger.lines()} == {"GPU-1"}
    assert ledger.verify().pending
    monkeypatch.undo()
    ledger.rate(now)
    # 4,000 of 15,360 MiB is less than 30 % of the cores: 0.30 of each card for 3 h.
    assert totals(ledger, "usage") == {"acme/team": 2 * 3 * CARD_HOUR * 3 // 10}
    assert ledger.verify().holds
    assert not ledger.verify().pending


@pytest.mark.parametrize("database_kind", ["sqlite"])  # on PostgreSQL the second waits for its turn
def test_two_ratings_at_once_are_as_the_one_that_began_last(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = at("11:50")
    held = allocation(bound_at_ms=at("09:00"), confirmed_at_ms=seen)
    ledger.send([presence(at("09:00"), seen), held], now_ms=seen)
    begin = rating._begin

    def begin_and_be_overtaken(*arguments: object) -> object:
        due = begin(*arguments)  # type: ignore[arg-type]
        monkeypatch.undo()
        ledger.rate(at("12:00"))
        return due

    monkeypatch.setattr(rating, "_begin", begin_and_be_overtaken)
    ledger.rate(at("11:55"))
    # The hold reaches to now, within the grace: 0.30 of the card for 3 h, and later for 3 h 4 min.
    assert totals(ledger, "usage") == {"acme/team": 3 * CARD_HOUR * 3 // 10}
    assert ledger.verify().holds
    ledger.rate(at("12:04"))
    assert totals(ledger, "usage") == {"acme/team": (3 * CARD_HOUR + 4 * CARD_MINUTE) * 3 // 10}


def test_open_hold_grows_with_time_and_ends_with_the_grace_until_confirmed_again(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    seen = allocation(core_percent=50, bound_at_ms=at("09:00"), confirmed_at_ms=at("10:00"))
    ledger.send([presence(at("09:00"), at("10:00")), seen], now_ms=at("10:00"))
    ledger.rate(at("10:00"))
    assert totals(ledger, "usage") == {"acme/team": CARD_HOUR // 2}
    ledger.rate(at("10:10"))
    assert totals(ledger, "usage") == {"acme/team": 35 * CARD_MINUTE}
    ledger.rate(at("13:00"))
    # The grace ends at 10:15: 75 minutes of half a card.
    assert totals(ledger, "usage") == {"acme/team": 75 * CARD_MINUTE // 2}
    back = allocation(core_percent=50, bound_at_ms=at("09:00"), confirmed_at_ms=at("13:00"))
    ledger.send([back, presence(at("09:00"), at("13:00"))], now_ms=at("13:00"))
    ledger.rate(at("13:00"))
    assert totals(ledger, "usage") == {"acme/team": 4 * CARD_HOUR // 2}
    assert ledger.verify().holds


def test_slice_on_a_device_that_nobody_reported_waits_for_its_size(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    now = at("12:00", 3)
    ledger.send([allocation(core_percent=50, bound_at_ms=at("12:00", 1), confirmed_at_ms=now)], now_ms=now)
    rated = ledger.rate(now)
    assert [key.device_uuid for key in rated.unknown_devices] == ["GPU-1"]
    assert ledger.lines() == []
    # It is reported two days after the pod was bound: the time back to the bind is charged too.
    ledger.send([presence(at("11:00", 3), now)], now_ms=now)
    assert ledger.rate(now).unknown_devices == ()
    assert totals(ledger, "usage") == {"acme/team": 48 * CARD_HOUR // 2}
    assert ledger.verify().holds


def test_model_without_a_price_is_unrated_and_zero_is_a_price(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    now = at("12:00")
    ledger.price("0", model="NVIDIA L4")
    ledger.send(
        [
            presence(at("09:00"), now),
            allocation(bound_at_ms=at("09:00"), confirmed_at_ms=now),
            presence(at("09:00"), now, device_uuid="GPU-2", model="NVIDIA L4"),
            allocation(device_uuid="GPU-2", model="NVIDIA L4", bound_at_ms=at("09:00"), confirmed_at_ms=now),
        ],
        now_ms=now,
    )
    ledger.rate(now)
    amounts = {(line.kind, line.model): line.amount for _, line in ledger.lines()}
    assert amounts == {
        ("usage", "Tesla T4"): None,
        ("idle", "Tesla T4"): None,
        ("usage", "NVIDIA L4"): Decimal(0),
        ("idle", "NVIDIA L4"): Decimal(0),
    }
    statement = ledger.statement("team")
    assert list(statement.unrated_models) == ["Tesla T4"]
    assert statement.total == Decimal("0.00")
    assert ledger.verify().unrated_models == ["Tesla T4"]


def test_register_and_nvml_name_one_model_with_one_price(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    now = at("11:00")
    ledger.price("0.40", model="NVIDIA-Tesla T4")
    ledger.send(
        [
            presence(at("09:00"), at("10:00"), model="NVIDIA-Tesla T4"),
            presence(at("10:00"), now, witness="node", model="Tesla T4"),
            allocation(core_percent=100, model="NVIDIA-Tesla T4", bound_at_ms=at("09:00"), **ended(now)),
        ],
        now_ms=now,
    )
    ledger.rate(now)
    assert [(line.model, line.amount) for _, line in ledger.lines()] == [("Tesla T4", Decimal("0.80"))]


def test_showback_account_is_stated_in_card_hours(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ledger.account("lab", currency=None)
    ledger.cluster("e", account="lab")
    now = at("12:00")
    ledger.price("1.00")
    ledger.send(
        [
            presence(at("09:00"), now, cluster="e"),
            allocation(cluster="e", core_percent=100, bound_at_ms=at("09:00"), confirmed_at_ms=now),
        ],
        now_ms=now,
    )
    ledger.rate(now)
    statement = ledger.statement("lab/team")
    assert (statement.currency, statement.total, statement.unrated_models) == (None, None, [])
    assert statement.sums.charged_ppm_ms == 3 * CARD_HOUR


def test_equal_names_in_two_clusters_and_equal_keys_in_two_accounts_never_meet(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    ledger.account("other")
    ledger.cluster("e", account="other")
    now = at("12:00")
    for cluster in ("c", "d", "e"):
        held = allocation(cluster=cluster, core_percent=50, bound_at_ms=at("09:00"), confirmed_at_ms=now)
        ledger.send([presence(at("09:00"), now, cluster=cluster), held], now_ms=now)
    ledger.rate(now)
    assert totals(ledger, "usage") == {"acme/team": 2 * 3 * CARD_HOUR // 2, "other/team": 3 * CARD_HOUR // 2}


def test_slice_without_a_tenant_key_is_unassigned(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    now = at("12:00")
    held = allocation(tenant_key="", core_percent=50, bound_at_ms=at("09:00"), confirmed_at_ms=now)
    ledger.send([presence(at("09:00"), now), held], now_ms=now)
    ledger.rate(now)
    assert totals(ledger, "usage") == {"unassigned": 3 * CARD_HOUR // 2}


def test_lines_of_a_closed_period_stay_as_they_are(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    now = at("12:00")
    ledger.send(
        [presence(at("09:00"), now), allocation(core_percent=50, bound_at_ms=at("09:00"), **ended(now))],
        now_ms=now,
    )
    ledger.rate(now)
    with ledger.database.writing() as session:
        closed = {"state": "closed", "ingest_watermark": 1, "sha256": "0" * 64}
        session.execute(update(BillingPeriod).where(BillingPeriod.account == "acme").values(closed))
    ledger.send(
        [allocation(pod_uid="late", core_percent=50, bound_at_ms=at("09:00"), **ended(now))], now_ms=now
    )
    ledger.rate(now)
    assert totals(ledger, "usage") == {"acme/team": 3 * CARD_HOUR // 2}
    assert totals(ledger, "idle") == {}


def test_hours_that_a_local_midnight_divides_are_billed_on_both_days(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    # In Kathmandu a day begins at 18:15 UTC.
    ledger.account("nepal", zone="Asia/Kathmandu")
    ledger.account("platform-nepal", "platform", zone="Asia/Kathmandu")
    ledger.cluster("e", account="nepal", platform="platform-nepal")
    start, end = at("18:00"), at("19:00")
    ledger.send(
        [
            presence(start, end, cluster="e"),
            allocation(cluster="e", core_percent=50, bound_at_ms=start, **ended(end)),
        ],
        now_ms=end,
    )
    ledger.rate(end)
    usage = [(line.charge_from_ms, line.quantity) for _, line in ledger.lines() if line.kind == "usage"]
    assert usage == [(start, 15 * CARD_MINUTE // 2), (at("18:15"), 45 * CARD_MINUTE // 2)]
    idle = [(line.day_ms, line.quantity) for _, line in ledger.lines() if line.kind == "idle"]
    assert idle == [(at("18:15") - 24 * HOUR, 15 * CARD_MINUTE // 2), (at("18:15"), 45 * CARD_MINUTE // 2)]


def test_weekend_without_a_node_costs_nobody_anything_and_late_facts_lift_their_part(
    *,
    ledger: Ledger,
    at: At,
    allocation: Allocation,
    presence: Presence,
    node_state: State,
    slice_usage: Usage,
) -> None:
    friday, saturday, monday, now = at("22:00", 2), at("03:00", 3), at("07:00", 5), at("08:00", 5)
    ledger.send(
        [
            presence(at("12:00", 2), now),
            presence(at("12:00", 2), friday, witness="node"),
            presence(monday, now, witness="node"),
            node_state(at("12:00", 2), at("22:00", 2), ready=True, heartbeat_at_ms=friday),
            node_state(at("22:01", 2), at("06:59", 5), ready=False, heartbeat_at_ms=friday),
            node_state(monday, now, ready=True, heartbeat_at_ms=now),
            allocation(core_percent=50, bound_at_ms=at("12:00", 2), confirmed_at_ms=now),
        ],
        now_ms=now,
    )
    ledger.rate(now)
    # 10 h before and 1 h after the weekend.
    assert totals(ledger, "usage") == {"acme/team": 11 * CARD_HOUR // 2}
    assert totals(ledger, "idle") == {"platform/idle": 11 * CARD_HOUR // 2}
    assert sum(hour.down_ppm_ms for hour in ledger.hours()) == 57 * CARD_HOUR
    hours = [friday + n * HOUR for n in range((saturday - friday) // HOUR)]
    ledger.send(
        [
            slice_usage(hour_ms=hour, from_ms=hour, to_ms=hour + HOUR, covered_ms=HOUR, sm_ppm_ms=5)
            for hour in hours
        ],
        now_ms=now,
    )
    ledger.rate(now)
    assert totals(ledger, "usage") == {"acme/team": 16 * CARD_HOUR // 2}
    assert sum(hour.down_ppm_ms for hour in ledger.hours()) == 52 * CARD_HOUR
    assert ledger.verify().holds


def test_slice_that_worked_on_a_device_that_was_down_is_charged_and_flagged(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    now = at("10:00")
    ledger.send(
        [
            presence(at("09:00"), at("09:30"), witness="node"),
            presence(at("09:30"), at("09:45"), witness="node", state="down", reason="xid_79"),
            presence(at("09:45"), now, witness="node"),
            allocation(core_percent=25, mem_mib=0, bound_at_ms=at("09:00"), **ended(now)),
            slice_usage(
                hour_ms=at("09:00"),
                from_ms=at("09:00"),
                to_ms=now,
                covered_ms=HOUR,
                sm_ppm_ms=9,
                sm_down_ppm_ms=3,
            ),
        ],
        now_ms=now,
    )
    ledger.rate(now)
    (usage,) = [line for _, line in ledger.lines() if line.kind == "usage"]
    assert usage.quantity == 15 * CARD_MINUTE
    assert usage.degraded_quantity == 15 * CARD_MINUTE // 4
    (hour,) = ledger.hours()
    assert hour.down_ppm_ms == 45 * CARD_MINUTE // 4


def test_time_before_the_first_container_ran_is_shown_apart(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence
) -> None:
    now = at("10:00")
    held = allocation(core_percent=50, bound_at_ms=at("09:00"), started_at_ms=at("09:15"), **ended(now))
    ledger.send([presence(at("09:00"), now), held], now_ms=now)
    ledger.rate(now)
    (usage,) = [line for _, line in ledger.lines() if line.kind == "usage"]
    assert (usage.quantity, usage.held_not_running_quantity) == (CARD_HOUR // 2, 15 * CARD_MINUTE // 2)


def test_a_day_between_what_two_witnesses_saw_of_a_slice_stays_held_when_it_alone_is_rated_again(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    begins, again, now = at("10:00", 2), at("10:00", 7), at("12:00", 9)
    ledger.send(
        [
            presence(begins, now),
            allocation(
                witness="node", core_percent=25, mem_mib=0, bound_at_ms=begins, confirmed_at_ms=begins + HOUR
            ),
            allocation(witness="cluster", core_percent=25, mem_mib=0, bound_at_ms=again, **ended(now)),
        ],
        now_ms=now,
    )
    ledger.rate(now)
    # 7 days and 2 hours of a quarter.
    assert totals(ledger, "usage") == {"acme/team": 170 * CARD_HOUR // 4}
    between = at("12:00", 4)
    ledger.send([slice_usage(hour_ms=between, from_ms=between, to_ms=between + HOUR)], now_ms=now)
    ledger.rate(now)
    assert totals(ledger, "usage") == {"acme/team": 170 * CARD_HOUR // 4}
    assert ledger.verify().holds
