"""The messages of a turn so far, in the form of a request to a model."""

from collections.abc import Mapping
from io import StringIO

from callboard._formats import round_messages
from callboard.calls import EndedCall, RunningCall, ToolCall, follow_call
from callboard.models import ChatDict
from callboard.models.messages import content_text
from callboard_protocol import Event, Message, Rewind, ToolCallComplete, ToolCallError, ToolCallStart, UserMessage


class TurnMessages:
    """Makes messages from the events of a turn: its texts, its own calls with their results, the user's messages."""

    def __init__(self) -> None:
        self._calls: dict[str, RunningCall | EndedCall] = {}
        self._text = StringIO()
        """The text since the last event that a rewind does not reach beyond."""
        self._parts: list[StringIO | RunningCall | UserMessage] = [self._text]

    def restore(self, answer: ChatDict, results: Mapping[str, str]) -> None:
        """Add an answer that another server has received, and the results of its calls that have ended, by call id."""
        self._text.write(content_text(answer.get("content")))
        for call in answer["tool_calls"]:
            made = call["function"]
            self.add(ToolCallStart(tool_call_id=call["id"], tool_name=made["name"], tool_args=made["arguments"]))
        for call_id, result in results.items():
            self.add(ToolCallComplete(tool_call_id=call_id, result=result))

    def add(self, event: Event) -> None:
        """Add an event. A call that goes on at this server may start again."""
        is_new = isinstance(event, ToolCallStart) and event.tool_call_id not in self._calls
        call = follow_call(self._calls, event)
        match event:
            case Message():
                self._text.write(event.content)
            case Rewind():
                self._text.seek(0)
                self._text.truncate()
            case UserMessage() | ToolCallStart() | ToolCallComplete() | ToolCallError():
                self._text = StringIO()
                if isinstance(event, UserMessage):
                    self._parts.append(event)
                elif isinstance(call, RunningCall) and is_new and not call.start.parent_call_id:
                    self._parts.append(call)
                self._parts.append(self._text)

    def as_messages(self, replaced: Mapping[str, str]) -> list[ChatDict]:
        """Return the messages, each call as a round of its own.

        `replaced` has the results that models get in place of others, by call id.
        """
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
                case RunningCall(start=start):
                    call = self._calls[start.tool_call_id]
                    result = replaced.get(start.tool_call_id, call.result_text or "")
                    made = ToolCall(start.tool_call_id, call.name, call.start.tool_args)
                    messages += round_messages(text, [made], [result])
            text = ""
        return messages
