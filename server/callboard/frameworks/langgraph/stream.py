"""Translates the stream of a graph for a turn.

The stream is LangGraph's event protocol v3. It has every piece that models write and every value that nodes return.
"""

import re
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any, Self
from uuid import uuid4

from langchain_core._api import suppress_langchain_beta_warning
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.pregel import Pregel
from langgraph.stream import CustomTransformer, UpdatesTransformer
from langgraph.types import Interrupt

from callboard.frameworks.langgraph.hooks import GraphHooks, Namespace, Path, namespace_of, path_of
from callboard.frameworks.langgraph.messages import (
    MessagePiece,
    convert_untyped_messages,
    messages_in,
    messages_in_state,
    to_pieces,
)
from callboard.frameworks.langgraph.sequencer import MessageSequencer, StreamedMessage
from callboard.frameworks.progress import to_status_report
from callboard.frameworks.turn import to_text

Graph = Pregel[Any, Any, Any, Any]

_UNSEEN = object()
"""The todos of a graph whose state has not been seen yet."""

GUARD_FAILED_NOTE = re.compile(r"^During task with name '[^']*(\.after_(model|agent)|post_model_hook)'")
"""LangGraph's note on an exception of a node that checks an answer: of LangChain's middleware or its older agent."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a stream, from the graph at `namespace`.

    `data` depends on `mode`. `messages`: a message or a piece of one, and its metadata. `updates`: a mapping of nodes
    to their return values. `values`: the graph's state after a step. `custom`: data that a node itself reports. Other
    modes are ignored.
    """

    namespace: Namespace
    mode: str
    data: Any

    @property
    def path(self) -> Path:
        """The path of the graph."""
        return path_of(self.namespace)


async def stream_parts(graph: Graph, given: object, context: Any) -> AsyncGenerator[Part, None]:
    """Yield the parts of a run until its end or next interrupt. `context` is passed to the graph's nodes."""
    with suppress_langchain_beta_warning():
        transformers = [UpdatesTransformer, CustomTransformer]
        options: Any = {} if context is None else {"context": context}
        run = await graph.astream_events(given, graph.config, version="v3", transformers=transformers, **options)
    async with run:
        async for event in run:
            yield Part(namespace_of(event["params"]["namespace"]), event["method"], event["params"]["data"])


class EventTranslator:
    """Translates one run, from its graph's stream."""

    def __init__(self, hooks: GraphHooks, answers: Collection[str]) -> None:
        self._hooks = hooks
        self._turn = hooks.turn
        self._answers = answers
        self._sequencer = MessageSequencer(hooks.turn)
        self._messages: list[BaseMessage] = []
        self._whole_messages: list[tuple[StreamedMessage, AIMessage]] = []
        self._has_text = False
        self._todos: object = _UNSEEN

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """On a failure, take back text that is in no state. Text of a model that failed stays."""
        if not isinstance(error, Exception) or self._hooks.model_failure(error) is not None:
            return
        if any(GUARD_FAILED_NOTE.search(note) for note in getattr(error, "__notes__", ())):
            self._sequencer.discard_answer()
        else:
            self._sequencer.withdraw_all()

    async def follow(self, graph: Graph, given: object, context: object) -> Sequence[Interrupt]:
        """Translate the run until it ends or interrupts, and return the interrupts.

        `context` is passed to the graph's nodes.
        """
        interrupts: list[Interrupt] = []
        async with aclosing(stream_parts(graph, given, context)) as stream:
            async for part in stream:
                match part.mode:
                    case "messages":
                        self._handle_message(part)
                    case "updates":
                        interrupts += part.data.get("__interrupt__", ())
                        await self._handle_update(part)
                        self._send_whole_messages()
                        self._send_structured_response(part)
                    case "values":
                        self._reconcile(part)
                        self._show_todos(part)
                    case "custom" if report := to_status_report(part.data).message:
                        # Only nodes report here. Progress of tools is reported on their calls.
                        self._turn.show_status(report)
                if self._hooks.last_request is not None:
                    return ()
        return list({interrupt.id: interrupt for interrupt in interrupts}.values())

    def end(self) -> None:
        """Send the text that still waits. If there is no answer, send the last message of the state.

        These are the results of the last calls if a tool ended the graph, for example by `return_direct`.
        """
        self._send_whole_messages()
        self._sequencer.close()
        self._turn.finish_answer()
        if self._turn.has_text or self._turn.calls.is_over_limit:
            return
        results = list(takewhile(lambda message: isinstance(message, ToolMessage), reversed(self._messages)))
        last = [message for message in self._messages[-1:] if isinstance(message, AIMessage)]
        if text := "\n\n".join(filter(None, (message.text for message in reversed(results or last)))):
            self._turn.add_text(text)
        elif not self._answers:
            self._sequencer.restore_withdrawn()

    def _handle_message(self, part: Part) -> None:
        """Send the text of the graph's own models.

        Models inside tools and requests that middleware makes are ignored.
        """
        piece, metadata = part.data
        namespace = namespace_of(metadata.get("langgraph_checkpoint_ns", ""))
        if "lc_source" in metadata or not self._is_shown(path_of(namespace)):
            return
        run_id = metadata.get("run_id")
        key = f"lc_run--{run_id}" if run_id else str(getattr(piece, "id", None))
        if key == self._hooks.repeated_id:
            return
        if isinstance(piece, Mapping) and piece.get("event") == "message-start":
            key = str(piece.get("id") or key)
        streamed = self._sequencer.find(key, namespace[:-1], namespace[-1] if namespace else "")
        if not streamed.pieces:
            # A node writes a new message if its model failed and it, or a fallback, was asked again.
            failed = self._hooks.failed_messages
            self._sequencer.withdraw_failed(lambda known: known.key in failed and known.task == streamed.task)
        if isinstance(piece, AIMessage):
            # Kept until the node's update, in which calls may end first: a node that limits calls explains its reason
            # in a message.
            self._whole_messages.append((streamed, piece))
        else:
            self._add(streamed, piece)

    def _send_whole_messages(self) -> None:
        for streamed, message in self._whole_messages:
            self._add(streamed, message)
        self._whole_messages.clear()

    def _add(self, streamed: StreamedMessage, piece: object) -> None:
        for part in (*to_pieces(piece), *_find_withheld_text(streamed, piece)):
            self._sequencer.add(streamed, part)
            self._has_text = self._has_text or bool(part.text)
        if not isinstance(piece, Mapping) or piece.get("event") == "message-finish":
            self._sequencer.end(streamed)

    def _is_shown(self, path: Path) -> bool:
        if any(path[:length] in self._hooks.tool_nodes for length in range(1, len(path) + 1)):
            return False
        return not self._answers or any(node in self._answers for node in path)

    def _reconcile(self, part: Part) -> None:
        """Compare the messages of a step with the graph's state after it."""
        self._send_whole_messages()
        kept = [message for message in messages_in(part.data) if isinstance(message, AIMessage)]
        self._sequencer.reconcile(part.namespace, kept, keeps_all=bool(self._answers))
        if not part.namespace:
            self._messages = messages_in_state(part.data)

    def _show_todos(self, part: Part) -> None:
        """Show the todos of the graph's state as the plan, when they change in this turn.

        LangChain's `TodoListMiddleware`, which deepagents use, keeps them there. Subgraphs have their own.
        """
        if part.namespace or not isinstance(part.data, Mapping):
            return
        todos = part.data.get("todos")
        if self._todos is not _UNSEEN and todos != self._todos and todos is not None:
            self._turn.show_plan(todos)
        self._todos = todos

    async def _handle_update(self, part: Part) -> None:
        """Start calls that no hooked tool node runs before their node runs, and end calls by their results."""
        for node, returned in part.data.items():
            for message in convert_untyped_messages(returned):
                if isinstance(message, ToolMessage):
                    await self._hooks.end(message)
                elif isinstance(message, AIMessage) and self._is_shown((*part.path, node)):
                    # LangGraph streams only messages of models and message objects, not messages in these forms.
                    self._add(self._sequencer.find(uuid4().hex, part.namespace, node), message)
        for message in messages_in(part.data):
            self._hooks.note_replaced(message)
            match message:
                case AIMessage(tool_calls=[_, *_]):
                    self._has_text = False
                    known = [call for call in message.tool_calls if call["id"] in self._hooks.calls]
                    for call in () if part.path in self._hooks.hooked_graphs else known:
                        await self._hooks.start(call["id"] or "", call["name"], call["args"])
                case ToolMessage():
                    await self._hooks.end(message)

    def _send_structured_response(self, part: Part) -> None:
        """Send a structured answer, unless the model wrote it as text."""
        for update in chain.from_iterable(one if isinstance(one, list) else [one] for one in part.data.values()):
            if isinstance(update, Mapping) and "structured_response" in update and not self._has_text:
                self._turn.add_text(to_text(update["structured_response"]))


def _find_withheld_text(streamed: StreamedMessage, piece: object) -> Iterator[MessagePiece]:
    """Yield the end of a block's text that came only with the block's last event, because middleware withheld it."""
    match piece:
        case {"event": "content-block-start", "index": int(index), "content": {"type": "text", "text": str(text)}}:
            streamed.blocks[index] = text
        case {"event": "content-block-delta", "index": int(index), "delta": {"type": "text-delta", "text": str(text)}}:
            streamed.blocks[index] = streamed.blocks.get(index, "") + text
        case {"event": "content-block-finish", "index": int(index), "content": {"type": "text", "text": str(text)}}:
            sent = streamed.blocks.get(index, "")
            if text != sent:
                streamed.is_filtered = True
                if text.startswith(sent):
                    yield MessagePiece(text[len(sent) :])
        case _:
            pass
