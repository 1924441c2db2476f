"""Whose is what: the sources of one tick joined by container. Pure."""
