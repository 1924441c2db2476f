"""Which cluster this is, told by the cluster itself: the UID of its `kube-system` namespace.

Names of clusters are configured and may be configured wrongly; accounting binds a cluster to this
UID at first sight and refuses another one.
"""

from __future__ import annotations

from exporter.kube.objects import Namespace
from exporter.kube.view import View

KUBE_SYSTEM = "kube-system"


def cluster_uid(namespaces: View[Namespace]) -> str | None:
    """The UID, or None while namespaces were not listed."""
    for namespace in namespaces.objects.values():
        if namespace.metadata.name == KUBE_SYSTEM:
            return namespace.metadata.uid
    return None
