from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.ledger.tenancy import (
    CircularMoveError,
    Claim,
    Move,
    Owner,
    Rule,
    Tenancy,
    code_of,
    follow_moves,
    leaf_path,
)

A, B, C = (Owner(f"acme/{name}", "acme") for name in "abc")
CLAIM = Claim("prod", "team-x", "ns-1", (("app", "train"), ("tier", "gold")))


def rule(
    owner: Owner,
    priority: int = 10,
    *,
    cluster: str = "*",
    key: str = "*",
    namespace: str = "*",
    labels: tuple[tuple[str, str], ...] = (),
    start: int = 0,
    end: int | None = None,
) -> Rule:
    return Rule(priority, priority, cluster, key, namespace, labels, owner, start, end)


def test_without_a_rule_a_key_means_its_own_leaf() -> None:
    assert Tenancy().of("acme", CLAIM).at(5) == Owner("acme/team-x", "acme")
    assert Tenancy().of("acme", Claim("prod", "", "ns-1")).at(5) == Owner("unassigned", "acme")


@pytest.mark.parametrize(
    ("asked", "matches"),
    [
        ({"key": "team-*"}, True),
        ({"key": "Team-*"}, False),
        ({"key": "team-?"}, True),
        ({"namespace": "ns-2"}, False),
        ({"cluster": "prod", "namespace": "ns-*"}, True),
        ({"cluster": "test"}, False),
        ({"labels": (("app", "tr*"),)}, True),
        ({"labels": (("app", "serve"),)}, False),
        ({"labels": (("owner", "*"),)}, False),
        ({"key": ""}, False),
    ],
)
def test_a_rule_matches_when_all_that_it_asks_for_is_there(asked: dict[str, str], matches: bool) -> None:
    owner = Tenancy((rule(A, **asked),)).of("acme", CLAIM).at(5)  # type: ignore[arg-type]
    assert (owner == A) is matches


def test_a_rule_may_ask_for_no_key_at_all() -> None:
    tenancy = Tenancy((rule(A, key=""),))
    assert tenancy.of("acme", Claim("prod", "", "ns-1")).at(5) == A


def test_the_lowest_priority_number_goes_first_while_it_holds() -> None:
    tenancy = Tenancy((rule(A, 20), rule(B, 10, start=100, end=200)))
    owned = tenancy.of("acme", CLAIM)
    assert [owned.at(at) for at in (0, 99, 100, 199, 200)] == [A, A, B, B, A]
    assert owned.changes_in(0, 1_000) == [100, 200]
    assert owned.stretches(50, 150) == [(50, 100, A), (100, 150, B)]


def test_a_rule_that_changes_nothing_cuts_nothing() -> None:
    tenancy = Tenancy((rule(A, 10), rule(B, 20, start=100), rule(A, 5, start=300)))
    assert tenancy.of("acme", CLAIM).changes_in(0, 1_000) == []


def test_a_move_takes_what_lies_below_along_and_the_nearest_counts() -> None:
    moves = (Move(1, "acme/a", B, 100, None), Move(2, "acme/a/deep", C, 100, 200))
    assert follow_moves(moves, Owner("acme/a/x", "acme"), 99).path == "acme/a/x"
    assert follow_moves(moves, Owner("acme/a/x", "acme"), 100).path == "acme/b/x"
    assert follow_moves(moves, Owner("acme/a/deep/x", "acme"), 150).path == "acme/c/x"
    assert follow_moves(moves, Owner("acme/a/deep/x", "acme"), 200).path == "acme/b/deep/x"
    assert follow_moves(moves, Owner("acme/ab", "acme"), 150).path == "acme/ab"


def test_moves_follow_each_other_into_another_account() -> None:
    moves = (Move(1, "acme/a", B, 0, None), Move(2, "acme/b", Owner("globex/b", "globex"), 50, None))
    assert follow_moves(moves, A, 10) == B
    assert follow_moves(moves, A, 60) == Owner("globex/b", "globex")


def test_moves_in_a_circle_are_refused() -> None:
    moves = (Move(1, "acme/a", B, 0, None), Move(2, "acme/b", A, 0, None))
    with pytest.raises(CircularMoveError, match="acme/a"):
        follow_moves(moves, A, 0)


@given(st.permutations([rule(A, 3, end=50), rule(B, 2, start=20), rule(C, 1, start=30, end=40)]))
def test_the_owner_does_not_depend_on_the_order_of_rules(rules: list[Rule]) -> None:
    owned = Tenancy(tuple(rules)).of("acme", CLAIM)
    assert [owned.at(at) for at in (0, 20, 30, 40, 60)] == [A, B, C, B, B]


@given(st.text(min_size=1, max_size=6), st.text(min_size=1, max_size=6))
def test_two_keys_never_mean_one_path(first: str, second: str) -> None:
    keys = {first, second, "idle", "shared", "idle~", "%69dle", "%2569dle", "a/b", "a%2Fb"}
    for one, other in itertools.combinations(sorted(keys), 2):
        for account in ("platform", "acme"):
            assert leaf_path(account, one) != leaf_path(account, other)


@given(st.text(min_size=1, max_size=10))
def test_the_code_of_a_leaf_is_its_key(key: str) -> None:
    for account in ("platform", "acme"):
        assert code_of(leaf_path(account, key)) == key


def test_a_key_cannot_mean_what_the_product_defines() -> None:
    assert leaf_path("platform", "idle") == "platform/%69dle"
    assert leaf_path("platform", "shared") == "platform/%73hared"
