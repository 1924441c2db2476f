"""What the parts agree on: ids, units, fact types, the metric catalogue.

No input or output happens here, and nothing is imported but the standard library and msgspec,
so every other package may depend on it and it depends on none.
"""
