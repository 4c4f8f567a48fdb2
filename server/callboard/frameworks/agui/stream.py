"""Translates the events of AG-UI runs for a turn."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from callboard.calls import ToolCall, ToolResult
from callboard.calls.call import parse_arguments
from callboard.errors import AgentError
from callboard.frameworks.agui.endpoint import Endpoint
from callboard.frameworks.failures import DETAIL_CHARS
from callboard.frameworks.turn import AdapterTurn, to_text
from callboard.models import ChatDict, TokenUsage
from callboard.models.chunks import read_count
from callboard.models.messages import content_text

Fields = Mapping[str, Any]

NO_RESULT = "[The agent's server sent no result of this call.]"

CLIENT_TOOLS = frozenset({"confirm_changes"})
"""Calls with which Agent Framework asks older clients; it also sends an interrupt for each."""


class EventTranslator:
    """Translates all runs of one turn: the first run, and the runs that continue after an interrupt.

    Calls are known by the endpoint's ids, which may not be unique in the chat.
    """

    def __init__(self, turn: AdapterTurn, endpoint: Endpoint) -> None:
        self.turn = turn
        self.messages: list[ChatDict] = []
        """The calls and results of the turn, with the endpoint's ids, for the request after an interrupt."""
        self.calls: dict[str, ToolCall] = {}
        """The calls that have started, with their ids in the chat."""
        self.ended: set[str] = set()
        self.decided: set[str] = set()
        """The calls whose approval the agent's server has been sent."""
        self.usage: TokenUsage | None = None
        """The tokens of the last run."""
        self._endpoint = endpoint
        self._drafts: dict[str, tuple[ToolCall, list[str]]] = {}
        """The calls whose arguments are being written, and the pieces of the arguments."""
        self._chunked = ""
        """The call of the last TOOL_CALL_CHUNK."""
        self._message_id: object = ""
        self._interrupts: list[ChatDict] = []
        self._last_text = ""
        self._failure = ""

    async def follow(self, events: AsyncIterator[Fields]) -> list[ChatDict]:
        """Translate a run until it ends, and return its interrupts, see `_read_interrupt`.

        Raises `AgentError` if the run fails, and the errors of the events.
        """
        self._interrupts = []
        self.usage = None
        async for event in events:
            kind = event.get("type")
            if self._chunked and not (kind == "TOOL_CALL_CHUNK" and event.get("toolCallId") in (None, self._chunked)):
                # Nothing else says that the last piece has come.
                await self._start(self._chunked)
                self._chunked = ""
            try:
                await self._read(to_text(kind), event)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise AgentError(f"{self._endpoint.subject} sent an event {kind} that is no event of AG-UI.") from error
        for call_id in list(self._drafts):
            await self._start(call_id)
        if self._interrupts:
            return self._interrupts
        if self.decided - self.ended:
            # LangGraph's servers then run the agent without its messages.
            self.fail("it sent no result of a call that was allowed: it may have lost the thread in a restart")
        for call_id in self.calls:
            await self.end(call_id, NO_RESULT)
        if not self.turn.has_text:
            self.turn.add_text(self._last_text)
        if not self.turn.has_text and self._failure:
            self.fail(self._failure)
        return []

    async def _read(self, kind: str, event: Fields) -> None:  # noqa: C901 - one case for each type
        """Read an event. Others are ignored: steps have the names of a graph's nodes, which say nothing to a user."""
        match kind:
            case "TEXT_MESSAGE_START" | "TEXT_MESSAGE_CONTENT" | "TEXT_MESSAGE_CHUNK":
                self._add_text(event)
            case "REASONING_MESSAGE_CONTENT" | "REASONING_MESSAGE_CHUNK" | "THINKING_TEXT_MESSAGE_CONTENT":
                self.turn.add_reasoning(to_text(event.get("delta")))
            case "TOOL_CALL_START" | "TOOL_CALL_ARGS" | "TOOL_CALL_CHUNK":
                self._add_arguments(event)
            case "TOOL_CALL_END":
                # LangGraph's servers lose arguments that a model sends in one piece with the name: a snapshot has them.
                if any(self._drafts.get(call_id := to_text(event.get("toolCallId")), ((), ()))[1]):
                    await self._start(call_id)
            case "TOOL_CALL_RESULT":
                await self.end(to_text(event.get("toolCallId")), event.get("content"))
            case "MESSAGES_SNAPSHOT" | "STATE_SNAPSHOT" | "RAW":
                await self._read_snapshot(event)
            case "ACTIVITY_SNAPSHOT":
                match event:
                    case {"content": {"message": str(message)}} | {"activityType": str(message)}:
                        self.turn.show_status(message)
            case "CUSTOM" if event.get("name") == "on_interrupt":
                # Of LangGraph's servers, with an object as JSON.
                value, raw = event.get("value"), event.get("rawEvent")
                read = parse_arguments(value) if isinstance(value, str) else value
                interrupt_id = raw.get("id") if isinstance(raw, Mapping) else None
                value = read if isinstance(read, Mapping) else value
                self._interrupts.append({"id": interrupt_id, "value": value, "command": True})
            case "RUN_FINISHED":
                self._finish(event)
            case "RUN_ERROR":
                self.fail(to_text(event.get("message")) or self._failure or "it gave no reason")

    def _add_text(self, event: Fields) -> None:
        # The agent repeats what it needs of a sub-agent's answer.
        if event.get("subagentRunId"):
            return
        message_id = event.get("messageId") or self._message_id
        if message_id != self._message_id:
            self._message_id = message_id
            self.turn.begin_paragraph()
        self.turn.add_text(to_text(event.get("delta")))

    def _add_arguments(self, event: Fields) -> None:
        call_id = to_text(event.get("toolCallId")) or self._chunked
        self._draft(call_id, to_text(event.get("toolCallName")))
        if found := self._drafts.get(call_id):
            self._chunked = call_id if event["type"] == "TOOL_CALL_CHUNK" else ""
            draft, pieces = found
            pieces.append(to_text(event.get("delta")))
            self.turn.show_arguments(draft.id, draft.name, pieces[-1])

    def _draft(self, call_id: str, name: str) -> None:
        """Note a call whose arguments follow. LangGraph's servers send calls again after an interrupt."""
        if call_id and name and name not in CLIENT_TOOLS and not (call_id in self.calls or call_id in self._drafts):
            self._drafts[call_id] = ToolCall(self.turn.claim_call_id(call_id), name), []

    async def _start(self, call_id: str, arguments: Fields | str = "") -> None:
        if found := self._drafts.pop(call_id, None):
            draft, pieces = found
            call = replace(draft, arguments=arguments or "".join(pieces) or {})
            self.note(call_id, call, self.turn.draft)
            await self.turn.calls.start(call, runs_at=self._endpoint.host)

    def note(self, call_id: str, call: ToolCall, text_before: str) -> None:
        """Note a call for its result, and for the request after an interrupt."""
        self.calls[call_id] = call
        function = {"name": call.name, "arguments": call.arguments_text}
        if not self.messages or self.messages[-1]["role"] == "tool":
            self.messages.append({"role": "assistant", "content": text_before, "tool_calls": []})
        self.messages[-1]["tool_calls"].append({"id": call_id, "type": "function", "function": function})

    async def end(self, call_id: str, content: object, error: object = None) -> None:
        """End a call with its result or error, once."""
        await self._start(call_id)
        if call_id in self.ended or not (call := self.calls.get(call_id)):
            return
        self.ended.add(call_id)
        text = content_text(content) or to_text(content)
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
        if error:
            self.turn.calls.fail(call.id, to_text(error))
        else:
            self.turn.calls.complete(call.id, ToolResult(text))

    async def _read_snapshot(self, event: Fields) -> None:
        """Read arguments, results, the answer or an error from a snapshot or raw event: some have no other place.

        Messages have AG-UI's form or LangChain's.
        """
        found = event.get("snapshot") or event.get("event") or event
        self._failure = _find_error(found) or self._failure
        match found:
            case {"messages": [*messages]}:
                pass
            case {"data": {"output": message}}:
                messages = [message]
            case _:
                return
        calls: list[Fields] = []
        results: list[Fields] = []
        for message in messages:
            match message:
                case {"role": "user"} | {"type": "human"}:
                    # Calls of earlier turns may have the same ids.
                    calls, results, self._last_text = [], [], ""
                case {"toolCalls": [_, *_] as made} | {"tool_calls": [_, *_] as made}:
                    calls += made
                    self._last_text = ""
                case {"role": "tool" | "assistant"} | {"type": "tool" | "ai"}:
                    # A result may be the answer, for example with `return_direct` of LangChain.
                    results.append(message)
                    self._last_text = content_text(message.get("content"))
        for call in calls:
            function = call.get("function", call)
            if "messages" in found:
                self._draft(call["id"], function["name"])
            await self._start(call["id"], function["args"] if "args" in function else function["arguments"])
        for result in results:
            call_id = to_text(result.get("toolCallId") or result.get("tool_call_id"))
            await self.end(call_id, result.get("content"), result.get("error"))

    def _finish(self, event: Fields) -> None:
        for usage in event.get("usage") or ():
            names = ("inputTokens", "outputTokens", "cachedInputTokens", "reasoningTokens")
            read, written, cached, reasoning = (read_count(usage, name) for name in names)
            added = self.turn.add_usage(read, written, cached_tokens=cached, reasoning_tokens=reasoning)
            self.usage = added + (self.usage or TokenUsage())
        match event:
            case {"outcome": {"interrupts": [*interrupts]}}:
                # LangGraph's servers may send each interrupt in both forms, and know both forms of an answer.
                is_command = bool(self._interrupts)
                self._interrupts = [{**_read_interrupt(one), "command": is_command} for one in interrupts]

    def fail(self, reason: str) -> NoReturn:
        """End the run with the reason of the agent's server. Raises `AgentError`."""
        words = " ".join(reason[:DETAIL_CHARS].split()).rstrip(".")
        raise AgentError(f"{self._endpoint.subject} failed: {words}. Look at the log of its server.")


def _read_interrupt(interrupt: Fields) -> ChatDict:
    """Return the fields of an interrupt that are kept. `value` is the question of the agent's code."""
    match interrupt:
        case {"metadata": {"langgraph": {"raw": value}}} if value is not None:
            pass
        case {"message": str(value)} if value:
            pass
        case {"reason": reason, "metadata": {**metadata}}:
            # Of Strands.
            value = {"question": reason, **metadata}
        case _:
            value = interrupt.get("reason")
    return {**{name: interrupt.get(name) for name in ("id", "toolCallId", "responseSchema")}, "value": value}


def _find_error(found: object) -> str:
    """Return the error in a raw event or a state, "" if there is none."""
    match found:
        case {"error": {"message": error}} | {"error": error} | {"type": "error", "message": error} if error:
            return to_text(error)
        case {"event": str(name), "data": data} if "error" in name:
            return _find_error(data) or to_text(data)
    return ""
