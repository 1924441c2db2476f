"""The shapes of the double's answers: statuses, lists, metadata-only conversions, watch frames."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from lab.kube.json_object import JsonObject
from lab.kube.kinds import Kind

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
META_API_VERSION = "meta.k8s.io/v1"


def status(code: int, message: str = "", retry_after_s: int | None = None) -> JsonObject:
    """A `Status` object of kind Failure."""
    details = {} if retry_after_s is None else {"retryAfterSeconds": retry_after_s}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message or HTTPStatus(code).phrase,
        "reason": _REASONS.get(code, ""),
        "details": details,
        "code": code,
    }


def wants_metadata_only(accept: str, *, is_list: bool) -> bool:
    """Whether the first representation that an Accept header names is the metadata-only one."""
    wanted = "PartialObjectMetadataList" if is_list else "PartialObjectMetadata"
    first = accept.split(",", maxsplit=1)[0]
    parameters = [parameter.strip() for parameter in first.split(";")[1:]]
    return f"as={wanted}" in parameters and "g=meta.k8s.io" in parameters


def only_metadata(found: JsonObject) -> JsonObject:
    """An object as `PartialObjectMetadata`."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": META_API_VERSION,
        "metadata": found["metadata"],
    }


def listing(
    kind: Kind, items: Sequence[JsonObject], version: int, continuation: str, *, is_metadata_only: bool
) -> JsonObject:
    """A list object; its items carry no kind of their own, as in a real one."""
    metadata: JsonObject = {"resourceVersion": str(version)}
    if continuation:
        metadata["continue"] = continuation
    if is_metadata_only:
        return {
            "kind": "PartialObjectMetadataList",
            "apiVersion": META_API_VERSION,
            "metadata": metadata,
            "items": [only_metadata(item) for item in items],
        }
    bare = [{key: item[key] for key in item if key not in {"kind", "apiVersion"}} for item in items]
    return {"kind": f"{kind.name}List", "apiVersion": "v1", "metadata": metadata, "items": bare}


def bookmark(kind: Kind, version: int, *, is_metadata_only: bool) -> JsonObject:
    """The object of a BOOKMARK event: nothing but a version."""
    head = (
        {"kind": "PartialObjectMetadata", "apiVersion": META_API_VERSION}
        if is_metadata_only
        else {"kind": kind.name, "apiVersion": "v1"}
    )
    return head | {"metadata": {"resourceVersion": str(version), "creationTimestamp": None}}
