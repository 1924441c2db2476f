"""How to reach the Kubernetes API: an address, a CA, and a token that is replaced under us."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """Where the API is and how to sign in.

    Attributes:
        api_url: `https://host:port`, without a path.
        ca_file: CA to trust; None = the system's.
        token_file: Projected token, read again for each connection; None = no token.
    """

    api_url: str
    ca_file: Path | None = None
    token_file: Path | None = None
