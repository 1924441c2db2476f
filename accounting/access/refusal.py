"""Why somebody is not signed in: told in the same words whatever is wrong, unless the token is genuine."""

from __future__ import annotations

from accounting.errors import InvalidError


class TokenRefusedError(InvalidError):
    """No token, or one that is unknown, expired or revoked: the asker is not told which."""

    def __init__(self, reason: str = "the token is missing, unknown, expired or revoked") -> None:
        super().__init__(reason)
