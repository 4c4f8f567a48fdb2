"""Builds the state of an answer from the events of its run. Prints nothing."""

import time
from collections.abc import Mapping
from typing import Any

from callboard.calls import EndedCall, RunningCall, follow_call
from callboard_protocol import (
    Done,
    Error,
    Event,
    Message,
    Plan,
    Rewind,
    Source,
    Status,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    Usage,
)

WRITING_CALL = "Writing a tool call…"


class Answer:
    """The state of one answer."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        """The final texts before, between and after the calls. No rewind can remove them."""
        self.calls: dict[str, RunningCall | EndedCall] = {}
        self.sources: dict[str, str] = {}
        """The name and URL of each source, by the source's number."""
        self.status = ""
        """The status that the last event reports; empty if the last event reports none."""
        self.plan = ""
        """The summary of the agent's plan; empty without a plan."""
        self.ending: Done | Error | None = None
        self._open_text = ""
        self._total_tokens = 0
        self._began_at_seconds = time.monotonic()

    @property
    def text(self) -> str:
        """All final texts, without thoughts."""
        return "\n\n".join(self.texts)

    @property
    def running_calls(self) -> list[RunningCall]:
        """The calls that have not ended."""
        # Iterate over a copy: if a tool in this process prints, Rich calls this in the tool's thread.
        return [call for call in list(self.calls.values()) if isinstance(call, RunningCall)]

    @property
    def files(self) -> list[Mapping[str, Any]]:
        """The files of all calls."""
        return [file for call in self.calls.values() if isinstance(call, EndedCall) for file in call.files]

    @property
    def summary(self) -> str:
        """The number of calls, the time and the tokens of the answer: `2 calls, 4 s, 300 tokens`."""
        count = len(self.calls)
        calls = ["1 call" if count == 1 else f"{count} calls"] if count else []
        tokens = [f"{self._total_tokens:,} tokens"] if self._total_tokens else []
        return ", ".join([*calls, format_seconds(time.monotonic() - self._began_at_seconds), *tokens])

    def apply(self, event: Event) -> str:
        """Add an event. Return the text that is final from now on, because no rewind can remove it; "" without one."""
        follow_call(self.calls, event)
        self.status = ""
        match event:
            case Message():
                self._open_text += event.content
            case Rewind():
                self._open_text = ""
            case Status():
                self.status = event.content
            case ToolCallArgsDelta():
                self.status = WRITING_CALL
            case Plan():
                self.plan = event.summary
            case Source():
                self._add_source(event)
            case Usage():
                self._total_tokens = event.total_tokens
            case Done() | Error():
                self.ending = event
                return self._finish_text()
            case ToolCallStart() | ToolCallComplete() | ToolCallError():
                return self._finish_text()
        return ""

    def _finish_text(self) -> str:
        text = self._open_text.strip()
        self._open_text = ""
        if text:
            self.texts.append(text)
        return text

    def _add_source(self, event: Source) -> None:
        name = event.source.get("name") or event.source.get("url")
        for about in event.metadata or ({},):
            number = about.get("source_number", len(self.sources) + 1)
            url = about.get("source") or event.source.get("url") or ""
            self.sources[str(number)] = f"{about.get('name') or name}  {url}"


def format_seconds(seconds: float) -> str:
    """Return a duration in words: `4 s`, `under 1 s`."""
    return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
