"""What an operator may set about the service, with its defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from accounting.access.oidc_settings import OidcSettings
from accounting.errors import InvalidError

MAX_GRACE_MS = 6 * 3_600_000
"""Beyond it a phantom slice would outlive the bridging of presence (`reference/ledger.md §5`)."""

MAX_SESSION_HOURS = 30 * 24


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one running service.

    Attributes:
        grace_ms: How long a slice is held after its latest confirmation when nobody saw it end; at least
            three times the exporters' push interval.
        rate_interval_seconds: How often the open periods are rated.
        metrics_token_file: A file with a token that opens `/metrics`, read again when it is replaced.
        are_metrics_open: Whether anybody who reaches the service may read `/metrics`, costs included.
        are_cookies_secure: Whether browsers send the session's cookie by TLS only; off on loopback alone.
        oidc: By which OpenID provider people sign in, besides tokens; None: by none.
        session_hours: How long a person stays signed in at most.
        session_idle_minutes: After how long without a request they are signed out.

    Raises:
        InvalidError: A value out of its range.
    """

    grace_ms: int = 900_000
    rate_interval_seconds: float = 60.0
    metrics_token_file: Path | None = None
    are_metrics_open: bool = False
    are_cookies_secure: bool = True
    oidc: OidcSettings | None = None
    session_hours: float = 12.0
    session_idle_minutes: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.grace_ms <= MAX_GRACE_MS:
            raise InvalidError(
                f"grace of {self.grace_ms / 1000:g} s: it lies above 0 and up to {MAX_GRACE_MS // 1000} s"
            )
        if not 0 < self.rate_interval_seconds <= 86_400:
            raise InvalidError(
                f"rate interval of {self.rate_interval_seconds:g} s: it lies above 0 and up to 86400 s"
            )
        if not 0 < self.session_hours <= MAX_SESSION_HOURS:
            raise InvalidError(
                f"sessions of {self.session_hours:g} h: they last above 0 and up to {MAX_SESSION_HOURS} h"
            )
        if not 1 <= self.session_idle_minutes <= 60 * MAX_SESSION_HOURS:
            raise InvalidError(
                f"sessions idle for {self.session_idle_minutes:g} minutes: from 1 to {60 * MAX_SESSION_HOURS}"
            )
