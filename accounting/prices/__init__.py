"""What holds from when to when: price books, tenants' discounts, policies."""
