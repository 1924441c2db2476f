"""A JSON list of objects that may be broken: every element that can be read is given.

HAMi writes it compact; people who annotate nodes by hand write it pretty-printed, or cut it off. Invariant:
any text gives objects and flaws, never an exception.
"""

from __future__ import annotations

import json
import re

import msgspec

from exporter.hami.annotations.flaw import Flaw, Kind, flaw

_BLANKS = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder()


class JsonObject(msgspec.Struct, frozen=True):
    """An element: its members by name, and its text for messages."""

    members: dict[str, object]
    segment: str


def read_objects(kind: Kind, text: str) -> tuple[list[JsonObject], list[Flaw]]:
    """The objects of a JSON list, and what stood there instead of an object.

    `null` and blank text are an empty list. A list that breaks off gives the elements before the break.
    """
    stripped = text.strip()
    if stripped in {"", "null"}:
        return [], []
    if not stripped.startswith("["):
        return [], [flaw(kind, stripped, "bad_json", "a JSON list is expected")]
    objects: list[JsonObject] = []
    errors: list[Flaw] = []
    at = _skip(stripped, 1)
    while stripped[at : at + 1] != "]":
        try:
            value, end = _decoder.raw_decode(stripped, at)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
            errors.append(flaw(kind, stripped[at:], "bad_json", f"not JSON from character {at} on: {reason}"))
            return objects, errors
        segment = stripped[at:end]
        if isinstance(value, dict):
            objects.append(JsonObject(value, segment))
        else:
            errors.append(flaw(kind, segment, "bad_json", "an element is no object"))
        at = _skip(stripped, end)
        if stripped[at : at + 1] == ",":
            at = _skip(stripped, at + 1)
        elif stripped[at : at + 1] != "]":
            errors.append(flaw(kind, stripped[at:], "bad_json", f'"," or "]" is expected at character {at}'))
            return objects, errors
    if stripped[at + 1 :].strip():
        errors.append(flaw(kind, stripped[at + 1 :], "bad_json", "there is text after the list"))
    return objects, errors


def _skip(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at
