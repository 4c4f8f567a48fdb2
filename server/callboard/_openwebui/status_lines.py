"""Makes the data of Open WebUI's `status` events, the lines above an answer that show the run's progress.

The code of the pipe makes the lines, so they are the same with and without the pipe.
"""

import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from callboard._bundled_files import find_bundled_file
from callboard_protocol import CallEvent, Done, Error, Event, Status

UNUSED_FIELDS = {"tool_args", "result", "files", "embeds"}
"""The large fields of events that status lines do not use."""


def _load_pipe() -> Any:
    """Return the pipe as a module. It is in no package, because Open WebUI loads the text of that file."""
    spec = spec_from_file_location("callboard_pipe", find_bundled_file("pipe/callboard_pipe.py"))
    assert spec is not None
    assert spec.loader is not None, "the pipe is a Python file"
    module = module_from_spec(spec)
    # Dataclasses look their module up in `sys.modules`.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_PIPE = _load_pipe()


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
            case Status() | CallEvent():
                activity.apply(event.model_dump(exclude=UNUSED_FIELDS))
            case _:
                pass
        return [{"description": line.words, "done": True} for line in activity.lines[count:]]
