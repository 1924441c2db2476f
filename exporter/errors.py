"""The exporter's one exception tree: what may go wrong, each with a reason word fit for a label."""

from __future__ import annotations


class ExporterError(Exception):
    """Base of everything the exporter raises on purpose.

    Attributes:
        reason: A closed word for a metric label (`truncated`, `unauthorized`, …).
        detail: One line that names the thing, the place and the way out.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
