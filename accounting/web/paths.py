"""Where the pages are, and which of these a person may be sent to after signing in."""

from __future__ import annotations

UI = "/ui"
HOME = f"{UI}/"
STATIC = "/static"
SIGN_IN = f"{UI}/sign-in"
SIGN_OUT = f"{UI}/sign-out"
OIDC_START = f"{UI}/oidc/start"

_MAX_LENGTH = 2_000


def page_or_home(path: str) -> str:
    """A path as it may stand in a redirect: of a page of ours, never of another host."""
    is_ours = path.startswith(HOME) and "//" not in path and "\\" not in path and "/.." not in path
    if not is_ours or not path.isprintable() or not path.isascii() or len(path) > _MAX_LENGTH:
        return HOME
    return HOME if path.startswith((SIGN_IN, SIGN_OUT, OIDC_START)) else path
