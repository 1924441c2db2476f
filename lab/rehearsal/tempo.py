"""How fast a rehearsal runs: a minute takes so many seconds, in rules, thresholds and scenes alike.

Invariant: one factor for everything that the rules measure in time; nothing else of a rule is touched.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

from dashboards.rules.files import Addresses, plain_files
from dashboards.rules.table import SWITCHES, chosen
from dashboards.thresholds import DEFAULT, Thresholds

MINUTE_S = 60
_SECONDS_OF = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"(?P<before>\[|\boffset |\bfor: )(?P<number>\d+)(?P<unit>[smhd])\b")


@dataclass(frozen=True, slots=True)
class Tempo:
    """A rehearsal's speed.

    Attributes:
        minute_s: How many seconds a minute takes.
    """

    minute_s: int

    def seconds(self, real_s: float) -> float:
        """What becomes of a stretch of real seconds."""
        return real_s * self.minute_s / MINUTE_S

    def thresholds(self) -> Thresholds:
        """The shipped thresholds, those in seconds shortened; never below one second."""
        changed = {
            name: max(1, round(self.seconds(value)))
            for name, value in asdict(DEFAULT).items()
            if name.endswith("_seconds")
        }
        return Thresholds(**{**asdict(DEFAULT), **changed})

    def shortened(self, text: str) -> str:
        """A rule file's text with every range, offset and wait shortened."""

        def shorter(found: re.Match[str]) -> str:
            real_s = int(found["number"]) * _SECONDS_OF[found["unit"]]
            return f"{found['before']}{round(self.seconds(real_s) * 1_000)}ms" if real_s else found[0]

        return _DURATION.sub(shorter, text)

    def rules(self) -> dict[str, str]:
        """File name to text of every rule group, those with a switch too."""
        files = plain_files(chosen(SWITCHES, self.thresholds()), Addresses())
        return {name: self.shortened(text) for name, text in files.items()}
