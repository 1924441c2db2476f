"""Which price holds: by book, SKU, model, currency and the instant of use; exactly one, or none.

Invariant: no price is ever invented. Where none is valid the use is *unrated* (None), which is not the
same as a price of 0. Source: DESIGN section 5, `reference/ledger.md §4`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

SKU_SLICE = "gpu-slice"
SKU_IDLE = "gpu-idle"
SKU_ENERGY = "gpu-energy"
SKU_UNALLOCATED = "gpu-unallocated"

CARD_HOUR, KWH = "card-hour", "kWh"

UNITS = {SKU_SLICE: CARD_HOUR, SKU_IDLE: CARD_HOUR, SKU_UNALLOCATED: CARD_HOUR, SKU_ENERGY: KWH}
"""By SKU: what one unit price buys."""

_FALLBACK = {SKU_IDLE: SKU_SLICE, SKU_UNALLOCATED: SKU_SLICE}
"""Whose price holds where a SKU has none of its own."""

EVERY_MODEL = ""
"""The model of a price that holds wherever no price names the model."""


_VENDOR_PREFIX = "NVIDIA-"


@lru_cache(maxsize=1024)
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


def resolve_sku(
    prices: Sequence[Price], *, book: str, sku: str, model: str, currency: str, at_ms: int
) -> Price | None:
    """The price of a SKU, or of the one that stands in: idle and unallocated time cost what slices cost.

    A price of 0 is a price and stands before the other SKU's.
    """
    price = resolve(prices, book=book, sku=sku, model=model, currency=currency, at_ms=at_ms)
    other = _FALLBACK.get(sku)
    if price is not None or other is None:
        return price
    return resolve(prices, book=book, sku=other, model=model, currency=currency, at_ms=at_ms)


def edges(versions: Iterable[Price | Discount]) -> set[int]:
    """The instants at which some price or discount begins or stops to hold: the sweep is cut there."""
    found: set[int] = set()
    for version in versions:
        found.add(version.valid_from_ms)
        if version.valid_to_ms is not None:
            found.add(version.valid_to_ms)
    return found


@dataclass(frozen=True, slots=True)
class Discount:
    """A live version of what a tenant and all below it pay less, in per cent of the list price."""

    id: int
    book: str
    tenant_path: str
    percent: Decimal
    valid_from_ms: int
    valid_to_ms: int | None

    def is_valid_at(self, at_ms: int) -> bool:
        """Whether the discount holds at an instant."""
        return self.valid_from_ms <= at_ms and (self.valid_to_ms is None or at_ms < self.valid_to_ms)

    def concerns(self, tenant_path: str) -> bool:
        """Whether a tenant is the one named, or lies below it."""
        return tenant_path == self.tenant_path or tenant_path.startswith(f"{self.tenant_path}/")


def resolve_discount(
    discounts: Iterable[Discount], *, book: str, tenant_path: str, at_ms: int
) -> Discount | None:
    """The discount that holds: of the nearest tenant upwards that has one; 0 per cent is one."""
    fitting = [
        discount
        for discount in discounts
        if discount.book == book and discount.concerns(tenant_path) and discount.is_valid_at(at_ms)
    ]
    return max(fitting, key=lambda discount: len(discount.tenant_path), default=None)
