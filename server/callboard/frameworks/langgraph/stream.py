"""The stream of a graph, told to a turn: what its nodes say, and what they have returned.

It is LangGraph's event protocol v3 where there is one, else messages and updates: both tell each piece of
what models write, and what each node has returned.

Nodes that run side by side speak at once, so whoever began first has the floor: it is heard to the end, and the
others wait. Only afterwards is it known what a graph keeps of its models' words: what it does not is taken back.
"""

import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from langchain_core._api import suppress_langchain_beta_warning
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langgraph.pregel import Pregel
from langgraph.types import Interrupt
from pydantic_core import to_json

from callboard.frameworks.langgraph.hooks import Hooks, Namespace, Path, namespace_of, path_of
from callboard.frameworks.langgraph.messages import (
    Words,
    conversation_of,
    messages_in,
    messages_of_other_forms,
    words_of,
)
from callboard.frameworks.progress import report_of
from callboard.frameworks.turn import Turn

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


@dataclass(slots=True, eq=False)
class Speech:
    """The words of one model in one answer, or of a node in one message, in the graph at `namespace`.

    `task` is the run of the node, `told` how many of its words the turn has been told.
    """

    key: str
    namespace: Namespace
    task: str
    words: list[Words] = field(default_factory=list)
    told: int = 0
    ended: bool = False
    message_id: str | None = None
    """The id of the message by which a graph has kept it."""
    kept_by: set[Namespace] = field(default_factory=set)
    """The graphs whose state has that message."""
    blocks: dict[int, str] = field(default_factory=dict)
    """The text of each block of an answer in the event protocol, as far as it has come."""
    is_filtered: bool = False
    """A filter of the stream held text back. The graph's state may still have what the filter hides."""

    @property
    def text(self) -> str:
        """All that it says."""
        return "".join(words.text for words in self.words)


class Floor:
    """The speeches of a run, in the order in which they began."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._speeches: dict[str, Speech] = {}
        self._told: list[tuple[Speech, Words]] = []
        self._told_at = turn.call_events
        self._speaker: Speech | None = None
        self._last_unkept: Speech | None = None
        self._kept: Sequence[AIMessage] = ()

    def find(self, key: str, namespace: Namespace, task: str) -> Speech:
        """Return the speech of that key; it begins where there is none yet."""
        return self._speeches.setdefault(key, Speech(key, namespace, task))

    def add(self, speech: Speech, words: Words) -> None:
        """Add words to a speech."""
        speech.words.append(words)
        self._tell()

    def end(self, speech: Speech) -> None:
        """End a speech; the next has the floor."""
        speech.ended = True
        self._tell()

    def drop(self, has_failed: Callable[[Speech], bool]) -> None:
        """Take back what has failed and is said anew."""
        for speech in [one for one in self._speeches.values() if has_failed(one)]:
            self._forget(speech)

    def settle(self, namespace: Namespace, kept: Sequence[AIMessage], *, keeps_all: bool) -> None:
        """Take back what a step of the graph at `namespace`, which is over, has not kept of what was said.

        What an earlier step has kept is taken back too, where the state has lost it since, or has other words in its
        place: a guard has removed or rewritten the message. `keeps_all`: what no message has is said all the same.
        """
        over = [speech for speech in self._speeches.values() if speech.namespace == namespace]
        for speech in over:
            speech.ended = True
        for speech in over:
            if speech.text and not self._is_kept(speech, namespace, kept) and not keeps_all:
                self._last_unkept = speech
                self._forget(speech)
        self._tell()
        for speech in over:
            self._speeches.pop(speech.key, None)
        self._check(namespace, kept)
        if not namespace:
            self._kept = kept

    def refuse(self) -> None:
        """Take back all that can be: a guard has refused it, and the run ends."""
        self._speeches.clear()
        self._turn.refuse()

    def drop_unsettled(self) -> None:
        """Take back what the node that has failed said: no state has it."""
        for speech in list(self._speeches.values()):
            self._forget(speech)

    def _is_kept(self, speech: Speech, namespace: Namespace, kept: Sequence[AIMessage]) -> bool:
        message = next((one for one in kept if one.id == speech.key), None)
        message = message or next((one for one in kept if one.text == speech.text), None)
        if message is None:
            return False
        speech.message_id = message.id
        speech.kept_by.add(namespace)
        return True

    def _check(self, namespace: Namespace, kept: Sequence[AIMessage], *, is_last: bool = False) -> None:
        """Compare what was said since the last call with the state of the graph at `namespace`."""
        messages = {message.id: message for message in kept}
        for speech in {id(speech): speech for speech, _ in self._reachable if speech.message_id}.values():
            message = messages.get(speech.message_id)
            if message is None and namespace in speech.kept_by:
                self._retell(speech, [])
            elif message is not None:
                speech.kept_by.add(namespace)
                if message.text.strip() != speech.text.strip() and (is_last or not speech.is_filtered):
                    speech.words = words_of(message)
                    self._retell(speech, speech.words)

    def recall(self) -> None:
        """Say what was taken back last, where a graph keeps no messages: some have their answer elsewhere."""
        if self._last_unkept is not None:
            self._speeches[self._last_unkept.key] = self._last_unkept
            self._last_unkept.told = 0
        self.close()

    def close(self) -> None:
        """Say what still waits: the run is over."""
        for speech in self._speeches.values():
            speech.ended = True
        self._tell()
        self._check((), self._kept, is_last=True)

    def _tell(self) -> None:
        for speech in self._speeches.values():
            for words in speech.words[speech.told :]:
                self._say(speech, words)
            speech.told = len(speech.words)
            if not speech.ended:
                return

    def _say(self, speech: Speech, words: Words) -> None:
        if self._told_at != self._turn.call_events:
            # Nothing before a call's start or end can be taken back.
            self._told_at = self._turn.call_events
            self._told.clear()
        if words.text and speech is not self._speaker:
            self._speaker = speech
            self._turn.begin_paragraph()
        self._told.append((speech, words))
        self._turn.think(words.reasoning)
        self._turn.say(words.text)
        for source in words.sources:
            self._turn.cite(source)
        if words.files:
            self._turn.show_files(words.files)

    @property
    def _reachable(self) -> list[tuple[Speech, Words]]:
        """Return what can be taken back: what was said since the last start or end of a call."""
        return self._told if self._told_at == self._turn.call_events else []

    def _forget(self, speech: Speech) -> None:
        del self._speeches[speech.key]
        self._retell(speech, [])

    def _retell(self, changed: Speech, words: list[Words]) -> None:
        """Take back what can be, and say it again with these words of `changed`: none takes it back for good."""
        told = self._reachable
        if not any(speech is changed for speech, _ in told):
            return
        place = next(index for index, (speech, _) in enumerate(told) if speech is changed)
        others = [[one for one in part if one[0] is not changed] for part in (told[:place], told[place:])]
        self._turn.rewind()
        self._told = []
        self._speaker = None
        for speech, piece in [*others[0], *((changed, one) for one in words), *others[1]]:
            self._say(speech, piece)


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

    def fail(self, error: Exception) -> None:
        """Take back what the failure of the run leaves without a place in its state; a failing model's words stay."""
        if self._hooks.model_failure(error) is not None:
            return
        if any(GUARD_FAILED.search(note) for note in getattr(error, "__notes__", ())):
            self._floor.refuse()
        else:
            self._floor.drop_unsettled()

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
