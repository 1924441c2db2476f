"""Hour books: cuts at the hour, revisions, and facts that accounting accepts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contract.facts import DeviceUsageFact, SliceUsageFact, UnallocatedUseFact
from contract.ids import ClusterCode, DeviceUuid, EpochId, NodeUid, PodUid
from exporter.node.metering.counters import Labels, OwnerCounters, OwnerKey
from exporter.node.metering.hours import HourBooks, Origin, Piece, pieces, shares

HOUR_MS = 3_600_000
TEN = 10 * HOUR_MS
ORIGIN = Origin(ClusterCode("c1"), NodeUid("node-1"), EpochId("e1"))


def _owner(*, is_slice: bool = True) -> OwnerCounters:
    return OwnerCounters(
        pod_uid=PodUid("uid-1"),
        container="main",
        device_uuid=DeviceUuid("GPU-a"),
        labels=Labels("team", "job", "main", "tenant-a", "NVIDIA T4"),
        is_slice=is_slice,
        is_measured=True,
    )


def test_an_interval_is_cut_at_each_hour_it_crosses() -> None:
    assert pieces(TEN - 400, TEN + 600) == [
        Piece(TEN - HOUR_MS, TEN - 400, TEN),
        Piece(TEN, TEN, TEN + 600),
    ]
    assert pieces(TEN, TEN) == []


@given(st.integers(0, 10**15), st.integers(1, 10**7), st.integers(0, 3 * HOUR_MS))
def test_shares_over_pieces_add_up_and_follow_their_length(value: int, start: int, length: int) -> None:
    cut = pieces(start, start + length)
    parts = shares(value, cut)
    assert sum(parts) == (value if cut else 0)
    for part, piece in zip(parts, cut, strict=True):
        exact = value * (piece.to_ms - piece.from_ms)
        assert abs(part * length - exact) <= length  # within one unit of the exact share


def test_facts_carry_cumulative_values_and_growing_revisions() -> None:
    books, owner = HourBooks(), _owner()
    for second in range(2):
        (piece,) = pieces(TEN + 1_000 * second, TEN + 1_000 * (second + 1))
        book = books.use(owner.key, owner, piece)
        book.covered_ms += 1_000
        book.sm_ppm_ms += 300_000_000
        (fact,) = books.take_facts(ORIGIN, piece.to_ms, everything=True)
        assert isinstance(fact, SliceUsageFact)
        assert (fact.revision, fact.covered_ms, fact.sm_ppm_ms) == (
            second + 1,
            1_000 * (second + 1),
            300_000_000 * (second + 1),
        )
        assert (fact.hour_ms, fact.from_ms, fact.to_ms) == (TEN, TEN, TEN + 1_000 * (second + 1))


def test_a_book_that_did_not_change_says_nothing_again() -> None:
    books = HourBooks()
    books.use(_owner().key, _owner(), Piece(TEN, TEN, TEN + 1_000))
    assert len(books.take_facts(ORIGIN, TEN + 1_000, everything=True)) == 1
    assert books.take_facts(ORIGIN, TEN + 2_000, everything=True) == []


def test_between_pushes_only_ended_owners_and_hours_that_are_over_speak() -> None:
    books, owner = HourBooks(), _owner()
    books.use(owner.key, owner, Piece(TEN, TEN, TEN + 1_000))
    assert books.take_facts(ORIGIN, TEN + 1_000, everything=False) == []
    assert len(books.take_facts(ORIGIN, TEN + 1_000, everything=False, ended={owner.key})) == 1


def test_an_hour_is_closed_a_minute_after_its_end_and_forgotten() -> None:
    books = HourBooks()
    books.use(_owner().key, _owner(), Piece(TEN, TEN, TEN + HOUR_MS))
    books.device(DeviceUuid("GPU-a"), Piece(TEN, TEN, TEN + HOUR_MS))
    assert books.take_facts(ORIGIN, TEN + HOUR_MS + 59_999, everything=False) == []
    facts = books.take_facts(ORIGIN, TEN + HOUR_MS + 60_000, everything=False)
    assert {type(fact) for fact in facts} == {SliceUsageFact, DeviceUsageFact}
    assert (books.uses, books.devices) == ([], [])


def test_a_fact_never_claims_more_sm_time_than_it_covered() -> None:
    books = HourBooks()
    book = books.use(_owner().key, _owner(), Piece(TEN, TEN, TEN + 1_000))
    book.covered_ms, book.sm_ppm_ms, book.sm_down_ppm_ms = 1_000, 1_200_000_000, 1_100_000_000
    (fact,) = books.take_facts(ORIGIN, TEN + 1_000, everything=True)
    assert isinstance(fact, SliceUsageFact)
    assert (fact.sm_ppm_ms, fact.sm_down_ppm_ms) == (1_000_000_000, 1_000_000_000)


def test_memory_travels_in_whole_mib_and_its_peak_is_rounded_up() -> None:
    books = HourBooks()
    book = books.use(_owner().key, _owner(), Piece(TEN, TEN, TEN + 1_000))
    book.memory_used.add(3 * 2**20 * 1_000 - 1)
    book.memory_peak_bytes = 3 * 2**20 + 1
    (fact,) = books.take_facts(ORIGIN, TEN + 1_000, everything=True)
    assert isinstance(fact, SliceUsageFact)
    assert (fact.mem_used_mib_ms, fact.mem_peak_mib) == (2_999, 4)


def test_use_past_hami_is_a_fact_of_its_own_with_the_pods_name() -> None:
    books, owner = HourBooks(), _owner(is_slice=False)
    books.use(owner.key, owner, Piece(TEN, TEN, TEN + 1_000)).sm_ppm_ms = 0
    (fact,) = books.take_facts(ORIGIN, TEN + 1_000, everything=True)
    assert isinstance(fact, UnallocatedUseFact)
    assert (fact.namespace, fact.pod, fact.tenant_key) == ("team", "job", "tenant-a")
    assert owner.key == OwnerKey(PodUid("uid-1"), "main", DeviceUuid("GPU-a"), is_slice=False)
