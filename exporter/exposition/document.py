"""A snapshot as JSON, for a person who asks why a figure is what it is.

Everything in it is shown, under its own names and in its own units, so that nothing has to be kept up to
date here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain] | None"


def as_json(snapshot: object) -> bytes:
    """The snapshot's JSON, indented; figures that are not finite are null."""
    return msgspec.json.format(msgspec.json.encode(_plain(snapshot)), indent=2) + b"\n"


def _plain(value: object) -> Plain:
    if value is None or isinstance(value, (str, int, float)):
        return value
    members = _members(value)
    if members is not None:
        return {_key(key): _plain(each) for key, each in members.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(each) for each in value]
    return str(value)


def _members(value: object) -> Mapping[str, object] | Mapping[object, object] | None:
    """What has names in it, by name; None for anything that is no such thing."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, msgspec.Struct):
        return dict(msgspec.structs.asdict(value))
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _key(key: object) -> str:
    """A mapping's key: a tuple of words as words with slashes."""
    return "/".join(map(str, key)) if isinstance(key, tuple) else str(key)
