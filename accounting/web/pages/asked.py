"""What pages are asked with: names, days and hours, as the API takes them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

_TEXT = Query(max_length=1_000, pattern=r"^[^\x00]+$")

Name = Annotated[str, _TEXT]
TenantName = Annotated[str, _TEXT]
"""A path, or a code that only one tenant has."""
OptionalTenant = Annotated[str | None, Query(max_length=1_000, pattern=r"^[^\x00]*$")]
AccountName = Annotated[str | None, Query(max_length=63, pattern=r"^[^\x00]*$")]
"""Only where a tenant has lines in several."""
