"""Which price holds: by book, SKU, model, currency and the instant of use; exactly one, or none.

Invariant: no price is ever invented. Where none is valid the use is *unrated* (None), which is not the
same as a price of 0. Source: DESIGN section 5, `reference/ledger.md §4`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

SKU_SLICE = "gpu-slice"
SKU_IDLE = "gpu-idle"

EVERY_MODEL = ""
"""The model of a price that holds wherever no price names the model."""


_VENDOR_PREFIX = "NVIDIA-"


def plain_model(registered: str) -> str:
    """A GPU model without the vendor prefix that HAMi puts before NVML's name.

    So `NVIDIA-Tesla T4` of a node's register and NVML's `Tesla T4` are one model with one price.
    """
    return registered.removeprefix(_VENDOR_PREFIX).strip()


class AmbiguousPriceError(ValueError):
    """Two live prices say different things about the same instant."""


@dataclass(frozen=True, slots=True)
class Price:
    """A live version of a price, valid on `[valid_from_ms, valid_to_ms)` (None: until further notice)."""

    id: int
    book: str
    sku: str
    model: str
    currency: str
    unit_price: Decimal
    valid_from_ms: int
    valid_to_ms: int | None

    def is_valid_at(self, at_ms: int) -> bool:
        """Whether the price holds at an instant."""
        return self.valid_from_ms <= at_ms and (self.valid_to_ms is None or at_ms < self.valid_to_ms)

    def overlaps(self, other: Price) -> bool:
        """Whether both say something about one SKU, model, currency and instant."""
        same = (self.book, self.sku, self.model, self.currency) == (
            other.book,
            other.sku,
            other.model,
            other.currency,
        )
        ends_after = self.valid_to_ms is None or other.valid_from_ms < self.valid_to_ms
        return same and ends_after and (other.valid_to_ms is None or self.valid_from_ms < other.valid_to_ms)


def resolve(
    prices: Iterable[Price], *, book: str, sku: str, model: str, currency: str, at_ms: int
) -> Price | None:
    """The price that holds; one that names the model goes before one for every model.

    Raises:
        AmbiguousPriceError: Two equally specific prices hold, which saving refuses.
    """
    fitting = [
        price
        for price in prices
        if (price.book, price.sku, price.currency) == (book, sku, currency)
        and price.model in {model, EVERY_MODEL}
        and price.is_valid_at(at_ms)
    ]
    named = [price for price in fitting if price.model == model] or fitting
    if len(named) > 1:
        raise AmbiguousPriceError(
            f'price book "{book}": {len(named)} prices of {sku} for "{model}" in {currency} hold at once '
            f"(versions {', '.join(str(price.id) for price in named)}); supersede all but one"
        )
    return named[0] if named else None


def resolve_idle(
    prices: Sequence[Price], *, book: str, model: str, currency: str, at_ms: int
) -> Price | None:
    """The price of idle capacity: that of `gpu-idle` where one holds, else the slice's."""
    for sku in (SKU_IDLE, SKU_SLICE):
        price = resolve(prices, book=book, sku=sku, model=model, currency=currency, at_ms=at_ms)
        if price is not None:
            return price
    return None


def edges(prices: Iterable[Price]) -> set[int]:
    """The instants at which some price begins or stops to hold: the sweep is cut there."""
    found = {price.valid_from_ms for price in prices}
    return found | {price.valid_to_ms for price in prices if price.valid_to_ms is not None}
