"""Taking facts in: bounds, order-free merge into the store, quarantine, the registry of sources."""
