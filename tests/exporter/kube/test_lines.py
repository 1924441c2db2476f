from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kube.client import complete_lines
from exporter.kube.errors import KubeError

LINES = st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line), max_size=8)


@given(LINES, st.lists(st.integers(1, 9), min_size=1))
def test_lines_are_the_same_however_the_stream_is_cut(lines: list[bytes], sizes: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    pieces, begin, turn = [], 0, 0
    while begin < len(data):
        size = sizes[turn % len(sizes)]
        pieces.append(data[begin : begin + size])
        begin, turn = begin + size, turn + 1
    assert list(complete_lines(pieces)) == lines


def test_half_a_line_is_no_line_and_is_named_a_cut() -> None:
    lines = complete_lines([b'{"a":1}\n{"b"', b":2"])
    assert next(lines) == b'{"a":1}'
    with pytest.raises(KubeError, match="after 6 bytes") as caught:
        next(lines)
    assert caught.value.reason == "cut"


def test_empty_lines_are_skipped() -> None:
    assert list(complete_lines([b"\n\na\n\n", b"\nb\n"])) == [b"a", b"b"]
