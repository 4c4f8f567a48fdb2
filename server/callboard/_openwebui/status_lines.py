"""Status lines: what a run is doing, as the data of Open WebUI's `status` events above an answer. Pure.

The same lines as the pipe's, which is a file of its own.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from callboard_protocol import (
    Done,
    Error,
    Event,
    Message,
    RunStart,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    find_ending,
)

Json = dict[str, Any]

MAX_LINES = 200
THINKING = "Thinking…"
ANSWERING = "Answering…"


class StatusLines:
    """The data of `status` events: what the run does, each step of its calls with new words, at the end what it took.

    No line is said twice in a row, and no more than `MAX_LINES` are: Open WebUI writes the whole chat to its
    database for each.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began_at_seconds = clock()
        self._open: dict[str, tuple[str, str]] = {}
        self._calls = 0
        self._endings: Counter[str] = Counter()
        self._last_word = ""
        self._last: Json = {}
        self._count = 0

    def lines(self, event: Event) -> list[Json]:
        """Return what there is to say that is new; the run's end is said in any case."""
        return [line for words, done in self._describe(event) if (line := self._make_line(words, done))]

    def _describe(self, event: Event) -> Iterator[tuple[str, bool]]:
        match event:
            case RunStart():
                yield THINKING, False
            case Message() if event.content.strip():
                yield ANSWERING, False
            case Status():
                self._last_word = event.content if event.done else ""
                yield event.content, event.done
            case ToolCallStart():
                self._calls += 1
                self._open[event.tool_call_id] = event.tool_name, ""
                yield f"Running {event.tool_name}", False
            case ToolStatus(data=data) if event.tool_call_id in self._open:
                name, words = self._open[event.tool_call_id]
                report = data.message.strip()
                if report not in ("", words):
                    self._open[event.tool_call_id] = name, report
                    yield f"{name}: {report}", False
            case ToolCallComplete() | ToolCallError() if event.tool_call_id in self._open:
                yield from self._describe_end(event)
            case Done() | Error():
                yield self._summarise(event), True
            case _:
                pass

    def _describe_end(self, event: ToolCallComplete | ToolCallError) -> Iterator[tuple[str, bool]]:
        name, _ = self._open.pop(event.tool_call_id)
        end = "done"
        if isinstance(event, ToolCallError):
            end = find_ending(event.code).label
            self._endings[end] += 1
        if event.duration_ms is not None:
            end += f" after {format_seconds(event.duration_ms / 1000)}"
        yield f"{name}: {end}", False
        if not self._open:
            yield THINKING, False

    def _summarise(self, event: Done | Error) -> str:
        parts = []
        if isinstance(event, Error):
            parts.append("failed")
        elif event.finish_reason == "cancelled":
            parts.append("stopped")
        if self._calls:
            parts.append(f"{self._calls} call" if self._calls == 1 else f"{self._calls} calls")
        parts += [f"{count} {ending}" for ending, count in self._endings.items()]
        parts.append(format_seconds(self._clock() - self._began_at_seconds))
        words = ", ".join(parts)
        # An agent's own last word stays to be read.
        return f"{self._last_word} · {words}" if self._last_word else words

    def _make_line(self, words: str, done: bool) -> Json | None:
        # One that is not done shimmers in Open WebUI, and for ever where that is stopped before the next.
        line = {"description": words, "done": True}
        if line == self._last or (self._count >= MAX_LINES and not done):
            return None
        self._last = line
        self._count += 1
        return line


def format_seconds(seconds: float) -> str:
    """Return the time as people read it."""
    return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
