"""What the bodies of requests share: nothing unknown is passed over, and names, reasons and instants.

Invariant: no text holds a NUL character, which one database would keep and the other not.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from accounting.access.audit import MAX_REASON

Reason = Annotated[str, Field(min_length=1, max_length=MAX_REASON)]
TenantName = Annotated[str, Field(min_length=1, max_length=1_000, pattern=r"^[^\x00]+$")]
"""A path, or a code where only one tenant has it."""
Code = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[^\x00]+$")]


class Body(BaseModel):
    """A body of JSON; a field that it does not have is refused."""

    model_config = ConfigDict(extra="forbid")
