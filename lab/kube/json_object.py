"""JSON objects as Kubernetes sees them: plain dictionaries, patched by RFC 7386.

The double is a shell around foreign JSON, so it keeps objects as they came; fields that no struct of
ours knows must reach the exporter like any other. Invariant: what is stored is never shared with a
caller (`copy_of`).
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import msgspec

JsonObject: TypeAlias = dict[str, Any]


def copy_of(original: JsonObject) -> JsonObject:
    """A deep copy; refuses what is not JSON, as an API server would."""
    return cast("JsonObject", msgspec.json.decode(msgspec.json.encode(original)))


def merge_patch(target: JsonObject, patch: JsonObject) -> JsonObject:
    """The target with the patch applied: `null` deletes, objects merge, everything else replaces."""
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            below = merged.get(key)
            merged[key] = merge_patch(below if isinstance(below, dict) else {}, value)
        else:
            merged[key] = value
    return merged
