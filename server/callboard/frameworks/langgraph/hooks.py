"""Hooks of a run of LangGraph: a handler of LangChain's callbacks.

It is told of every request and every call of a run, wherever in the graph they are made and
before the graph is told. What it says, it says from the loop of the turn: some nodes run in
threads.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, Self
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCallChunk
from langchain_core.outputs import ChatGenerationChunk, LLMResult
from langgraph.errors import GraphBubbleUp, GraphRecursionError
from pydantic_core import to_json

from callboard.calls import RejectedCall, ToolCall, ToolResult
from callboard.errors import AgentError, ModelError
from callboard.frameworks.failures import model_error, tool_error
from callboard.frameworks.langgraph.messages import (
    chunks_of_event,
    chunks_of_message,
    files_of,
    messages_in,
    read_arguments,
    rewrite_calls,
    unreadable_error,
)
from callboard.frameworks.turn import Turn
from callboard.observers import ObservedRequest

Path = tuple[str, ...]
"""The names of the nodes that lead to a place in a graph and its subgraphs."""

Namespace = tuple[str, ...]
"""A path whose nodes have the ids of their runs too (`node:id`): a node may run twice, or twice at once."""

CallSource = Literal["tokens", "events"]
"""The way in which the pieces of an answer's calls come: as chunks, or in the event protocol."""


def namespace_of(namespace: Any) -> Namespace:
    """Return the namespace from its segments, or from those joined by `|`."""
    segments = namespace.split("|") if isinstance(namespace, str) else namespace
    return tuple(segment for segment in segments if segment)


def path_of(namespace: Any) -> Path:
    """Return the path that a namespace (`("node:task id", …)`, or those joined by `|`) is of."""
    return tuple(segment.partition(":")[0] for segment in namespace_of(namespace))


@dataclass(slots=True)
class Answer:
    """The answer to what was `asked`, while it comes.

    `served`: a tool node of ours is told of its calls, and refuses those that cannot be read; `inner`: it is that of
    an agent in a tool.
    """

    asked: Sequence[BaseMessage]
    served: bool
    inner: bool = False
    source: CallSource | None = None
    calls: dict[object, ToolCall] = field(default_factory=dict)
    request: ObservedRequest | None = None

    def receive(self) -> None:
        """Note that a piece of it has come."""
        if self.request is not None:
            self.request.receive()


class Hooks(BaseCallbackHandler):
    """A run as its models and tools tell it; as a context, it says which of its failures are a model's.

    `tool_nodes` are those that are hooked: they start, end and refuse calls themselves. Calls, what
    the graph has as their results, and what their tools raised are kept by the calls' ids; `paused` are
    the calls that wait for an answer, by their interrupts' ids, and `failed_messages` the ids of the
    answers in which a model failed.
    """

    raise_error = True
    run_inline = True

    def __init__(self, turn: Turn, agent_id: str, tool_nodes: Collection[Path]) -> None:
        self.turn = turn
        self.tool_nodes = tool_nodes
        self.served = {path[:-1] for path in tool_nodes}
        """The graphs with such nodes."""
        self.calls: dict[str, ToolCall] = {}
        self.paused: dict[str, str] = {}
        self.results: dict[str, ToolMessage] = {}
        self.tool_errors: dict[str, BaseException] = {}
        self.failed_messages: set[str] = set()
        self.counted: set[str] = set()
        """The calls of agents in tools, which count as the model writes them."""
        self._agent_id = agent_id
        self._loop = asyncio.get_running_loop()
        self._answers: dict[UUID, Answer] = {}
        self._failures: list[BaseException] = []
        self._starts: dict[str, asyncio.Future[None]] = {}
        self._unserved: set[str] = set()
        self._last: list[BaseMessage] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for start in self._starts.values():
            start.cancel()
        if isinstance(error, GraphRecursionError):
            raise AgentError(f"The graph of '{self._agent_id}' goes round without an end: {error}") from error
        if isinstance(error, Exception) and (failure := self.model_failure(error)):
            raise failure from error

    def model_failure(self, error: Exception) -> ModelError | None:
        """Return the failure of a model that has ended the run by `error`, None where it is another."""
        return model_error(error, self._agent_id, always=any(error is failure for failure in self._failures))

    @property
    def last_request(self) -> list[BaseMessage] | None:
        """Return what the model is to be sent once more, without tools: None until the turn's calls are used up.

        And until the last of them have ended; empty where that cannot be known.
        """
        if not self.turn.calls.is_over_limit:
            return None
        asked = self._last[-1:]
        calls = asked[0].tool_calls if asked and isinstance(asked[0], AIMessage) else []
        results = [self.results.get(call["id"] or "") for call in calls]
        ended = [result for result in results if result is not None]
        return [*self._last, *ended] if len(ended) == len(results) else None

    async def start(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> None:
        """Start a call, once; return when that is written down."""
        self._begin(
            self.calls.get(call_id) or ToolCall(call_id, name, to_json(arguments, serialize_unknown=True).decode())
        )
        await asyncio.shield(self._starts[call_id])

    def refuse(self, call: ToolCall) -> None:
        """Tell of a call whose arguments cannot be read."""
        self._starts[call.id] = self._loop.create_future()
        self._starts[call.id].set_result(None)
        self.turn.calls.reject(RejectedCall(call, unreadable_error(call)))

    async def end(self, message: ToolMessage) -> None:
        """End a call with the result that the graph has for it, and start it first where nobody did."""
        self.results[message.tool_call_id] = message
        call = self.calls.get(message.tool_call_id)
        if call is None:
            return
        await self.start(call.id, call.name, {})
        self.finish(message)

    def finish(self, message: ToolMessage) -> None:
        """End a call that has been started with its result."""
        text = str(message.text)
        if message.status == "error":
            self.turn.calls.fail(message.tool_call_id, text)
        else:
            self.turn.calls.complete(message.tool_call_id, ToolResult(text, files=tuple(files_of(message))))

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 - LangChain's contract
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        invocation_params: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Note a request that begins."""
        metadata = metadata or {}
        parameters = invocation_params or {}
        path = path_of(metadata.get("langgraph_checkpoint_ns", ""))
        inner = any(path[:length] in self.tool_nodes for length in range(1, len(path)))
        answer = self._answers[run_id] = Answer(messages[0], served=path[:-1] in self.served, inner=inner)
        model = metadata.get("ls_model_name") or parameters.get("model") or ""
        self._tell(self._begin_request, answer, model, len(parameters.get("tools") or ()))

    def on_llm_new_token(self, token: object, *, chunk: object = None, run_id: UUID, **_: Any) -> None:  # noqa: ARG002 - LangChain's
        """Read a piece of an answer."""
        if isinstance(chunk, ChatGenerationChunk) and isinstance(chunk.message, AIMessageChunk):
            self._read(run_id, "tokens", chunk.message.tool_call_chunks)

    def on_stream_event(self, event: Mapping[str, Any], *, run_id: UUID, **_: Any) -> None:
        """Read a piece of an answer, in the event protocol."""
        if event.get("event") != "message-start":
            self._read(run_id, "events", chunks_of_event(event))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Give the calls of a whole answer the ids that the store has, before anything else sees it."""
        if (answer := self._answers.pop(run_id, None)) is None:
            return
        message = getattr(response.generations[0][0], "message", None) if response.generations else None
        self._tell(self._end_request, answer, message)
        if not isinstance(message, AIMessage):
            return
        whole = chunks_of_message(message)
        if len(whole) != len(answer.calls):
            answer.calls.clear()
            for piece in whole:
                self._add_to_call(answer, piece)
        if answer.inner:
            self._count(answer)
        rewrite_calls(message, answer.calls.values(), served=answer.served)
        if answer.calls and answer.served:
            self._last = [*answer.asked, message]
        for call in answer.calls.values():
            self.calls[call.id] = call
            if not answer.served:
                self._unserved.add(call.id)
                self._tell(self.refuse if read_arguments(call) is None else self._begin, call)

    def _count(self, answer: Answer) -> None:
        """Count the calls of an agent in a tool, and drop those that are too many: it then ends with what it has."""
        for index, call in list(answer.calls.items()):
            self.counted.add(call.id)
            if (refused := self.turn.calls.count(call.id, call.name)) is not None:
                del answer.calls[index]
                self._tell(self.turn.calls.reject, RejectedCall(call, refused))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Note a request that failed."""
        self.failed_messages.add(f"lc_run--{run_id}")
        self._failures.append(error)
        if (answer := self._answers.pop(run_id, None)) is not None:
            self._tell(self._end_request, answer, None, error)

    def _begin_request(self, answer: Answer, model: str, tools: int) -> None:
        answer.request = self.turn.ask_model(model, len(answer.asked), tools)

    def _end_request(self, answer: Answer, message: object, error: BaseException | None = None) -> None:
        """Count what a request has cost, and tell of its end."""
        spent = None
        reason = None
        if isinstance(message, AIMessage):
            reason = message.response_metadata.get("finish_reason")
            if (usage := message.usage_metadata) is not None:
                spent = self.turn.add_usage(
                    usage["input_tokens"],
                    usage["output_tokens"],
                    cached_tokens=usage.get("input_token_details", {}).get("cache_read"),
                    reasoning_tokens=usage.get("output_token_details", {}).get("reasoning"),
                )
        if answer.request is not None:
            answer.request.finish_reason = reason
            answer.request.usage = spent
            answer.request.end(error)

    def on_tool_end(self, output: object, **_: Any) -> None:
        """End the call of a tool that has ended: here, before what it is a part of can end; the graph is told later."""
        for message in messages_in(output):
            if isinstance(message, ToolMessage) and message.tool_call_id in self._unserved:
                self.results[message.tool_call_id] = message
                self._tell(self.finish, message)

    def on_tool_error(self, error: BaseException, *, tool_call_id: str | None = None, **_: Any) -> None:
        """Note what a tool raised: its tool node does not say, and one that is not ours does not say that it did."""
        if tool_call_id is None or isinstance(error, GraphBubbleUp):
            return
        self.tool_errors[tool_call_id] = error
        if tool_call_id in self._unserved:
            self._tell(self.turn.calls.fail, tool_call_id, str(tool_error(error)))

    def _begin(self, call: ToolCall) -> None:
        if call.id not in self._starts:
            start = self.turn.calls.start(replace(call, arguments=call.arguments or "{}"))
            self._starts[call.id] = asyncio.ensure_future(start)

    def _read(self, run_id: UUID, source: CallSource, pieces: Sequence[ToolCallChunk]) -> None:
        if (answer := self._answers.get(run_id)) is None:
            return
        self._tell(answer.receive)
        # Some models tell both ways.
        if pieces and (answer.source or source) != source:
            return
        for piece in pieces:
            answer.source = source
            call = self._add_to_call(answer, piece)
            if call.name:
                self._tell(self.turn.show_arguments, call.id, call.name, piece["args"] or "")

    def _add_to_call(self, answer: Answer, piece: ToolCallChunk) -> ToolCall:
        """Return the call that the piece belongs to, with it."""
        index = piece.get("index")
        name = piece["name"] or ""
        call = answer.calls.get(index) or ToolCall(self.turn.claim(piece["id"]), name)
        answer.calls[index] = replace(call, name=call.name or name, arguments=f"{call.arguments}{piece['args'] or ''}")
        return answer.calls[index]

    def _tell(self, say: Callable[..., object], *what: Any) -> None:
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            say(*what)
        else:
            self._loop.call_soon_threadsafe(say, *what)


current_hooks: ContextVar[Hooks | None] = ContextVar("callboard_langgraph_hooks", default=None)
