"""Whether accounting would take our facts: reachable, token, role, cluster, node, clocks.

Invariant: it only asks who we are; no fact is sent, no source is noted, no cluster is bound.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable
from contextlib import closing
from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec

from contract.facts import OLDEST_SCHEMA, REPORTER_PATH, SCHEMA
from contract.version import VERSION
from exporter.checkup.finding import ANSWER_SECONDS, Line, Looked, finding, note, ok
from exporter.settings import AccountingAccess

CHECK = "accounting"
CLUSTER = "accounting cluster"
CLOCK = "accounting clock"
MAX_OFFSET_MS = 5 * 60_000
"""Beyond it accounting refuses everything (412)."""
NOTED_OFFSET_MS = 5_000
BODY_BYTES = 64 * 1024

_WAYS_OUT = {
    401: "make a token with: slicemeter accounting token create --role reporter --cluster CODE; put it into "
    "--accounting-token-file",
    403: "the token is good, but not a reporter's; make one with: slicemeter accounting token create "
    "--role reporter --cluster CODE",
    404: "is --accounting-url accounting's address, and is its version as new as this exporter's",
}


class Identity(msgspec.Struct, frozen=True):
    """Accounting's answer."""

    cluster: str
    now_ms: int
    node_uid: str | None = None
    kube_system_uid: str | None = None
    fact_schema: int = OLDEST_SCHEMA


def look_at_accounting(
    access: AccountingAccess | None,
    *,
    cluster: str,
    node_uid: str | None,
    kube_system_uid: str | None,
    wall_ms: Callable[[], int],
) -> Looked[None]:
    """Ask accounting who we are and compare.

    Args:
        access: None = facts go nowhere.
        cluster: The cluster code of our settings.
        node_uid: Our Node's; None = not known, or the cluster role.
        kube_system_uid: Our cluster's own; None = not known.
        wall_ms: Unix milliseconds.
    """
    if access is None:
        return Looked([note(CHECK, "facts go nowhere; metrics need none", "give --accounting-url to bill")])
    if access.ca_file is not None and not access.ca_file.is_file():
        # Python's ssl does not say which file it misses.
        return Looked([finding(CHECK, f"CA file {access.ca_file}: is not there", "set --accounting-ca-file")])
    asked_ms = wall_ms()
    try:
        status, body = _get(access)
    except (OSError, ValueError, http.client.HTTPException) as error:
        way_out = "check --accounting-url, --accounting-ca-file, --accounting-token-file and the network"
        return Looked([finding(CHECK, f"{access.url}: {error or type(error).__name__}", way_out)])
    answered_ms = wall_ms()
    if status != HTTPStatus.OK:
        way_out = _WAYS_OUT.get(status, "see accounting's log; facts wait in the outbox meanwhile")
        return Looked([finding(CHECK, f"{access.url}: answered {status} {_reason(status)}", way_out)])
    try:
        identity = msgspec.json.decode(body, type=Identity)
    except msgspec.MsgspecError as error:
        return Looked([finding(CHECK, f"{access.url}: answered {error}", _WAYS_OUT[404])])
    return Looked(
        [
            _versions(access.url, identity),
            _compared(identity, cluster, node_uid, kube_system_uid),
            _clocks(identity.now_ms, asked_ms, answered_ms),
        ]
    )


def _versions(url: str, identity: Identity) -> Line:
    if identity.fact_schema < SCHEMA:
        return finding(
            CHECK,
            f"{url}: reads facts up to schema {identity.fact_schema}, this exporter writes {SCHEMA}",
            "upgrade accounting; facts wait in the outbox until then",
        )
    return ok(CHECK, f"{url} answers, the token is a reporter's")


def _compared(identity: Identity, cluster: str, node_uid: str | None, kube_system_uid: str | None) -> Line:
    if identity.cluster != cluster:
        return finding(
            CLUSTER,
            f'the token is for cluster "{identity.cluster}", the settings say "{cluster}": all is rejected',
            f"set --cluster {identity.cluster}, or make a token for {cluster}",
        )
    if identity.node_uid is not None and node_uid is not None and identity.node_uid != node_uid:
        return finding(
            CLUSTER,
            f"the token is for the node with UID {identity.node_uid}, this one has {node_uid}",
            "give each node its own token, or one without --node-uid",
        )
    bound = identity.kube_system_uid
    if bound is not None and kube_system_uid is not None and bound != kube_system_uid:
        return finding(
            CLUSTER,
            f'"{cluster}" is bound to kube-system UID {bound}, this cluster has {kube_system_uid}',
            "use the code and the token of this cluster; register it with: slicemeter accounting cluster add",
        )
    return ok(CLUSTER, f'"{cluster}"' + (", not bound yet" if bound is None else ", bound to this cluster"))


def _clocks(theirs_ms: int, asked_ms: int, answered_ms: int) -> Line:
    """Their clock was read between our two looks at ours; the middle is off by half the way at most."""
    offset_ms = (asked_ms + answered_ms) // 2 - theirs_ms
    told = f"ours is {abs(offset_ms) / 1000:.1f} s {'ahead of' if offset_ms >= 0 else 'behind'} accounting's"
    way_out = "set this node's clock, or accounting's (chrony, systemd-timesyncd)"
    if abs(offset_ms) > MAX_OFFSET_MS:
        return finding(CLOCK, f"{told}: every fact is refused", way_out)
    if abs(offset_ms) > NOTED_OFFSET_MS:
        return note(CLOCK, told, way_out)
    return ok(CLOCK, told)


def _get(access: AccountingAccess) -> tuple[int, bytes]:
    parts = urlsplit(access.url)
    headers = {"Accept": "application/json", "User-Agent": f"slicemeter-exporter/{VERSION}"}
    if access.token_file is not None:
        headers["Authorization"] = f"Bearer {access.token_file.read_text('ascii').strip()}"
    host = parts.hostname or ""
    connection = http.client.HTTPConnection(host, parts.port, timeout=ANSWER_SECONDS)
    if parts.scheme == "https":
        cafile = str(access.ca_file) if access.ca_file else None
        context = ssl.create_default_context(cafile=cafile)
        connection = http.client.HTTPSConnection(host, parts.port, timeout=ANSWER_SECONDS, context=context)
    with closing(connection):
        connection.request("GET", parts.path.rstrip("/") + REPORTER_PATH, headers=headers)
        with closing(connection.getresponse()) as response:
            return response.status, response.read(BODY_BYTES)


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
