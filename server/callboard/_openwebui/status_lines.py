"""Status lines: what a run is doing, as the data of Open WebUI's `status` events above an answer.

They are those of the pipe, whose code makes them.
"""

import time
from typing import Any

from callboard._bundled_files import load_bundled_module
from callboard_protocol import CallEvent, Done, Error, Event, Status

UNREAD = {"tool_args", "result", "files", "embeds"}
"""The large fields of events, which no status line needs."""


_PIPE = load_bundled_module("pipe/callboard_pipe.py")


class StatusLines:
    """The data of the `status` events of one run."""

    def __init__(self) -> None:
        self._activity = _PIPE.Activity(time.monotonic, _PIPE.Totals())
        self._activity.apply({"type": "run_start"})

    def lines(self, event: Event) -> list[dict[str, Any]]:
        """Return the lines that the event adds."""
        activity = self._activity
        count = len(activity.lines)
        match event:
            case Done(finish_reason=reason):
                activity.close("stopped" if reason == "cancelled" else "")
            case Error():
                activity.close("failed")
            case Status() | CallEvent():
                activity.apply(event.model_dump(exclude=UNREAD))
            case _:
                pass
        return [{"description": line.words, "done": True} for line in activity.lines[count:]]
