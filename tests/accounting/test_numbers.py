from __future__ import annotations

from decimal import Decimal, InvalidOperation

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.numbers import plain_decimal


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("2.40", "2.40"), ("-12.5", "-12.5"), ("007", 7), ("0.0000000001", "1e-10")]
)
def test_a_plain_number_is_read_to_its_last_digit(text: str, value: int | str) -> None:
    assert plain_decimal(text) == Decimal(value)


@pytest.mark.parametrize(
    "text",
    ["", "-", "-0", "-0.00", "1_0", "٣", "１", "1e3", "1E-3", "+1", ".5", "5.", " 1", "1\n", "1,5", "NaN",
     "inf", "--1", "0x10", "1\x00"],
)  # fmt: skip
def test_any_other_spelling_is_refused(text: str) -> None:
    with pytest.raises(InvalidOperation):
        plain_decimal(text)


@given(text=st.text(alphabet="0123456789.-_eE+ ٣", max_size=12))
def test_what_is_read_is_what_is_written(text: str) -> None:
    try:
        number = plain_decimal(text)
    except InvalidOperation:
        return
    assert set(text) <= set("0123456789.-")
    digits = len(text.partition(".")[2])
    assert format(number, f".{digits}f").lstrip("-").lstrip("0") == text.lstrip("-").lstrip("0")
