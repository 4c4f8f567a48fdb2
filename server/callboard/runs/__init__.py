"""A run's life: started, recorded, listened to, resumed, cancelled, given up.

Above: HTTP. Below: agents and history. Knows nothing of requests' routes or status codes.
"""

from callboard.runs.conversation import Continuation
from callboard.runs.links import Links
from callboard.runs.run import Run
from callboard.runs.runs import Runs, RunSettings

__all__ = ["Continuation", "Links", "Run", "RunSettings", "Runs"]
