"""Starts, records, continues, cancels and takes over runs.

HTTP is the layer above, agents and history are below. This package knows no routes and no status codes.
"""

from callboard.runs.followed_run import FollowedRun
from callboard.runs.run import Run
from callboard.runs.runs import Runs

__all__ = ["FollowedRun", "Run", "Runs"]
