"""Whatever a file holds, the lint answers findings: it never fails, and what is clean stays clean."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.focus.repeats import Repeats
from accounting.focus.rules import RULES
from accounting.focus.values import JsonError, instant_ms, is_unit, json_object, number
from tests.accounting.focus.files import charges, lint

TRICKY = st.sampled_from(
    [
        "", " ", "-", "0", "-0", "1E99", "1E-37", "9" * 39, "9" * 5_000, "+1", "1.", ".5", "NaN", "Infinity",
        "2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "Usage", "Tax", "Credit",
        "Purchase", "Correction", "Unused", "{}", "[]", "null", '{"a":NaN}', '{"a":1e999999999999}',
        "[" * 3_000,
        '{"Elements":[{"AllocatedRatio":1e-30}]}', '{"Elements":[{"AllocatedRatio":"1"},3]}',
        '{"Elements":7}', f'{{"Elements":[{{"AllocatedRatio":{"9" * 4_000}}}]}}', "\x00", "\ufeff", "𝟙",
    ]
)  # fmt: skip
COLUMN = st.sampled_from(list(charges()[0]))


@given(st.lists(st.tuples(st.integers(0, 2), COLUMN, TRICKY | st.text(max_size=12)), max_size=6))
def test_any_values_give_findings_of_the_table(changes: list[tuple[int, str, str]]) -> None:
    rows = charges()
    for row, column, text in changes:
        rows[row][column] = text
    for finding in lint(rows):
        assert finding.rule in RULES
        assert 0 <= finding.row <= 3


@given(TRICKY | st.text(max_size=40))
def test_a_value_is_read_or_refused_and_nothing_else(text: str) -> None:
    value = number(text)
    assert value is None or (value.is_finite() and len(value.as_tuple().digits) <= 38)
    at_ms = instant_ms(text)
    assert at_ms is None or at_ms % 1_000 == 0
    assert isinstance(is_unit(text), bool)
    with suppress(JsonError):
        assert isinstance(json_object(text), dict)


@pytest.mark.parametrize(
    "text",
    ["GPU-Hours", "Hours", "GB-Hours", "GiB-Months", "GB/Hour", "GB", "kWh", "1000 Tokens", "Requests"],
)
def test_units_of_the_specification_are_units(text: str) -> None:
    assert is_unit(text)


@pytest.mark.parametrize(
    "text", ["gpu hours", "GPU-Hour", "GB/Hours", "hour", "0 Tokens", "Hour", "-", "GPU-"]
)
def test_what_is_none_is_none(text: str) -> None:
    assert not is_unit(text)


def test_numbers_are_exact() -> None:
    assert number("-0.80") == Decimal("-0.80")
    assert number("35.2E-7") == Decimal("0.00000352")
    assert [number(text) for text in ("+1", "1,000", "1.", ".5", "1E+2", "EUR 1", "1 ")] == [None] * 7


@given(st.lists(st.lists(st.sampled_from(["", "a", "b", "ab"]), min_size=2, max_size=2), max_size=40))
def test_repeats_are_those_of_a_plain_search(keys: list[list[str]]) -> None:
    expected, first = set(), dict[tuple[str, ...], int]()
    with Repeats() as repeats:
        for number_, key in enumerate(keys):
            repeats.add(number_, key)
            known = first.setdefault(tuple(key), number_)
            if known != number_:
                expected.add((known, number_))
        assert set(repeats.found()) == expected


def test_repeats_far_apart_are_found_in_the_file_beside() -> None:
    with Repeats() as repeats:
        for number_ in range(300_000):
            repeats.add(number_, [str(number_ % 299_999)])
        assert list(repeats.found()) == [(0, 299_999)]
