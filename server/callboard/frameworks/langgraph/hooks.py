"""Hooks on a LangGraph run, as a handler of LangChain's callbacks.

The handler sees every model request and every call of a run, anywhere in the graph, before the graph does. Some nodes
run in threads, so the turn is called from its own event loop.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, Self
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolCallChunk
from langchain_core.outputs import ChatGenerationChunk, LLMResult
from langchain_core.utils.utils import LC_ID_PREFIX
from langgraph.errors import GraphBubbleUp, GraphRecursionError

from callboard.calls import ToolCall, ToolResult
from callboard.calls.call import RejectedCall
from callboard.errors import AgentError, ModelError
from callboard.frameworks.failures import model_error, tool_error
from callboard.frameworks.langgraph.messages import (
    chunks_of_event,
    chunks_of_message,
    messages_in,
    read_arguments,
    rewrite_calls,
    to_files,
    to_messages,
    unreadable_error,
)
from callboard.frameworks.turn import AdapterTurn, to_text
from callboard.models.messages import content_text
from callboard.observers import ObservedRequest

Path = tuple[str, ...]
"""The names of the nodes that lead to a place in a graph and its subgraphs."""

Namespace = tuple[str, ...]
"""A path in which each node also has the id of its run (`node:id`), because a node may run twice, even in parallel."""

CallSource = Literal["tokens", "events"]
"""How the pieces of an answer's calls arrive: as chunks or in the event protocol."""


def namespace_of(namespace: Any) -> Namespace:
    """Return the namespace from its segments, or from segments joined by `|`."""
    segments = namespace.split("|") if isinstance(namespace, str) else namespace
    return tuple(segment for segment in segments if segment)


def path_of(namespace: Any) -> Path:
    """Return the path of a namespace."""
    return tuple(segment.partition(":")[0] for segment in namespace_of(namespace))


@dataclass(slots=True)
class GraphAnswer:
    """An answer of a model to `messages`, while it streams.

    `has_hooked_node`: a hooked tool node runs its calls, and refuses calls that cannot be read. `is_in_tool`: the model
    belongs to an agent inside a tool. `repeated`: the model has given this answer at another server, and is not asked.
    """

    messages: Sequence[BaseMessage]
    has_hooked_node: bool
    is_in_tool: bool = False
    repeated: AIMessage | None = None
    source: CallSource | None = None
    calls: dict[object, ToolCall] = field(default_factory=dict)
    request: ObservedRequest | None = None

    def receive(self) -> None:
        """Report a piece of the answer to observers."""
        if self.request is not None:
            self.request.receive()


class GraphHooks(BaseCallbackHandler):
    """The state of one run, updated by its models and tools. As a context manager it detects failures of models.

    `tool_nodes` are the paths of the hooked tool nodes, which start, end and refuse calls themselves. `calls`,
    `results` and `tool_errors` are kept by call id, as are `rounds`, all calls of the same answer. `paused` maps the
    ids of interrupts to the calls that wait for their answers. `interrupted` are the calls that have asked. `runs` are
    the calls' tasks, by call id and namespace of the tool node. `failed_messages` are the ids of answers during which a
    model failed.
    """

    raise_error = True
    run_inline = True

    def __init__(self, turn: AdapterTurn, agent_id: str, tool_nodes: Collection[Path]) -> None:
        self.turn = turn
        self.tool_nodes = tool_nodes
        self.hooked_graphs = {path[:-1] for path in tool_nodes}
        """The paths of the graphs that have hooked tool nodes."""
        self.calls: dict[str, ToolCall] = {}
        self.rounds: dict[str, Sequence[ToolCall]] = {}
        self.paused: dict[str, str] = {}
        self.interrupted: set[str] = set()
        self.runs: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self.results: dict[str, ToolMessage] = {}
        self.tool_errors: dict[str, BaseException] = {}
        self.failed_messages: set[str] = set()
        self.user_messages: dict[str | None, BaseMessage] = {}
        """The user's messages of this run, as the graph was given them, by id."""
        self.inner_calls: set[str] = set()
        """The calls of agents inside tools. They are counted when the model writes them."""
        self.repeated_id = ""
        """The id of the message that was given to the graph in place of a model's answer."""
        self._agent_id = agent_id
        self._loop = asyncio.get_running_loop()
        self._answers: dict[UUID, GraphAnswer] = {}
        self._failures: list[BaseException] = []
        self._starts: dict[str, asyncio.Future[None]] = {}
        self._calls_without_node: set[str] = set()
        self._last_messages: list[BaseMessage] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for task in [*self._starts.values(), *self.runs.values()]:
            task.cancel()
        if isinstance(error, GraphRecursionError):
            raise AgentError(f"The graph of '{self._agent_id}' took more than its limit of steps: {error}") from error
        if isinstance(error, Exception) and (failure := self.model_failure(error)):
            raise failure from error

    def model_failure(self, error: Exception) -> ModelError | None:
        """Return `error` as a `ModelError` if a model's failure ended the run, otherwise None."""
        return model_error(error, self._agent_id, always=any(error is failure for failure in self._failures))

    @property
    def last_request(self) -> list[BaseMessage] | None:
        """Return the messages for a last request without tools, once the turn's calls are used up and have ended.

        None before that; empty if the messages are unknown.
        """
        if not self.turn.calls.is_over_limit:
            return None
        answer = self._last_messages[-1:]
        calls = answer[0].tool_calls if answer and isinstance(answer[0], AIMessage) else []
        results = [self.results.get(call["id"] or "") for call in calls]
        ended = [result for result in results if result is not None]
        return [*self._last_messages, *ended] if len(ended) == len(results) else None

    async def start(self, call_id: str, name: str, arguments: Mapping[str, Any], *, asks_first: bool = False) -> None:
        """Start a call unless it has started, and return when the start is stored; see `CallRunner.start`."""
        call = self.calls.get(call_id) or ToolCall(call_id, name, to_text(arguments))
        self._start_soon(call, asks_first=asks_first)
        await asyncio.shield(self._starts[call_id])

    def refuse(self, call: ToolCall) -> None:
        """Report a call whose arguments cannot be read."""
        self._starts[call.id] = self._loop.create_future()
        self._starts[call.id].set_result(None)
        self.turn.calls.reject(RejectedCall(call, unreadable_error(call)))

    def note_replaced(self, message: BaseMessage) -> None:
        """Note a text that middleware has put in the place of a result or the question, for later turns."""
        known: BaseMessage | None
        match message:
            case ToolMessage(tool_call_id=key) if known := self.results.get(key):
                pass
            case HumanMessage(id=message_id) if known := self.user_messages.get(message_id):
                key = content_text(known.content)
            case _:
                return
        if (text := content_text(message.content)) != content_text(known.content):
            self.turn.context.replaced[key] = text

    def note_user_message(self, message: HumanMessage) -> HumanMessage:
        """Return the message with an id, by which middleware that replaces its text is noticed."""
        message = message.model_copy(update={"id": uuid4().hex})
        self.user_messages[message.id] = message
        return message

    async def end(self, message: ToolMessage) -> None:
        """End a call with its result in the graph. If the call has not started, start it first."""
        self.results[message.tool_call_id] = message
        call = self.calls.get(message.tool_call_id)
        if call is None:
            return
        await self.start(call.id, call.name, {})
        self.finish(message)

    def finish(self, message: ToolMessage) -> None:
        """End a started call with its result."""
        text = str(message.text)
        if message.status == "error":
            self.turn.calls.fail(message.tool_call_id, text)
        else:
            self.turn.calls.complete(message.tool_call_id, ToolResult(text, files=tuple(to_files(message))))

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],  # noqa: ARG002 - LangChain's contract
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        invocation_params: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Record the start of a model request."""
        metadata = metadata or {}
        parameters = invocation_params or {}
        path = path_of(metadata.get("langgraph_checkpoint_ns", ""))
        is_in_tool = any(path[:length] in self.tool_nodes for length in range(1, len(path)))
        answer = self._answers[run_id] = GraphAnswer(
            messages[0], has_hooked_node=path[:-1] in self.hooked_graphs, is_in_tool=is_in_tool
        )
        tools = parameters.get("tools") or ()
        # Not a request that middleware makes for itself.
        if tools and "lc_source" not in metadata and "ls_structured_output_format" not in (options or {}):
            answer.repeated = self._take_repeated(run_id)
        model = metadata.get("ls_model_name") or parameters.get("model") or ""
        self._call_in_loop(self._begin_request, answer, model, tools)

    def on_llm_new_token(self, token: object, *, chunk: object = None, run_id: UUID, **_: Any) -> None:  # noqa: ARG002 - LangChain's
        """Read a chunk of an answer."""
        if isinstance(chunk, ChatGenerationChunk) and isinstance(chunk.message, AIMessageChunk):
            self._read_calls(run_id, "tokens", chunk.message.tool_call_chunks)

    def on_stream_event(self, event: Mapping[str, Any], *, run_id: UUID, **_: Any) -> None:
        """Read a piece of an answer in the event protocol."""
        if event.get("event") != "message-start":
            self._read_calls(run_id, "events", chunks_of_event(event))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Replace the call ids of a whole answer by the store's ids, before other code sees the answer."""
        if (answer := self._answers.pop(run_id, None)) is None:
            return
        message = getattr(response.generations[0][0], "message", None) if response.generations else None
        self._call_in_loop(self._end_request, answer, message)
        if not isinstance(message, AIMessage):
            return
        whole = chunks_of_message(message)
        if len(whole) != len(answer.calls):
            answer.calls.clear()
            for piece in whole:
                self._add_to_call(answer, piece)
        if answer.is_in_tool:
            self._count_calls(answer)
        rewrite_calls(message, answer.calls.values(), has_hooked_node=answer.has_hooked_node)
        if answer.calls and answer.has_hooked_node:
            self._last_messages = [*answer.messages, message]
        calls = list(answer.calls.values())
        for call in calls:
            self.calls[call.id] = call
            self.rounds[call.id] = calls
            if not answer.has_hooked_node:
                self._calls_without_node.add(call.id)
                self._call_in_loop(self.refuse if read_arguments(call) is None else self._start_soon, call)

    def _count_calls(self, answer: GraphAnswer) -> None:
        """Count the calls of an agent inside a tool, and drop calls over the limit.

        The agent then ends without them.
        """
        for index, call in list(answer.calls.items()):
            self.inner_calls.add(call.id)
            if (refused := self.turn.calls.count(call.id, call.name)) is not None:
                del answer.calls[index]
                self._call_in_loop(self.turn.calls.reject, RejectedCall(call, refused))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Record the failure of a model request."""
        self.failed_messages.add(f"lc_run--{run_id}")
        self._failures.append(error)
        if (answer := self._answers.pop(run_id, None)) is not None:
            self._call_in_loop(self._end_request, answer, None, error)

    @property
    def may_repeat(self) -> bool:
        """Whether an answer that a model has given at another server is still to be given to the graph."""
        return bool(self.turn.context.unfinished) and not self.repeated_id

    def find_repeated(self, run_id: UUID) -> AIMessage | None:
        """Return the answer of a request whose model is not asked, because it has answered at another server."""
        answer = self._answers.get(run_id)
        return answer.repeated if answer else None

    def _take_repeated(self, run_id: UUID) -> AIMessage | None:
        if (answer := self.turn.take_unfinished_answer()) is None:
            return None
        [message] = to_messages([answer])
        message.id = self.repeated_id = f"{LC_ID_PREFIX}-{run_id}"
        return message if isinstance(message, AIMessage) else None

    def _begin_request(self, answer: GraphAnswer, model: str, tools: Sequence[Any]) -> None:
        self.turn.note_tools(tools)
        if answer.repeated is not None:
            return
        answer.request = self.turn.observe_request(model, len(answer.messages), len(tools))

    def _end_request(self, answer: GraphAnswer, message: object, error: BaseException | None = None) -> None:
        """Count the request's tokens and report its end."""
        tokens = None
        reason = None
        if isinstance(message, AIMessage):
            reason = message.response_metadata.get("finish_reason")
            if (usage := message.usage_metadata) is not None:
                tokens = self.turn.add_usage(
                    usage["input_tokens"],
                    usage["output_tokens"],
                    cached_tokens=usage.get("input_token_details", {}).get("cache_read"),
                    reasoning_tokens=usage.get("output_token_details", {}).get("reasoning"),
                )
        if answer.request is not None:
            answer.request.finish_reason = reason
            answer.request.usage = tokens
            answer.request.end(error)

    def on_tool_end(self, output: object, **_: Any) -> None:
        """End the call of a tool as soon as it has finished.

        The graph learns of it later, possibly after its run has ended.
        """
        for message in messages_in(output):
            if isinstance(message, ToolMessage) and message.tool_call_id in self._calls_without_node:
                self.results[message.tool_call_id] = message
                self._call_in_loop(self.finish, message)

    def on_tool_error(self, error: BaseException, *, tool_call_id: str | None = None, **_: Any) -> None:
        """Record the exception of a tool.

        Tool nodes do not pass it on, and nodes that are not hooked do not report it.
        """
        # What cancels a tool ends its call, for example the time limit; langchain-core reports it from 1.8 on.
        if tool_call_id is None or isinstance(error, GraphBubbleUp | asyncio.CancelledError):
            return
        self.tool_errors[tool_call_id] = error
        if tool_call_id in self._calls_without_node:
            self._call_in_loop(self.turn.calls.fail, tool_call_id, str(tool_error(error)))

    def _start_soon(self, call: ToolCall, *, asks_first: bool = False) -> None:
        if call.id not in self._starts:
            start = self.turn.calls.start(replace(call, arguments=call.arguments or "{}"), asks_first=asks_first)
            self._starts[call.id] = asyncio.ensure_future(start)

    def _read_calls(self, run_id: UUID, source: CallSource, pieces: Sequence[ToolCallChunk]) -> None:
        if (answer := self._answers.get(run_id)) is None:
            return
        self._call_in_loop(answer.receive)
        # Some models send both forms.
        if pieces and (answer.source or source) != source:
            return
        for piece in pieces:
            answer.source = source
            call = self._add_to_call(answer, piece)
            if call.name:
                self._call_in_loop(self.turn.show_arguments, call.id, call.name, piece["args"] or "")

    def _add_to_call(self, answer: GraphAnswer, piece: ToolCallChunk) -> ToolCall:
        """Add the piece to its call, and return the call."""
        index = piece.get("index")
        name = piece["name"] or ""
        call = answer.calls.get(index) or ToolCall(self.turn.claim_call_id(piece["id"]), name)
        answer.calls[index] = replace(call, name=call.name or name, arguments=f"{call.arguments}{piece['args'] or ''}")
        return answer.calls[index]

    def _call_in_loop(self, function: Callable[..., object], *arguments: Any) -> None:
        try:
            current_loop = asyncio.get_running_loop()
        except RuntimeError:
            current_loop = None
        if current_loop is self._loop:
            function(*arguments)
        else:
            self._loop.call_soon_threadsafe(function, *arguments)


current_hooks: ContextVar[GraphHooks | None] = ContextVar("callboard_langgraph_hooks", default=None)
