"""The figures of the books as Prometheus shows them: computed after a rating, published as one value."""
