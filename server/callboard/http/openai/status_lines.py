"""What a run is doing, as the lines that Open WebUI shows above an answer. Pure."""

from typing import Any

from callboard.http.openai.calls import OpenCalls
from callboard_protocol import Event, Status, ToolCallStart, ToolStatus


class StatusLines:
    """Lines without repetition: Open WebUI writes the whole chat to its database for each."""

    def __init__(self) -> None:
        self._calls = OpenCalls()
        self._names: dict[str, str] = {}
        self._last: dict[str, Any] = {}

    def line(self, event: Event) -> dict[str, Any] | None:
        """The data of a `status` event, where there is something new to say; `done` where nothing is under way."""
        ended = self._calls.see(event)
        match event:
            case Status():
                words, done = event.content, event.done
            case ToolCallStart():
                self._names[event.tool_call_id] = event.tool_name
                words, done = f"Running {event.tool_name}", False
            case ToolStatus(data=data) if data.message:
                words, done = f"{self._names.get(event.tool_call_id, 'tool')}: {data.message}", False
            case _ if ended:
                words = f"{ended.tool_name} {'failed' if ended.failed else 'has answered'}"
                done = not len(self._calls)
            case _:
                return None
        line = {"description": words, "done": done}
        if line == self._last:
            return None
        self._last = line
        return line
