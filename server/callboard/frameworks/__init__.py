"""Adapters that run agents of other frameworks as Callboard agents.

Each framework has its own package and its own extra, for example `callboard.frameworks.agno`. An adapter applies the
limits and approvals of Callboard's own tool loop. It knows nothing of storage or HTTP.
"""
