"""What may go wrong between us and an API server, with the one decision that depends on it.

Invariant: `needs_list` is true exactly when resuming a watch from its version could lose an event or
can never succeed, so that only a new list helps.
"""

from __future__ import annotations

from typing import Final

from exporter.errors import ExporterError

VERSION_IS_USELESS: Final = frozenset({400, 404, 410, 504})
"""410: the version is older than the server's history. 504: it is newer than the server (etcd was
restored). 400 and 404: the server does not understand what an earlier list told us."""

REASON_BY_STATUS: Final = {401: "unauthorized", 403: "forbidden", 410: "gone", 429: "throttled"}


class KubeError(ExporterError):
    """The API server could not be asked, or its answer could not be used.

    Attributes:
        status: HTTP status, or the code of an ERROR event; None when there was no answer.
        retry_after_s: What the server asked us to wait (`Retry-After`).
    """

    def __init__(
        self, reason: str, detail: str, *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(reason, detail)
        self.status = status
        self.retry_after_s = retry_after_s

    def detached(self) -> KubeError:
        """The same error without its traceback, whose frames would keep sockets and answers alive."""
        return KubeError(self.reason, self.detail, status=self.status, retry_after_s=self.retry_after_s)

    @property
    def needs_list(self) -> bool:
        """Whether the watch has to begin again with a list."""
        return self.status in VERSION_IS_USELESS or self.reason == "malformed"


def refusal(status: int, detail: str, retry_after_s: float | None = None) -> KubeError:
    """The error for an answer that is not a success, with its closed reason word."""
    reason = REASON_BY_STATUS.get(status, "server_error" if status >= 500 else "refused")
    return KubeError(reason, detail, status=status, retry_after_s=retry_after_s)
