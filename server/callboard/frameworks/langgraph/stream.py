"""The stream of a graph, told to a turn: what its nodes say, and what they have returned.

It is LangGraph's event protocol v3 where there is one, else messages and updates: both tell each piece of
what models write, and what each node has returned.
"""

import re
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Self
from uuid import uuid4

from langchain_core._api import suppress_langchain_beta_warning
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langgraph.pregel import Pregel
from langgraph.types import Interrupt
from pydantic_core import to_json

from callboard.frameworks.langgraph.floor import Floor, Speech
from callboard.frameworks.langgraph.hooks import Hooks, Namespace, Path, namespace_of, path_of
from callboard.frameworks.langgraph.messages import (
    Words,
    conversation_of,
    messages_in,
    messages_of_other_forms,
    words_of,
)
from callboard.frameworks.progress import report_of

try:
    from langgraph.stream import CustomTransformer, UpdatesTransformer
except ImportError:
    # LangGraph 1.1 has no such protocol.
    UpdatesTransformer = None  # type: ignore[assignment,misc] # before LangGraph 1.2

Graph = Pregel[Any, Any, Any, Any]

GUARD_FAILED = re.compile(r"^During task with name '[^']*(\.after_(model|agent)|post_model_hook)'")
"""LangGraph's note on the error of a node that checks an answer, of LangChain's middleware or its older agent."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a stream, told by the graph at `namespace`.

    `data` is a pair of a message, or a piece of one, and its metadata (`mode` is `messages`), a
    mapping of nodes to what each has returned (`updates`), the graph's state after a step
    (`values`), or what a node itself reports (`custom`); other modes are none of ours.
    """

    namespace: Namespace
    mode: str
    data: Any

    @property
    def path(self) -> Path:
        """The path of the graph."""
        return path_of(self.namespace)


async def stream_parts(graph: Graph, given: object, context: Any) -> AsyncGenerator[Part, None]:
    """Yield a run of the graph from its input to its end or next interrupt; `context` is what its nodes get."""
    if UpdatesTransformer is None:
        modes: Any = ["messages", "updates", "values", "custom"]
        old: Any = graph.astream(given, graph.config, stream_mode=modes, subgraphs=True, context=context)
        async with aclosing(old) as stream:
            async for namespace, mode, data in stream:
                yield Part(namespace_of(namespace), mode, data)
        return
    with suppress_langchain_beta_warning():
        transformers = [UpdatesTransformer, CustomTransformer]
        options: Any = {} if context is None else {"context": context}
        run = await graph.astream_events(given, graph.config, version="v3", transformers=transformers, **options)
    async with run:
        async for event in run:
            yield Part(namespace_of(event["params"]["namespace"]), event["method"], event["params"]["data"])


class EventTranslator:
    """The translator of one run, from what its graph streams."""

    def __init__(self, hooks: Hooks, answers: Collection[str]) -> None:
        self._hooks = hooks
        self._turn = hooks.turn
        self._answers = answers
        self._floor = Floor(hooks.turn)
        self._last_message: BaseMessage | None = None
        self._whole: list[tuple[Speech, AIMessage]] = []
        self._said = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Take back what a failure leaves without a place in the graph's state; what a failing model said stays."""
        if not isinstance(error, Exception) or self._hooks.model_failure(error) is not None:
            return
        if any(GUARD_FAILED.search(note) for note in getattr(error, "__notes__", ())):
            self._floor.refuse()
        else:
            self._floor.drop_unsettled()

    async def follow(self, graph: Graph, given: object, context: object) -> Sequence[Interrupt]:
        """Tell the run until it ends, or waits for the interrupts that are returned; its nodes get `context`."""
        interrupts: list[Interrupt] = []
        async with aclosing(stream_parts(graph, given, context)) as stream:
            async for part in stream:
                match part.mode:
                    case "messages":
                        self._say(part)
                    case "updates":
                        interrupts += part.data.get("__interrupt__", ())
                        await self._tell_calls(part)
                        self._say_whole()
                        self._say_result(part)
                    case "values":
                        self._settle(part)
                    case "custom" if report := report_of(part.data).message:
                        # Of a node: what a tool reports is its call's.
                        self._turn.show_status(report)
                if self._hooks.last_request is not None:
                    return ()
        return list({one.id: one for one in interrupts}.values())

    def end(self) -> None:
        """Say what has waited, and where nobody was heard the state's last message: the run is over."""
        self._say_whole()
        self._floor.close()
        if self._turn.has_said or self._turn.calls.is_over_limit:
            return
        if isinstance(self._last_message, AIMessage) and (text := str(self._last_message.text)):
            self._turn.say(text)
        elif not self._answers:
            self._floor.recall()

    def _say(self, part: Part) -> None:
        """Tell what the graph's own models say; not what a tool's do, nor what middleware asks for itself."""
        piece, metadata = part.data
        namespace = namespace_of(metadata.get("langgraph_checkpoint_ns", ""))
        if "lc_source" in metadata or not self._is_heard(path_of(namespace)):
            return
        run_id = metadata.get("run_id")
        key = f"lc_run--{run_id}" if run_id else str(getattr(piece, "id", None))
        if isinstance(piece, Mapping) and piece.get("event") == "message-start":
            key = str(piece.get("id") or key)
        speech = self._floor.find(key, namespace[:-1], namespace[-1] if namespace else "")
        if not speech.words:
            # The same node speaks anew where its model has failed: it, or another in its place, was asked again.
            failed = self._hooks.failed_messages
            self._floor.drop(lambda one: one.key in failed and one.task == speech.task)
        if isinstance(piece, AIMessage) and not isinstance(piece, AIMessageChunk):
            # Its node may end calls with it, which comes first: a node that limits calls tells why it has.
            self._whole.append((speech, piece))
        else:
            self._add(speech, piece)

    def _say_whole(self) -> None:
        for speech, message in self._whole:
            self._add(speech, message)
        self._whole.clear()

    def _add(self, speech: Speech, piece: object) -> None:
        for words in (*words_of(piece), *_held_back(speech, piece)):
            self._floor.add(speech, words)
            self._said = self._said or bool(words.text)
        if _is_last(piece):
            self._floor.end(speech)

    def _is_heard(self, path: Path) -> bool:
        if any(path[:length] in self._hooks.tool_nodes for length in range(1, len(path) + 1)):
            return False
        return not self._answers or any(node in self._answers for node in path)

    def _settle(self, part: Part) -> None:
        """Keep of what was said in a step what the state has after it."""
        self._say_whole()
        kept = [message for message in messages_in(part.data) if isinstance(message, AIMessage)]
        self._floor.settle(part.namespace, kept, keeps_all=bool(self._answers))
        if not part.namespace:
            self._last_message = next(reversed(conversation_of(part.data)), None)

    async def _tell_calls(self, part: Part) -> None:
        """Begin calls of tools that no tool node runs before their node is run, and end with their results."""
        for node, returned in part.data.items():
            for message in messages_of_other_forms(returned):
                if isinstance(message, ToolMessage):
                    await self._hooks.end(message)
                elif isinstance(message, AIMessage) and self._is_heard((*part.path, node)):
                    # LangGraph does not stream it: it is neither its model's nor its own object.
                    self._add(self._floor.find(uuid4().hex, part.namespace, node), message)
        for message in messages_in(part.data):
            match message:
                case AIMessage(tool_calls=[_, *_]):
                    self._said = False
                    known = [call for call in message.tool_calls if call["id"] in self._hooks.calls]
                    for call in () if part.path in self._hooks.served else known:
                        await self._hooks.start(call["id"] or "", call["name"], call["args"])
                case ToolMessage():
                    await self._hooks.end(message)

    def _say_result(self, part: Part) -> None:
        """Say a structured answer: some models write it as their text, the others as a call."""
        for update in part.data.values():
            if isinstance(update, Mapping) and "structured_response" in update and not self._said:
                self._turn.say(to_json(update["structured_response"], serialize_unknown=True).decode())


def _held_back(speech: Speech, piece: object) -> Iterator[Words]:
    """Yield the end of a block's text that did not come before its last event: middleware may hold it back so far."""
    match piece:
        case {"event": "content-block-start", "index": int(index), "content": {"type": "text", "text": str(text)}}:
            speech.blocks[index] = text
        case {"event": "content-block-delta", "index": int(index), "delta": {"type": "text-delta", "text": str(text)}}:
            speech.blocks[index] = speech.blocks.get(index, "") + text
        case {"event": "content-block-finish", "index": int(index), "content": {"type": "text", "text": str(text)}}:
            said = speech.blocks.get(index, "")
            if text != said:
                speech.is_filtered = True
                if text.startswith(said):
                    yield Words(text[len(said) :])
        case _:
            pass


def _is_last(piece: object) -> bool:
    """Return whether nothing of its message follows."""
    match piece:
        case Mapping():
            return piece.get("event") == "message-finish"
        case AIMessageChunk():
            return getattr(piece, "chunk_position", None) == "last"
        case _:
            return True
