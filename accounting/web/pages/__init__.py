"""The pages, one module each: what a page shows as a value, and the route that renders it.

A page asks the report functions that the API asks, narrowed by the same viewer, and adds nothing up itself.
"""
