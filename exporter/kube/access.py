"""Where the API server is and how we prove who we are: three values, no secret among them.

The token stays in its file and is read for each connection, because projected tokens are replaced on
disk about hourly.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from exporter.kube.errors import KubeError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts a pod's service account."""


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """How to reach an API server.

    Attributes:
        api_url: `https://host:port`, with a path in front of `/api` where a proxy needs one.
        ca_file: PEM file of the authority that signed the server; None: the system's authorities.
        token_file: File with a bearer token; None: no token is sent.
    """

    api_url: str
    ca_file: Path | None = None
    token_file: Path | None = None

    @classmethod
    def in_cluster(cls, environ: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT) -> Self:
        """The access that every pod gets from its kubelet.

        Raises:
            KubeError: This process does not run in a pod (`not_in_cluster`).
        """
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise KubeError(
                "not_in_cluster",
                "KUBERNETES_SERVICE_HOST is not set, so this is no pod; name the API server, its CA file and "
                "a token file in the exporter's configuration",
            )
        literal = f"[{host}]" if ":" in host else host
        return cls(f"https://{literal}:{port}", folder / "ca.crt", folder / "token")
