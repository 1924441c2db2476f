"""A project that goes from team to team in the middle of a month, on both databases.

On a T4 at 3.00 EUR a card-hour `alpha` holds half of a card and `beta` a quarter, from 10 to 18 October,
Berlin time: 8 days of 24 hours. So alpha owes 96 card-hours = 288.00, beta 48 = 144.00, idle is 48.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from sqlalchemy import select
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session

from accounting.access.viewer import COMMAND_LINE, Viewer
from accounting.errors import ConflictError, InvalidError, NotFoundError
from accounting.periods.whatif import BillKey, Foretold, foretell_tenancy
from accounting.prices.versioning import Recording, Validity
from accounting.store.models import LedgerLine, Tenant, TenantRule
from accounting.tenants.moves import move_tenant, rename_tenant, withdraw_move
from accounting.tenants.rules import Asked, add_rule, end_rule, list_rules, withdraw_rule
from accounting.tenants.touched import ChangedHands
from accounting.tenants.tree import Kind, add_tenant
from contract.facts import AllocationFact, PresenceFact
from contract.ids import DeviceUuid, PodUid, TenantKey
from tests.accounting.periods.conftest import Ledger

CARD_HOUR = 3_600_000 * 1_000_000
DAY_MS = 86_400_000


def recording(reason: str | None = None) -> Recording:
    return Recording(COMMAND_LINE, 0, reason)


def add(ledger: Ledger, *tenants: tuple[str, Kind]) -> None:
    with ledger.database.writing() as session:
        for path, kind in tenants:
            add_tenant(session, path, kind=kind, by=COMMAND_LINE, now_ms=0)


def rule(
    tenant: str, priority: int = 10, *, start: int = 0, end: int | None = None, **asked: str
) -> Callable[[Session], ChangedHands]:
    wanted = replace(Asked(priority, tenant), **asked)  # type: ignore[arg-type]
    return lambda session: add_rule(session, wanted, Validity(start, end), recording())[1]


def move(tenant: str, below: str, start: int) -> Callable[[Session], ChangedHands]:
    return lambda session: move_tenant(session, tenant, below, start, recording())[1]


def save(ledger: Ledger, change: Callable[[Session], ChangedHands]) -> ChangedHands:
    with ledger.database.writing() as session:
        return change(session)


def total(ledger: Ledger, tenant: str) -> Decimal | None:
    return ledger.statement(tenant).total


def cells(ledger: Ledger) -> dict[tuple[object, ...], tuple[object, ...]]:
    """Every line, by all that makes it one."""
    return {
        (path, line.kind, line.resource_key, line.day_ms, line.charge_from_ms): (
            line.charge_to_ms,
            line.own_quantity,
            line.quantity,
            line.amount,
        )
        for path, line in ledger.lines()
    }


@pytest.fixture
def fourteenth(at: Callable[..., int]) -> int:
    """Midnight in Berlin at which the 14th begins."""
    return at("22:00", 13)


@pytest.fixture
def teams(
    ledger: Ledger,
    at: Callable[..., int],
    allocation: Callable[..., AllocationFact],
    presence: Callable[..., PresenceFact],
) -> Ledger:
    ledger.price("3.00")
    start, end = at("22:00", 9), at("22:00", 17)
    held = [
        allocation(
            pod_uid=PodUid(name), pod=name, namespace=f"ns-{name}", tenant_key=TenantKey(name),
            core_percent=percent, mem_mib=1_000, bound_at_ms=start, started_at_ms=start,
            confirmed_at_ms=end, ended_at_ms=end, end_kind="observed",
        )
        for name, percent in (("alpha", 50), ("beta", 25))
    ]  # fmt: skip
    ledger.send([presence(start, end), *held], now_ms=end)
    add(
        ledger,
        ("acme", "organisation"),
        ("acme/vision", "team"),
        ("acme/speech", "team"),
        ("acme/vision/alpha", "project"),
        ("acme/vision/beta", "project"),
    )
    save(ledger, rule("acme/vision/alpha", 10, tenant_key="alpha"))
    save(ledger, rule("acme/vision/beta", 20, namespace="ns-bet?"))
    ledger.rate(at("22:00", 19))
    return ledger


def assert_verified(ledger: Ledger) -> None:
    verified = ledger.verify()
    assert not verified.findings
    assert verified.lines


def test_rules_put_slices_below_their_team(teams: Ledger) -> None:
    assert total(teams, "acme/vision/alpha") == Decimal("288.00")
    assert total(teams, "acme/vision/beta") == Decimal("144.00")
    assert total(teams, "acme/vision") == Decimal("432.00")
    assert total(teams, "acme/speech") == Decimal("0.00")


def test_a_project_moved_on_the_14th_is_billed_to_both_teams_and_nothing_else_changes(
    teams: Ledger, fourteenth: int, at: Callable[..., int]
) -> None:
    before = cells(teams)
    change = move("acme/vision/alpha", "acme/speech", fourteenth)
    told = foretell_tenancy(teams.database, change)
    assert cells(teams) == before, "asking changes nothing"

    save(teams, change)
    teams.rate(at("22:00", 19))

    # Four of its eight days each: 48 card-hours, 144.00.
    assert total(teams, "acme/vision/alpha") == Decimal("144.00")
    assert total(teams, "acme/speech/alpha") == Decimal("144.00")
    assert total(teams, "acme/vision") == Decimal("288.00")
    assert total(teams, "acme/speech") == Decimal("144.00")
    assert teams.statement("acme/speech").sums.charged_ppm_ms == 48 * CARD_HOUR
    after = cells(teams)
    moved = {key for key in before if key[0] == "acme/vision/alpha" and key[3] >= fourteenth}  # type: ignore[operator]
    assert len(moved) == 4
    assert {key: value for key, value in before.items() if key not in moved} == {
        key: value for key, value in after.items() if key[0] != "acme/speech/alpha"
    }
    now_below_speech = {key: value for key, value in after.items() if key[0] == "acme/speech/alpha"}
    renamed = {("acme/vision/alpha", *key[1:]): value for key, value in now_below_speech.items()}
    assert renamed == {key: before[key] for key in moved}

    # It was told so, exactly.
    assert [(one.key, one.stands.figures, one.would.figures) for one in told.changes] == [
        (
            BillKey("acme", "2026-10", "acme/speech/alpha"),
            (0, 0, Decimal(0)),
            (48 * CARD_HOUR, 0, Decimal(144)),
        ),
        (
            BillKey("acme", "2026-10", "acme/vision/alpha"),
            (96 * CARD_HOUR, 0, Decimal(288)),
            (48 * CARD_HOUR, 0, Decimal(144)),
        ),
    ]
    ((passed, how_much),) = told.passings.items()
    assert (passed.from_tenant, passed.to_tenant) == ("acme/vision/alpha", "acme/speech/alpha")
    assert how_much.after.figures == how_much.before.figures == (48 * CARD_HOUR, 0, Decimal(144))
    assert len(how_much.containers) == 1
    assert_verified(teams)


def test_a_rule_in_the_middle_of_an_hour_splits_the_slices_line_there(
    teams: Ledger, at: Callable[..., int]
) -> None:
    change = rule("acme/speech", 5, tenant_key="alpha", start=at("10:20", 12), end=at("11:05", 12))
    told = foretell_tenancy(teams.database, change)
    save(teams, change)
    teams.rate(at("22:00", 19))
    # 45 minutes of half a card: 0.375 card-hours, 1.125.
    assert teams.statement("acme/speech").amount == Decimal("1.125")
    assert teams.statement("acme/vision/alpha").amount == Decimal(288) - Decimal("1.125")
    assert [one.would.amount for one in told.changes] == [Decimal("1.125"), Decimal("286.875")]
    assert_verified(teams)


def test_lines_that_a_rule_does_not_speak_of_keep_their_rows(teams: Ledger, at: Callable[..., int]) -> None:
    before = cells(teams)
    save(teams, rule("acme/speech", 5, tenant_key="nobody-*"))
    assert teams.rate(at("22:00", 19)).days == 0
    assert cells(teams) == before


def test_a_rule_that_is_taken_back_leaves_what_was(
    teams: Ledger, fourteenth: int, at: Callable[..., int]
) -> None:
    before = cells(teams)
    with teams.database.writing() as session:
        asked = Asked(5, "acme/speech", tenant_key="alpha")
        made, _ = add_rule(session, asked, Validity(fourteenth, None), recording())
        rule_id = made.id
    teams.rate(at("22:00", 19))
    assert total(teams, "acme/speech") == Decimal("144.00")
    with teams.database.writing() as session:
        withdraw_rule(session, rule_id, recording("it was a mistake"))
    teams.rate(at("22:00", 19))
    assert cells(teams) == before
    with teams.database.reading() as session:
        of_five = [(path, row.reason) for row, path in list_rules(session) if row.priority == 5]
    assert of_five == [("acme/speech", None), (None, "it was a mistake")]


def test_a_rule_ends_where_one_says(teams: Ledger, fourteenth: int, at: Callable[..., int]) -> None:
    with teams.database.writing() as session:
        end_rule(session, 10, fourteenth, recording("the project is over"))
    teams.rate(at("22:00", 19))
    assert total(teams, "acme/vision/alpha") == Decimal("144.00")
    assert total(teams, "acme/alpha") == Decimal("144.00"), "its key's own leaf"
    with teams.database.writing() as session, pytest.raises(NotFoundError, match="rule of priority 10"):
        end_rule(session, 10, at("22:00", 15), recording())


def test_a_project_moved_and_moved_back_belongs_to_each_team_in_turn(
    teams: Ledger, fourteenth: int, at: Callable[..., int]
) -> None:
    save(teams, move("acme/vision/alpha", "acme/speech", fourteenth))
    save(teams, move("acme/speech/alpha", "acme/vision", fourteenth + 2 * DAY_MS))
    teams.rate(at("22:00", 19))
    # Two of eight days at 36.00 a day.
    assert total(teams, "acme/speech") == Decimal("72.00")
    assert total(teams, "acme/vision/alpha") == Decimal("216.00")
    assert_verified(teams)


def test_a_team_moves_with_all_its_projects_and_a_later_move_goes_on_from_there(
    teams: Ledger, fourteenth: int, at: Callable[..., int]
) -> None:
    add(teams, ("acme/labs", "organisation"))
    save(teams, move("acme/vision", "acme/labs", fourteenth))
    save(teams, move("acme/labs/vision/beta", "acme/speech", fourteenth + DAY_MS))
    teams.rate(at("22:00", 19))
    assert total(teams, "acme/vision") == Decimal("216.00")
    assert total(teams, "acme/labs/vision/alpha") == Decimal("144.00")
    # Beta: 18.00 a day, one day below labs, three below speech.
    assert total(teams, "acme/labs/vision/beta") == Decimal("18.00")
    assert total(teams, "acme/speech/beta") == Decimal("54.00")
    assert total(teams, "acme") == Decimal("432.00")


def test_a_renamed_tenant_keeps_its_name_where_it_had_it(
    teams: Ledger, fourteenth: int, at: Callable[..., int]
) -> None:
    with teams.database.writing() as session:
        rename_tenant(session, "acme/vision/alpha", "omega", fourteenth, recording())
    teams.rate(at("22:00", 19))
    assert total(teams, "acme/vision/alpha") == Decimal("144.00")
    assert total(teams, "acme/vision/omega") == Decimal("144.00")
    assert total(teams, "acme/vision") == Decimal("432.00")


def test_a_move_that_is_taken_back_leaves_what_was(
    teams: Ledger, fourteenth: int, at: Callable[..., int]
) -> None:
    before = cells(teams)
    with teams.database.writing() as session:
        made, _ = move_tenant(session, "acme/vision/alpha", "acme/speech", fourteenth, recording())
        move_id = made.id
    teams.rate(at("22:00", 19))
    with teams.database.writing() as session:
        withdraw_move(session, move_id, recording("wrong project"))
    teams.rate(at("22:00", 19))
    assert cells(teams) == before


@pytest.mark.parametrize(
    ("tenant", "below", "error"),
    [
        ("acme/vision", "acme/vision/alpha", "below itself"),
        ("acme/speech", "acme/vision/alpha", "a team cannot stand below"),
        ("acme", "acme/speech", "root of its account"),
        ("acme/vision/alpha", "acme/vision", "is there already"),
        ("platform/idle", "acme/speech", "stays where it is"),
        ("nobody", "acme/speech", "no tenant"),
    ],
)
def test_what_cannot_be_moved_is_refused(
    teams: Ledger, tenant: str, below: str, error: str, fourteenth: int
) -> None:
    with pytest.raises((InvalidError, ConflictError, NotFoundError), match=error):
        save(teams, move(tenant, below, fourteenth))


def test_slices_mapped_into_another_account_are_billed_there_in_its_currency_and_days(
    teams: Ledger, fourteenth: int, at: Callable[..., int]
) -> None:
    teams.account("globex", currency="USD", zone="Asia/Kathmandu")
    teams.price("4.00", currency="USD")
    add(teams, ("globex", "organisation"), ("globex/ml", "team"))
    change = rule("globex/ml", 5, tenant_key="alpha", start=fourteenth)
    told = foretell_tenancy(teams.database, change)
    save(teams, change)
    teams.rate(at("22:00", 19))
    # 48 card-hours at 4.00; Berlin's midnight is 03:45 in Kathmandu, so five of its days are touched.
    found = teams.statement("globex/ml")
    assert (found.currency, found.total) == ("USD", Decimal("192.00"))
    assert [line.day for line in found.lines] == [f"2026-10-{day}" for day in (14, 15, 16, 17, 18)]
    assert total(teams, "acme/vision") == Decimal("288.00")
    assert [(one.key.account, one.would.amount - one.stands.amount) for one in told.changes] == [
        ("acme", Decimal(-144)),
        ("globex", Decimal(192)),
    ]
    assert_verified(teams)
    tenant = Viewer(name="token:g", role="tenant", tenant_path="globex")
    assert teams.statement("globex/ml", viewer=tenant).total == Decimal("192.00")
    with pytest.raises(NotFoundError):
        teams.statement("acme/vision", viewer=tenant)


def test_shared_infrastructure_can_be_mapped_to_the_platform(teams: Ledger, at: Callable[..., int]) -> None:
    save(teams, rule("platform/shared", 1, namespace="ns-beta"))
    teams.rate(at("22:00", 19))
    assert total(teams, "acme/vision") == Decimal("288.00")
    lines = [line for path, line in teams.lines() if path == "platform/shared"]
    assert {line.account for line in lines} == {"platform"}
    assert sum(line.quantity for line in lines) == 48 * CARD_HOUR


def test_the_database_keeps_two_live_rules_of_one_priority_apart(teams: Ledger) -> None:
    with pytest.raises(ConflictError, match="priority 10"):
        save(teams, rule("acme/speech", 10, tenant_key="x", start=0, end=5))
    # The same at once, past the code that refuses it.
    with teams.database.reading() as session:
        of_ten = select(TenantRule.tenant_id).where(TenantRule.priority == 10)
        tenant_id = session.scalars(of_ten).one()
    for from_ms in (0, 5):
        forged = TenantRule(
            priority=10, cluster="*", tenant_key="x", namespace="*", labels="{}", tenant_id=tenant_id,
            valid_from_ms=from_ms, valid_to_ms=None, recorded_at_ms=0, recorded_by="x",
        )  # fmt: skip
        with pytest.raises(DatabaseError), teams.database.writing() as session:
            session.add(forged)
    for change in ("priority = 11", "tenant_key = 'y'", "valid_to_ms = 9"):
        with pytest.raises(DatabaseError, match="never edited"), teams.database.writing() as session:
            session.connection().exec_driver_sql(f"UPDATE tenant_rule SET {change}")


def test_a_rule_over_the_same_validity_needs_a_reason_and_takes_the_place_of_the_other(
    teams: Ledger, at: Callable[..., int]
) -> None:
    with pytest.raises(InvalidError, match="--reason"):
        save(teams, rule("acme/speech", 10, tenant_key="alpha"))
    with teams.database.writing() as session:
        asked = Asked(10, "acme/speech", tenant_key="alpha")
        add_rule(session, asked, Validity(0, None), recording("speech always paid for it"))
    teams.rate(at("22:00", 19))
    assert total(teams, "acme/speech") == Decimal("288.00")


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({}, "would take every slice"),
        ({"tenant_key": "a\nb"}, "glob"),
        ({"namespace": ""}, "glob"),
        ({"cluster": "x" * 254}, "glob"),
    ],
)
def test_a_rule_that_asks_for_nothing_sensible_is_refused(
    teams: Ledger, asked: dict[str, str], error: str
) -> None:
    with pytest.raises(InvalidError, match=error):
        save(teams, rule("acme/speech", 7, **asked))  # type: ignore[arg-type]


def test_no_rule_leads_to_what_nobody_is_meant_to_be(teams: Ledger) -> None:
    for name in ("platform/idle", "unassigned"):
        with pytest.raises((InvalidError, NotFoundError)):
            save(teams, rule(name, 7, tenant_key="alpha"))


def unmapped(ledger: Ledger) -> list[str]:
    with ledger.database.reading() as session:
        paths = session.scalars(select(Tenant.path).where(Tenant.is_unmapped).order_by(Tenant.path))
        return list(paths)


def test_a_key_is_listed_as_unmapped_until_a_rule_speaks_of_it_for_good(
    teams: Ledger, fourteenth: int, at: Callable[..., int]
) -> None:
    assert unmapped(teams) == []
    with teams.database.writing() as session:
        end_rule(session, 10, fourteenth, recording("over"))
    teams.rate(at("22:00", 19))
    assert unmapped(teams) == ["acme/alpha"]
    save(teams, rule("acme/speech", 11, tenant_key="alpha", start=fourteenth + DAY_MS))
    assert unmapped(teams) == []
    # One day stays with the leaf.
    teams.rate(at("22:00", 19))
    assert total(teams, "acme/alpha") == Decimal("36.00")


def test_a_closed_month_stays_and_is_named_in_the_preview(
    teams: Ledger, fourteenth: int, at: Callable[..., int]
) -> None:
    closing = at("12:00", 31) + 5 * DAY_MS
    teams.rate(closing)
    teams.close("acme", now_ms=closing, override="test")
    before = cells(teams)
    change = move("acme/vision/alpha", "acme/speech", fourteenth)
    told: Foretold = foretell_tenancy(teams.database, change)
    assert told.changes == []
    assert told.closed == [("acme", "2026-10")]
    save(teams, change)
    teams.rate(closing)
    assert cells(teams) == before
    assert_verified(teams)
    corrected = teams.correct("acme", now_ms=closing, with_versions=True, reason="moved late")
    assert corrected.amount == 0
    assert {(one.tenant, one.amount) for one in corrected.deltas} == {
        ("acme/vision/alpha", Decimal(-36)),
        ("acme/speech/alpha", Decimal(36)),
    }
    assert len(corrected.deltas) == 8
    assert {one.reason for one in corrected.deltas} == {
        "moved late; tenant rules or moves recorded after the close"
    }
    assert not teams.correct("acme", now_ms=closing, with_versions=True).deltas
    assert_verified(teams)


def test_a_tenant_is_added_below_what_may_hold_it(teams: Ledger) -> None:
    for path, kind, error in (
        ("acme/vision/alpha/x", "project", "cannot stand below"),
        ("acme/vision/lab", "organisation", "cannot stand below"),
        ("acme/nowhere/x", "project", "no tenant"),
        ("nobody/x", "team", "no account"),
        ("acme//x", "team", "cannot be"),
        ("acme/vision", "team", "exists already"),
        ("acme", "team", "organisation"),
        ("acme/%41", "team", "write %"),
    ):
        with pytest.raises((InvalidError, NotFoundError, ConflictError), match=error):
            add(teams, (path, kind))  # type: ignore[arg-type]


def test_two_cards_of_one_slice_key_elsewhere_stay_untouched_by_a_rule_of_a_cluster(
    teams: Ledger,
    at: Callable[..., int],
    allocation: Callable[..., AllocationFact],
    presence: Callable[..., PresenceFact],
) -> None:
    start, end = at("22:00", 9), at("22:00", 10)
    fields = {"cluster": "d", "device_uuid": DeviceUuid("GPU-9"), "tenant_key": TenantKey("gamma")}
    times = {"bound_at_ms": start, "confirmed_at_ms": end, "ended_at_ms": end, "end_kind": "observed"}
    held = allocation(core_percent=100, **times, **fields)
    of_card = {name: fields[name] for name in ("cluster", "device_uuid")}
    teams.send([presence(start, end, **of_card), held], now_ms=at("22:00", 17))
    teams.rate(at("22:00", 19))
    assert total(teams, "acme/gamma") == Decimal("72.00")
    before = {line.id for _, line in teams.lines()}
    save(teams, rule("acme/speech", 3, cluster="c", tenant_key="gamma"))
    teams.rate(at("22:00", 19))
    with teams.database.reading() as session:
        assert set(session.scalars(select(LedgerLine.id))) == before
