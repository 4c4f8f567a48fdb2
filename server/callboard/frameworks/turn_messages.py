"""The messages of a turn so far, in the form of a request to a model."""

from collections.abc import Mapping
from io import StringIO

from callboard._formats import round_messages
from callboard.calls import EndedCall, RunningCall, ToolCall, follow_call
from callboard.models import ChatDict
from callboard.models.messages import content_text
from callboard_protocol import Event, Message, Rewind, ToolCallComplete, ToolCallError, ToolCallStart, UserMessage

Round = list[str]
"""The ids of calls that the model has made together."""


class TurnMessages:
    """Makes messages from the events of a turn: its texts, its own calls with their results, the user's messages."""

    def __init__(self) -> None:
        self._calls: dict[str, RunningCall | EndedCall] = {}
        self._text = StringIO()
        """The last part, which may grow."""
        self._parts: list[StringIO | Round | UserMessage] = [self._text]

    def add(self, event: Event) -> None:
        """Add an event. A call that goes on at this server may start again."""
        is_new = isinstance(event, ToolCallStart) and event.tool_call_id not in self._calls
        follow_call(self._calls, event)
        match event:
            case Message():
                self._text.write(event.content)
            case Rewind():
                self._text.seek(0)
                self._text.truncate()
            case UserMessage():
                self._begin_text(event)
            case ToolCallStart(parent_call_id="") if is_new:
                match self._parts[-2:]:
                    case [list() as calls, _] if not self._text.tell() and any(map(self._is_open, calls)):
                        calls.append(event.tool_call_id)
                    case _:
                        self._begin_text([event.tool_call_id])
            case ToolCallComplete() | ToolCallError() if self._text.tell():
                # A rewind does not reach beyond the end of a call.
                self._begin_text()

    def restore(self, answer: ChatDict, results: Mapping[str, str]) -> None:
        """Add an answer that another server has received, and the results of its calls that have ended, by call id."""
        self._text.write(content_text(answer.get("content")))
        for call in answer["tool_calls"]:
            made = call["function"]
            self.add(ToolCallStart(tool_call_id=call["id"], tool_name=made["name"], tool_args=made["arguments"]))
        for call_id, result in results.items():
            self.add(ToolCallComplete(tool_call_id=call_id, result=result))

    def _begin_text(self, *after: Round | UserMessage) -> None:
        self._text = StringIO()
        self._parts += [*after, self._text]

    def _is_open(self, call_id: str) -> bool:
        return isinstance(self._calls[call_id], RunningCall)

    def as_messages(self, replaced: Mapping[str, str]) -> list[ChatDict]:
        """Return the messages. `replaced` has the results that models get in place of others, by call id."""
        messages: list[ChatDict] = []
        text = ""
        for part in self._parts:
            match part:
                case StringIO():
                    text += part.getvalue()
                    continue
                case UserMessage():
                    messages += [{"role": "assistant", "content": text}] if text else []
                    messages.append({"role": "user", "content": part.content})
                case _:
                    calls = [ToolCall(one, self._calls[one].name, self._calls[one].start.tool_args) for one in part]
                    results = [replaced.get(one, self._calls[one].result_text or "") for one in part]
                    messages += round_messages(text, calls, results)
            text = ""
        return messages
