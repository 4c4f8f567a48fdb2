"""Status lines: what a run is doing, as the data of Open WebUI's `status` events above an answer.

They are those of the pipe, whose code makes them.
"""

import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from callboard._bundled_files import find_bundled_file
from callboard_protocol import CallEvent, Done, Error, Event, Status

UNREAD = {"tool_args", "result", "files", "embeds"}
"""The large fields of events, which no status line needs."""


def _load_pipe() -> Any:
    """Return the pipe as a module: Open WebUI loads that file by its text, so it is in no package."""
    spec = spec_from_file_location("callboard_pipe", find_bundled_file("pipe/callboard_pipe.py"))
    assert spec is not None
    assert spec.loader is not None, "it is a file of Python"
    module = module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_PIPE = _load_pipe()


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
