"""What the API server answers: is it there, does it know us, may we list and watch what a role needs.

Invariant: the requests are those of the roles' own watches, so what is allowed here is allowed there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from exporter.checkup.finding import ANSWER_SECONDS, Line, Looked, bounded, finding, note, ok
from exporter.kube.access import KubeAccess
from exporter.kube.cancellation import Cancellation
from exporter.kube.client import ApiClient
from exporter.kube.cluster_uid import KUBE_SYSTEM
from exporter.kube.errors import KubeError
from exporter.kube.feed import ANY_VERSION, NEWEST_VERSION, Feed, Listed, Timing
from exporter.kube.objects import Meta, Namespace
from exporter.kube.resources import Resource

API = "kubernetes api"

_WAYS_OUT = {
    "unauthorized": "give the token of a service account of this cluster with --kube-token-file",
    "token_unreadable": "mount a token (automountServiceAccountToken), or set --kube-token-file",
    "tls": "give the cluster's CA with --kube-ca-file, and an address that its certificate names",
    "unreachable": "check --kube-api-url, network policies and whether the API server runs",
    "silent": "check the network between this node and the API server",
    "bad_url": "give an address like https://10.96.0.1:443 with --kube-api-url",
}
"""Why no request succeeds, and what to do; any other failure is one request's own."""
_PATIENCE = Timing(
    silence_s=ANSWER_SECONDS,
    list_silence_s=ANSWER_SECONDS,
    watch_min_s=ANSWER_SECONDS,
    watch_max_s=ANSWER_SECONDS,
)
_Asked: TypeAlias = "Listed[Any] | KubeError"


@dataclass(frozen=True, slots=True)
class Kept:
    """What was listed, by the name of the resource; what could not be listed is missing."""

    listed: dict[str, Listed[Any]] = field(default_factory=dict)

    def objects(self, name: str) -> tuple[Any, ...] | None:
        """The objects of a resource; None when they were not listed."""
        found = self.listed.get(name)
        return None if found is None else found.objects

    def cluster_uid(self) -> str | None:
        """The UID of the namespace kube-system."""
        namespaces: tuple[Namespace, ...] = self.objects("namespaces") or ()
        return next((each.metadata.uid for each in namespaces if each.metadata.name == KUBE_SYSTEM), None)

    def metas(self) -> list[Meta]:
        """The metadata of all that was listed."""
        return [each.metadata for listed in self.listed.values() for each in listed.objects]


def look_at_api(access: KubeAccess, resources: Sequence[Resource[Any]]) -> tuple[list[Line], Kept]:
    """List and begin to watch each resource.

    Args:
        access: The API server.
        resources: What the role watches.
    """
    kept = Kept()
    if access.ca_file is not None and not access.ca_file.is_file():
        # Python's ssl does not say which file it misses.
        return [finding(API, f"CA file {access.ca_file}: is not there", _WAYS_OUT["tls"])], kept
    try:
        client = ApiClient(access, connect_timeout_s=ANSWER_SECONDS)
    except KubeError as error:
        return [_no_api(error)], kept
    lines: list[Line] = []
    for resource in resources:
        asked = _ask(access, partial(_listed, client, resource))
        if isinstance(asked, KubeError) and asked.reason in _WAYS_OUT and not kept.listed:
            # It does not answer, or not to us: the others would say the same, each after its wait.
            return [_no_api(asked), *(note(_name(each), "not asked") for each in resources)], kept
        if not lines:
            lines.append(ok(API, f"{access.api_url} answers and accepts the token"))
        if isinstance(asked, KubeError):
            lines.append(_refused(resource, "list", asked))
            continue
        kept.listed[resource.name] = asked
        lines.append(_watched(access, client, resource, asked))
    return lines, kept


def _watched(access: KubeAccess, client: ApiClient, resource: Resource[Any], listed: Listed[Any]) -> Line:
    """The line of a resource that was listed; what could not be decoded is as good as not there."""

    def accepted(stop: Cancellation) -> Listed[Any]:
        with closing(_feed(client, resource, stop).connection(listed.version)) as connection:
            next(connection)
        return listed

    watched = _ask(access, accepted)
    if isinstance(watched, KubeError):
        return _refused(resource, "watch", watched)
    if listed.unreadable:
        return finding(
            _name(resource),
            f"{len(listed.unreadable)} of {len(listed.objects) + len(listed.unreadable)} cannot be decoded: "
            f"{listed.unreadable[0].detail}",
            "they are left out of everything; please report their form",
        )
    return ok(_name(resource), f"{len(listed.objects)} listed, watch accepted")


def _listed(client: ApiClient, resource: Resource[Any], stop: Cancellation) -> Listed[Any]:
    version = NEWEST_VERSION if resource.is_paged else ANY_VERSION
    return _feed(client, resource, stop).list_objects(version)


def _feed(client: ApiClient, resource: Resource[Any], stop: Cancellation) -> Feed[Any]:
    return Feed(client, resource, stop, timing=_PATIENCE)


def _ask(access: KubeAccess, request: Callable[[Cancellation], Listed[Any]]) -> _Asked:
    stop = Cancellation()

    def answer() -> Looked[_Asked]:
        try:
            return Looked((), request(stop))
        except KubeError as error:
            return Looked((), error.detached())

    looked = bounded(API, answer, _WAYS_OUT["silent"])
    stop.cancel()
    if looked.found is None:
        return KubeError("silent", f"{access.api_url}: {looked.lines[0].detail}")
    return looked.found


def _name(resource: Resource[Any]) -> str:
    return f"kubernetes {resource.name}"


def _no_api(error: KubeError) -> Line:
    return finding(API, error.detail, _WAYS_OUT[error.reason])


def _refused(resource: Resource[Any], verb: str, error: KubeError) -> Line:
    way_out = "see the API server's log; the exporter itself goes on trying"
    if error.reason == "forbidden":
        way_out = f"allow list and watch on {resource.name} to the exporter's service account (ClusterRole)"
    elif error.reason in _WAYS_OUT:
        way_out = _WAYS_OUT[error.reason]
    return finding(_name(resource), f"{verb}: {error.detail}", way_out)
