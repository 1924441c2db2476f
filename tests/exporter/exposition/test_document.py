"""A snapshot as JSON: everything in it, under its own names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from exporter.exposition.document import as_json


class Key(NamedTuple):
    uuid: str
    is_slice: bool


class Struct(msgspec.Struct):
    tenant: str


@dataclass(frozen=True, slots=True)
class View:
    key: Key
    labels: Struct
    used_bytes: int | None
    ratio: float


@dataclass(frozen=True, slots=True)
class Whole:
    views: tuple[View, ...]
    counts: MappingProxyType[tuple[str, str], int]
    words: frozenset[str]


def test_dataclasses_structs_tuples_and_mappings_become_what_json_has_for_them() -> None:
    whole = Whole(
        (View(Key("GPU-1", is_slice=True), Struct("a"), None, 0.5),),
        MappingProxyType({("v1.2", "ok"): 3}),
        frozenset({"x"}),
    )
    assert json.loads(as_json(whole)) == {
        "views": [
            {
                "key": {"uuid": "GPU-1", "is_slice": True},
                "labels": {"tenant": "a"},
                "used_bytes": None,
                "ratio": 0.5,
            }
        ],
        "counts": {"v1.2/ok": 3},
        "words": "frozenset({'x'})",
    }


def test_a_figure_that_is_not_finite_is_null() -> None:
    assert json.loads(as_json([float("nan"), float("inf")])) == [None, None]


def test_the_document_is_indented_for_people() -> None:
    assert as_json({"a": 1}) == b'{\n  "a": 1\n}\n'
