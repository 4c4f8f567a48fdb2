"""The HTTP layer: routes, authentication, server-sent events, and the status code of each error.

Only `_application` is above it. Nothing in it depends on tools.
"""
