"""The HTTP face: routes, problems, the application factory."""
