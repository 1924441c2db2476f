"""Energy and unallocated use on the ledger (`reference/ledger.md §3`), worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from accounting.access.viewer import COMMAND_LINE
from accounting.prices.policies import set_policy
from accounting.store.models import DeviceEnergy, LedgerLine
from contract.facts import (
    AllocationFact,
    DeviceUsageFact,
    Fact,
    PresenceFact,
    SliceUsageFact,
    UnallocatedUseFact,
)
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid, TenantKey

if TYPE_CHECKING:
    from tests.accounting.periods.conftest import Ledger

HOUR = 3_600_000
CARD_HOUR = 3_600_000_000_000
KWH = 3_600_000_000
"""In mJ."""

At = Callable[..., int]
Allocation = Callable[..., AllocationFact]
Presence = Callable[..., PresenceFact]
Usage = Callable[..., SliceUsageFact]


def board(hour_ms: int, **fields: Any) -> DeviceUsageFact:
    known: dict[str, Any] = {
        "cluster": ClusterCode("c"),
        "device_uuid": DeviceUuid("GPU-1"),
        "node_uid": NodeUid("node-uid-1"),
        "hour_ms": hour_ms,
        "epoch": EpochId("e1"),
        "revision": 1,
        "from_ms": hour_ms,
        "to_ms": hour_ms + HOUR,
        "covered_ms": HOUR,
        "busy_ppm_ms": 0,
        "energy_mj": 0,
        "energy_idle_mj": 0,
        "energy_unattributed_mj": 0,
        "sm_unattributed_ppm_ms": 0,
    }
    return DeviceUsageFact(**(known | fields))


def bypassing(hour_ms: int, **fields: Any) -> UnallocatedUseFact:
    known: dict[str, Any] = {
        "cluster": ClusterCode("c"),
        "pod_uid": PodUid("bypass"),
        "container": "main",
        "device_uuid": DeviceUuid("GPU-1"),
        "node_uid": NodeUid("node-uid-1"),
        "hour_ms": hour_ms,
        "epoch": EpochId("e1"),
        "revision": 1,
        "from_ms": hour_ms,
        "to_ms": hour_ms + HOUR,
        "covered_ms": HOUR,
        "unknown_ms": 0,
        "sm_ppm_ms": 0,
        "sm_down_ppm_ms": 0,
        "mem_used_mib_ms": 0,
        "mem_peak_mib": 0,
        "energy_active_mj": 0,
        "blocked_ms": 0,
        "over_limit_ms": 0,
        "source": "nvml",
        "namespace": "other",
        "pod": "sneaky",
        "tenant_key": TenantKey("y"),
    }
    return UnallocatedUseFact(**(known | fields))


def an_hour(at: At, allocation: Allocation, presence: Presence, slice_usage: Usage) -> Sequence[Fact]:
    """A card of 16,000 MiB from 10:00 to 11:00; tenant x holds a quarter; 1 kWh in all.

    0.30 active of x, 0.10 unallocated of y, 0.05 unattributed, 0.55 idle.
    """
    ten, eleven = at("10:00"), at("11:00")
    return [
        presence(ten, eleven, registered_mib=16_000),
        allocation(
            pod_uid="x", mem_mib=4_000, core_percent=0, tenant_key="x", bound_at_ms=ten,
            ended_at_ms=eleven, end_kind="observed", confirmed_at_ms=eleven,
        ),
        slice_usage(
            pod_uid="x", hour_ms=ten, from_ms=ten, to_ms=eleven, covered_ms=HOUR,
            energy_active_mj=KWH * 30 // 100,
        ),
        bypassing(ten, energy_active_mj=KWH // 10, sm_ppm_ms=CARD_HOUR // 4, mem_used_mib_ms=8_000 * HOUR),
        board(ten, energy_mj=KWH, energy_idle_mj=KWH * 55 // 100, energy_unattributed_mj=KWH * 5 // 100),
    ]  # fmt: skip


def policy(ledger: Ledger, kind: str, value: str, from_ms: int = 0, reason: str | None = None) -> int:
    with ledger.database.writing() as session:
        return set_policy(
            session, kind=kind, value=value, valid_from_ms=from_ms, by=COMMAND_LINE, now_ms=1, reason=reason
        ).id


def energy(ledger: Ledger) -> dict[str, list[tuple[int, Decimal | None]]]:
    found: dict[str, list[tuple[int, Decimal | None]]] = {}
    for path, line in sorted(ledger.lines(), key=lambda pair: pair[1].charge_from_ms):
        if line.sku == "gpu-energy":
            found.setdefault(path, []).append((line.quantity, line.amount))
    return found


def of_kind(ledger: Ledger, sku: str) -> list[tuple[str, LedgerLine]]:
    return [(path, line) for path, line in ledger.lines() if line.sku == sku]


def test_energy_lines_of_a_card_add_up_to_its_counter(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    ledger.price("2.00", model="")
    ledger.price("0.40", model="", sku="gpu-energy")
    ledger.send(an_hour(at, allocation, presence, slice_usage), now_ms=at("12:00"))
    ledger.rate(at("12:00"))
    # x: 0.30 + 0.25 × 0.55 = 0.4375 kWh at 0.40. Idle: 0.75 × 0.55. Shared: 0.10 listed + 0.05 unattributed.
    assert energy(ledger) == {
        "acme/x": [(KWH * 4_375 // 10_000, Decimal("0.175"))],
        "platform/idle": [(KWH * 4_125 // 10_000, Decimal("0.165"))],
        "platform/shared": [(KWH * 15 // 100, Decimal("0.06"))],
    }
    assert ledger.verify().findings == []
    with ledger.database.reading() as session:
        (hour,) = session.scalars(select(DeviceEnergy)).all()
        session.expunge_all()
    assert (hour.energy_mj, hour.active_mj, hour.unallocated_mj) == (KWH, KWH * 3 // 10, KWH // 10)
    assert (hour.unattributed_mj, hour.idle_mj, hour.residual_mj) == (KWH // 20, KWH * 55 // 100, 0)
    assert hour.idle_held_mj == KWH * 1_375 // 10_000


def test_energy_that_nobody_prices_is_on_no_line(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    ledger.price("2.00", model="")
    ledger.send(an_hour(at, allocation, presence, slice_usage), now_ms=at("12:00"))
    ledger.rate(at("12:00"))
    assert energy(ledger) == {}
    use = ledger.statement("x").use
    assert use is not None
    assert use.energy_active_mj == KWH * 3 // 10


def test_energy_of_a_model_without_an_energy_price_is_unrated(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    ledger.price("2.00", model="")
    ledger.price("0.40", model="NVIDIA L4", sku="gpu-energy")
    ledger.send(an_hour(at, allocation, presence, slice_usage), now_ms=at("12:00"))
    ledger.rate(at("12:00"))
    assert energy(ledger)["acme/x"] == [(KWH * 4_375 // 10_000, None)]
    assert ledger.statement("x").unrated_models == ["Tesla T4"]
    # An explicit 0 is a price.
    ledger.price("0", sku="gpu-energy")
    ledger.rate(at("12:00"))
    assert energy(ledger)["acme/x"] == [(KWH * 4_375 // 10_000, Decimal(0))]
    assert ledger.statement("x").unrated_models == []


def test_a_new_energy_policy_version_moves_the_idle_part_without_a_new_fact(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    ledger.price("2.00", model="")
    ledger.price("0.40", model="", sku="gpu-energy")
    ledger.send(an_hour(at, allocation, presence, slice_usage), now_ms=at("12:00"))
    ledger.rate(at("12:00"))
    none = policy(ledger, "energy", "none", at("10:30"))
    ledger.rate(at("12:00"))
    # Until 10:30 x bears 0.15 active and 0.25 × 0.275 idle, then its active part alone.
    assert [quantity for quantity, _ in energy(ledger)["acme/x"]] == [
        KWH * 21_875 // 100_000,
        KWH * 15 // 100,
    ]
    # Free capacity's part: 0.75 × 0.275, then all of 0.275.
    assert [quantity for quantity, _ in energy(ledger)["platform/idle"]] == [
        KWH * 20_625 // 100_000,
        KWH * 275 // 1_000,
    ]
    lines = sorted((line.charge_from_ms, line.policy_version_id) for _, line in of_kind(ledger, "gpu-energy"))
    assert lines == [(at("10:00"), None)] * 3 + [(at("10:30"), none)] * 3
    assert ledger.verify().findings == []


def test_unallocated_use_costs_nothing_unless_a_policy_prices_it(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    ledger.price("2.00", model="")
    ledger.price("0.40", model="", sku="gpu-energy")
    ledger.send(an_hour(at, allocation, presence, slice_usage), now_ms=at("12:00"))
    ledger.rate(at("12:00"))
    assert [path for path, _ in ledger.lines() if path == "acme/y"] == []
    listed = ledger.statement("y")
    assert (listed.lines, listed.total, [one.pod for one in listed.unallocated]) == (
        [],
        Decimal(0),
        ["sneaky"],
    )
    priced = policy(ledger, "unallocated", "price")
    ledger.rate(at("12:00"))
    # Half the card's memory for an hour outweighs a quarter of its SM time: 0.5 × 2.00.
    ((path, line),) = of_kind(ledger, "gpu-unallocated")
    assert (path, line.kind, line.namespace, line.pod) == ("acme/y", "unallocated", "other", "sneaky")
    assert (line.quantity, line.amount, line.policy_version_id) == (CARD_HOUR // 2, Decimal("1.00"), priced)
    # Its energy leaves the platform: 0.10 kWh at 0.40.
    assert energy(ledger)["acme/y"] == [(KWH // 10, Decimal("0.04"))]
    assert energy(ledger)["platform/shared"] == [(KWH // 20, Decimal("0.02"))]
    # It takes no share: the card closes as before.
    (hour,) = ledger.hours()
    assert (hour.charged_ppm_ms, hour.idle_ppm_ms) == (CARD_HOUR // 4, CARD_HOUR * 3 // 4)
    statement = ledger.statement("y")
    assert (statement.total, statement.sums.unallocated_ppm_ms) == (Decimal("1.04"), CARD_HOUR // 2)
    assert [one.pod for one in statement.unallocated] == ["sneaky"]
    assert ledger.verify().findings == []


def test_energy_of_an_hour_that_straddles_local_midnight_is_divided_there(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    # Kathmandu's day begins at 18:15 UTC.
    ledger.account("ktm", zone="Asia/Kathmandu")
    ledger.account("ktm-platform", "platform", zone="Asia/Kathmandu")
    ledger.cluster("k", "ktm", "ktm-platform")
    ledger.price("0.40", model="", sku="gpu-energy")
    six = at("18:00")
    ledger.send(
        [
            presence(six, six + HOUR, registered_mib=16_000, cluster="k"),
            allocation(
                cluster="k", mem_mib=16_000, core_percent=0, bound_at_ms=six,
                ended_at_ms=six + HOUR, end_kind="observed", confirmed_at_ms=six + HOUR,
            ),
            slice_usage(
                cluster="k", hour_ms=six, from_ms=six, to_ms=six + HOUR, covered_ms=HOUR,
                energy_active_mj=KWH,
            ),
            board(six, cluster="k", energy_mj=2 * KWH, energy_idle_mj=KWH),
        ],
        now_ms=at("20:00"),
    )  # fmt: skip
    ledger.rate(at("20:00"))
    assert energy(ledger) == {
        "ktm/team": [(KWH // 2, Decimal("0.2")), (KWH * 3 // 2, Decimal("0.6"))],
    }
    assert ledger.verify().findings == []


def test_energy_that_slices_report_beyond_the_boards_is_shown_and_billed_to_nobody_else(
    ledger: Ledger, at: At, allocation: Allocation, presence: Presence, slice_usage: Usage
) -> None:
    facts = [fact for fact in an_hour(at, allocation, presence, slice_usage) if fact.cluster == "c"]
    (reported,) = [fact for fact in facts if isinstance(fact, DeviceUsageFact)]
    facts.remove(reported)
    ledger.price("0.40", model="", sku="gpu-energy")
    ledger.send([*facts, board(at("10:00"), energy_mj=KWH // 4)], now_ms=at("12:00"))
    ledger.rate(at("12:00"))
    with ledger.database.reading() as session:
        (hour,) = session.scalars(select(DeviceEnergy)).all()
        session.expunge_all()
    # 0.25 on the board, 0.30 + 0.10 reported.
    assert hour.residual_mj == -KWH * 15 // 100
    assert energy(ledger)["acme/x"] == [(KWH * 3 // 10, Decimal("0.12"))]


def test_energy_of_a_card_that_nobody_ever_saw_reaches_a_closed_month_by_correction(
    ledger: Ledger, at: At, presence: Presence
) -> None:
    ledger.price("0", model="")
    ledger.price("0.40", model="", sku="gpu-energy")
    ten, november = at("10:00", 5), at("23:00", 31) + 4 * 24 * HOUR
    ledger.send([presence(ten, ten + HOUR)], now_ms=november)
    ledger.rate(november)
    ledger.close("platform", now_ms=november)
    # Of this one there is no presence and no slice: what its counter says is all.
    ledger.send([board(ten, device_uuid="GPU-2", energy_mj=KWH, energy_idle_mj=KWH)], now_ms=november)
    (late,) = ledger.verify().late
    assert late.startswith("energy of platform/idle on c/node-uid-1/GPU-2")
    corrected = ledger.correct("platform", now_ms=november)
    assert [(one.tenant, one.kind, one.quantity, one.amount) for one in corrected.deltas] == [
        ("platform/idle", "energy", KWH, Decimal("0.40"))
    ]
    assert ledger.correct("platform", now_ms=november).deltas == []
    assert (ledger.verify().findings, ledger.verify().late) == ([], [])


def test_an_energy_price_reaches_cards_that_nobody_ever_saw_as_if_it_had_been_set_before(
    ledger: Ledger, at: At
) -> None:
    ten = at("10:00")
    ledger.send([board(ten, energy_mj=KWH, energy_idle_mj=KWH)], now_ms=at("12:00"))
    ledger.rate(at("12:00"))
    assert energy(ledger) == {}
    ledger.price("0.40", model="", sku="gpu-energy")
    ledger.rate(at("12:00"))
    assert energy(ledger) == {"platform/idle": [(KWH, Decimal("0.40"))]}
    assert ledger.verify().findings == []


def test_a_card_that_is_seen_later_gives_its_model_to_energy_that_was_reported_before(
    ledger: Ledger, at: At, presence: Presence
) -> None:
    ledger.price("0", model="")
    ledger.price("0.40", model="Tesla T4", sku="gpu-energy")
    ten, noon = at("10:00", 2), at("12:00", 9)
    ledger.send([board(ten, energy_mj=KWH, energy_idle_mj=KWH)], now_ms=noon)
    ledger.rate(noon)
    ledger.send([presence(noon - HOUR, noon)], now_ms=noon)
    ledger.rate(noon)
    assert energy(ledger) == {"platform/idle": [(KWH, Decimal("0.40"))]}
    assert ledger.verify().findings == []


def test_energy_of_a_slice_that_was_held_on_other_days_is_rated_alike_day_by_day_and_as_a_month(
    ledger: Ledger, at: At, presence: Presence, allocation: Allocation, slice_usage: Usage
) -> None:
    ledger.price("0", model="")
    ledger.price("0.40", model="", sku="gpu-energy")
    ten, noon = at("10:00", 2), at("12:00", 9)
    used = slice_usage(
        pod_uid="x", hour_ms=ten, from_ms=ten, to_ms=ten + HOUR, covered_ms=HOUR, energy_active_mj=KWH
    )
    ledger.send([presence(ten, noon), used], now_ms=noon)
    ledger.rate(noon)
    held = allocation(
        pod_uid="x", mem_mib=4_000, core_percent=0, tenant_key="x", bound_at_ms=noon - 2 * HOUR,
        ended_at_ms=noon, end_kind="observed", confirmed_at_ms=noon,
    )  # fmt: skip
    ledger.send([held], now_ms=noon)
    ledger.rate(noon)
    # A week before it was bound the slice was nobody's.
    assert energy(ledger) == {"unassigned": [(KWH, Decimal("0.40"))]}
    assert ledger.verify().findings == []


def test_energy_of_a_card_that_nobody_ever_saw_has_the_model_of_slices_held_then_not_on_other_days(
    ledger: Ledger, at: At, allocation: Allocation
) -> None:
    ledger.price("0", model="")
    ledger.price("0.40", model="Tesla T4", sku="gpu-energy")
    ten, noon = at("10:00", 2), at("12:00", 9)
    held = allocation(
        pod_uid="x", mem_mib=4_000, core_percent=0, tenant_key="x", bound_at_ms=noon - 2 * HOUR,
        ended_at_ms=noon, end_kind="observed", confirmed_at_ms=noon,
    )  # fmt: skip
    boards = [board(at_ms, energy_mj=KWH, energy_idle_mj=KWH) for at_ms in (ten, noon - HOUR)]
    ledger.send([held, *boards], now_ms=noon)
    ledger.rate(noon)
    assert energy(ledger) == {"platform/idle": [(KWH, None), (KWH, Decimal("0.40"))]}
    assert ledger.verify().findings == []
