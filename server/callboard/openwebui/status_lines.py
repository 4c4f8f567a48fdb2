"""Makes the data of Open WebUI's `status` events, the lines above an answer that show the run's progress.

The code of the pipe makes the lines, so they are the same with and without the pipe.
"""

import time
from typing import Any

from callboard._bundled_files import load_bundled_module
from callboard_protocol import CallEvent, Done, Error, Event, Plan, Status

UNUSED_FIELDS = {"tool_args", "result", "files", "embeds"}
"""The large fields of events that status lines do not use."""


_PIPE = load_bundled_module("pipe/callboard_pipe.py")


class StatusLines:
    """Makes the status lines of one run."""

    def __init__(self) -> None:
        self._activity = _PIPE.Activity(time.monotonic, _PIPE.Totals())
        self._activity.apply({"type": "run_start"})

    def lines(self, event: Event) -> list[dict[str, Any]]:
        """Return the data of the `status` events that this event adds."""
        activity = self._activity
        count = len(activity.lines)
        match event:
            case Done(finish_reason=reason):
                activity.close("stopped" if reason == "cancelled" else "")
            case Error():
                activity.close("failed")
            case Status() | Plan() | CallEvent():
                activity.apply(event.model_dump(mode="json", exclude=UNUSED_FIELDS))
            case _:
                pass
        return [{"description": line.words, "done": True} for line in activity.lines[count:]]
