"""Price books and versions, by validity, SKU and GPU model."""
