"""Starts, records, resumes, cancels and takes over runs.

HTTP is the layer above, agents and history are below. This package knows no routes and no status codes.
"""

from callboard._runs.conversation import Continuation
from callboard._runs.followed_run import FollowedRun
from callboard._runs.links import Links
from callboard._runs.run import Run
from callboard._runs.runs import Runs

__all__ = ["Continuation", "FollowedRun", "Links", "Run", "Runs"]
