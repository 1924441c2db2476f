"""A Kubernetes API double over TLS: list, watch, bookmarks, 410, tokens, field selectors."""
