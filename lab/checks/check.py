"""One row of the check table, and the few ways in which two figures are compared.

Invariant: a figure that could not be measured is never a pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

FLOAT_NOISE = 1e-9
"""How far two ratios may differ that went through binary fractions."""

WORTH_SAYING = 1e-5
"""A smaller tolerance than this covers roundings that no reader of the table cares for."""

Figure: TypeAlias = float | Fraction | str | None


@dataclass(frozen=True, slots=True)
class Check:
    """One figure: what it should be, what was measured, and whether they agree."""

    case: str
    figure: str
    expected: str
    measured: str
    is_right: bool


@dataclass(frozen=True, slots=True)
class Case:
    """A named case of the laboratory, as a factory of its checks."""

    name: str

    def equal(self, figure: str, expected: Figure, measured: Figure, unit: str = "") -> Check:
        """The figures must be the same; two absent ones are."""
        return Check(self.name, figure, show(expected, unit), show(measured, unit), expected == measured)

    def near(
        self, figure: str, expected: Fraction | float, measured: float | None, within: float, unit: str = ""
    ) -> Check:
        """The measured figure may be off by `within`."""
        is_right = measured is not None and abs(measured - float(expected)) <= within
        wanted = show(float(expected), unit)
        if within > WORTH_SAYING:
            wanted = f"{show(float(expected))} ± {within:g} {unit}".rstrip()
        return Check(self.name, figure, wanted, show(measured, unit), is_right)


def show(figure: Figure, unit: str = "") -> str:
    """A figure for people: thousands grouped, whole numbers without decimals, absent said so."""
    if figure is None:
        return "absent"
    if isinstance(figure, str):
        text = figure
    elif float(figure).is_integer():
        text = f"{int(figure):,}"
    else:
        text = f"{float(figure):,.6f}".rstrip("0")
        text += "0" * max(0, 2 - len(text.rpartition(".")[2]))
    return f"{text} {unit}".rstrip()
