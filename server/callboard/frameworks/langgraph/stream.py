"""What a graph streams: LangGraph's event protocol v3 where there is one, else messages and updates.

Both tell the same: each piece of what models write, and what each node has returned.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from langchain_core._api import suppress_langchain_beta_warning
from langchain_core.messages import AIMessage
from langgraph.pregel import Pregel

try:
    from langgraph.stream import UpdatesTransformer
except ImportError:
    # LangGraph 1.1 has no such protocol.
    UpdatesTransformer = None  # type: ignore[assignment,misc] # before LangGraph 1.2

Graph = Pregel[Any, Any, Any, Any]

Path = tuple[str, ...]
"""The names of the nodes that lead to a place in a graph and its subgraphs."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a stream, told by the graph at `path`.

    `data` is a pair of a message, or a piece of one, and its metadata (`mode` is `messages`), or a
    mapping of nodes to what each has returned (`updates`); other modes are none of ours.
    """

    path: Path
    mode: str
    data: Any


@dataclass(frozen=True, slots=True)
class Words:
    """A piece of what a model says, or thinks."""

    text: str = ""
    reasoning: str = ""


async def parts(graph: Graph, given: object) -> AsyncGenerator[Part, None]:
    """A run of the graph from its input to its end or its next interrupt."""
    if UpdatesTransformer is None:
        async with aclosing(_messages_and_updates(graph, given)) as stream:
            async for part in stream:
                yield part
        return
    with suppress_langchain_beta_warning():
        run = await graph.astream_events(given, graph.config, version="v3", transformers=[UpdatesTransformer])
    async with run:
        async for event in run:
            yield Part(path_of(event["params"]["namespace"]), event["method"], event["params"]["data"])


async def _messages_and_updates(graph: Graph, given: object) -> AsyncGenerator[Part, None]:
    stream = graph.astream(given, graph.config, stream_mode=["messages", "updates"], subgraphs=True)
    async with aclosing(stream):  # type: ignore[type-var] # it has aclose
        async for namespace, mode, data in stream:
            yield Part(path_of(namespace), mode, data)


def path_of(namespace: Any) -> Path:
    """The path that a namespace (`("node:task id", …)`, or those joined by `|`) is of."""
    segments = namespace.split("|") if isinstance(namespace, str) else namespace
    return tuple(segment.partition(":")[0] for segment in segments)


def words_of(piece: object) -> list[Words]:
    """What a piece of a message says: an event of the protocol, a chunk, or a whole message of a model."""
    match piece:
        case {"event": "content-block-delta", "delta": Mapping() as block}:
            return [_words(block)]
        case {"event": "content-block-start", "content": Mapping() as block}:
            return [_words(block)]
        case AIMessage():
            return [_words(block) for block in piece.content_blocks]
        case _:
            return []


def _words(block: Mapping[str, Any]) -> Words:
    match block.get("type"):
        case "text" | "text-delta":
            return Words(text=block.get("text") or "")
        case "reasoning" | "reasoning-delta":
            return Words(reasoning=block.get("reasoning") or "")
        case _:
            return Words()
