"""The body of `POST /v1/responses`, and the run for it.

The form is that of https://platform.openai.com/docs/api-reference/responses/create. A request has the whole
conversation, with earlier calls and outputs as items, or the id of the response that it continues
(`previous_response_id`). Unless `store` is false, the server stores responses; then clients may send an
`item_reference` in place of an item, or an `mcp_call` without its result.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import Any, assert_never

from pydantic import ConfigDict, Field, TypeAdapter

from callboard._http.openai.client_functions import Offer
from callboard._http.openai.input_items import (
    AgentMessageItem,
    CallItem,
    ClientCallItem,
    ClientOutputItem,
    InputItem,
    KeptId,
    McpItem,
    MessageItem,
    OtherItem,
    OutputItem,
    ReferenceItem,
    ToolsItem,
)
from callboard._http.openai.request import ClientContext, RequestBody
from callboard._http.openai.tool_registry import ToolRegistry
from callboard._runs import Continuation
from callboard.errors import RequestError
from callboard.models import select_options
from callboard.storage import RESPONSE_PREFIX, Responses
from callboard_protocol import ChatMessage, RunRequest, ToolCallPart, User
from callboard_protocol.wire import Wire

_ITEM: TypeAdapter[InputItem] = TypeAdapter(InputItem)


class ReasoningOptions(Wire):
    """Options for the model's reasoning."""

    effort: str | None = None


class TextOptions(Wire):
    """Options for the form of the answer."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


NOT_OPTIONS = frozenset(
    {"include", "truncation", "max_tool_calls", "context_management", "background_options", "moderation"}
    | {"client_metadata", "access_programs", "image"}
)
"""Fields of the Responses API that chat completions do not have; `client_metadata` is sent by Codex."""


class ResponseBody(RequestBody):
    """The body of a request. Fields that are not named here are options for the agent's model (`select_options`)."""

    model_config = ConfigDict(frozen=True, extra="allow")

    input: str | tuple[InputItem, ...] = Field(min_length=1)
    instructions: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    metadata: dict[str, str] | None = None
    previous_response_id: KeptId | None = None
    conversation: str | dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    background: bool | None = None
    store: bool | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the response is stored, so that later requests can refer to it. True by default, as at OpenAI."""
        return self.store is not False

    @property
    def continuation(self) -> Continuation:
        """The response that the request continues, and whether later requests may continue this one."""
        previous = self.previous_response_id.removeprefix(RESPONSE_PREFIX) if self.previous_response_id else None
        return Continuation(previous, self.is_kept, has_instructions=bool(self.instructions))

    @cached_property
    def offer(self) -> Offer:
        """The tools that the client offers, also those in its input. Raises `RequestError`."""
        items = () if isinstance(self.input, str) else self.input
        added = [tool for item in items if isinstance(item, (ToolsItem, ClientOutputItem)) for tool in item.tools]
        offer = ToolRegistry(self.tools or (), added).read_offer(self.tool_choice)
        left_out = [item.type for item in items if isinstance(item, OtherItem) and item.type != "reasoning"]
        return replace(offer, left_out=(*offer.left_out, *left_out))

    async def with_kept_items(self, kept: Responses) -> "ResponseBody":
        """Return the body with stored items in place of their ids.

        Raises `RequestError` for an item that is not stored for this user.
        """
        if isinstance(self.input, str):
            return self
        named = [item_id for item in self.input if (item_id := _read_id_alone(item))]
        if not named:
            return self
        found = {key: item for key, item in (await kept.find(named)).items() if not key.startswith(RESPONSE_PREFIX)}
        return self.model_copy(update={"input": tuple(_put_back(self.input, found))})

    def build_run(self, client: ClientContext, user: User | None) -> RunRequest:
        """Return the run. Raises `RequestError` for an option that agents do not support."""
        for name in ("conversation", "prompt"):
            if getattr(self, name):
                raise RequestError(f"{name} is not supported: send the input itself, or previous_response_id")
        if self.background:
            raise RequestError("background is not supported: stream the response, or wait for it")
        messages = [ChatMessage(role="system", content=self.instructions)] if self.instructions else []
        if isinstance(self.input, str):
            messages.append(ChatMessage(role="user", content=self.input))
        else:
            messages += [*_build_results(self.input), *_build_messages(self.input)]
        # The parameters with their names in chat completions.
        extra = self.model_extra or {}
        options = {name: extra[name] for name in extra if name not in NOT_OPTIONS} | {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_output_tokens,
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "response_format": _translate_format(self.text.format if self.text else None),
            "verbosity": self.text.verbosity if self.text else None,
        }
        return self._build_run(client, user, messages, select_options(options))


def _translate_format(asked: dict[str, Any] | None) -> dict[str, Any] | None:
    match asked:
        case None | {"type": "text"}:
            return None
        case {"type": "json_schema"}:
            return {"type": "json_schema", "json_schema": {key: asked[key] for key in asked if key != "type"}}
        case _:
            return asked


def _put_back(items: Iterable[InputItem], found: Mapping[str, Mapping[str, Any]]) -> Iterator[InputItem]:
    seen: set[str] = set()
    for item in items:
        item_id = _read_id_alone(item)
        if item_id is None:
            yield item
        elif item_id in found:
            # A client that keeps a call and its result separately refers to the item twice.
            if item_id not in seen:
                yield _ITEM.validate_python(found[item_id])
            seen.add(item_id)
        elif isinstance(item, ReferenceItem):
            raise RequestError(
                f"there is no item {item_id!r}: it was not stored (store: false), is older than "
                "CALLBOARD_RESPONSE_RETENTION_DAYS, or belongs to another user; send the item itself"
            )
        else:
            yield item


def _read_id_alone(item: InputItem) -> str | None:
    """Return the id of an item that was sent without its content, otherwise None."""
    match item:
        case ReferenceItem() | McpItem(output=None, error=None):
            return item.id
        case _:
            return None


def _build_results(items: Sequence[InputItem]) -> Iterator[ChatMessage]:
    """Yield the outputs whose calls are not in the items but in the response that the request continues."""
    called = {item.call_id for item in items if isinstance(item, (CallItem, ClientCallItem))}
    for item in items:
        if isinstance(item, (OutputItem, ClientOutputItem)) and item.call_id not in called:
            yield item.to_chat()


def _build_messages(items: Sequence[InputItem]) -> list[ChatMessage]:
    """Return the items as chat messages: adjacent calls are one round, followed by their results.

    Reasoning is left out, and so are items without content.
    """
    pieces = list(_translate(items))
    results: defaultdict[str | None, list[ChatMessage]] = defaultdict(list)
    for piece in pieces:
        if isinstance(piece, ChatMessage) and piece.role == "tool":
            results[piece.tool_call_id].append(piece)
    messages: list[ChatMessage] = []
    calls: list[ToolCallPart] = []
    for piece in pieces:
        if isinstance(piece, ToolCallPart):
            calls.append(piece)
            continue
        _end_round(messages, calls, results)
        if piece.role != "tool":
            messages.append(piece)
    _end_round(messages, calls, results)
    return messages


def _translate(items: Iterable[InputItem]) -> Iterator[ToolCallPart | ChatMessage]:
    """Yield calls, results and messages in order; in a round all calls come first, also those of the client."""
    for round_key, group in groupby(items, _read_round_key):
        of_round = list(group)
        if round_key is None:
            for item in of_round:
                match item:
                    case MessageItem() | AgentMessageItem() | CallItem() | ClientCallItem():
                        yield item.to_chat()
                    case OutputItem() | ClientOutputItem():
                        yield item.to_chat()
                    case OtherItem() | ToolsItem() | McpItem() | ReferenceItem():
                        pass
                    case _:
                        assert_never(item)
            continue
        # Some clients send them in the order in which they ended.
        ended = sorted((item for item in of_round if isinstance(item, McpItem)), key=lambda item: item.place[1])
        yield from (item.to_chat() for item in ended)
        yield from (item.to_chat() for item in of_round if isinstance(item, CallItem))
        for item in ended:
            if item.result is not None:
                yield ChatMessage(role="tool", tool_call_id=item.call_id, content=item.result)


def _read_round_key(item: InputItem) -> str | None:
    return item.round_key if isinstance(item, (McpItem, CallItem)) else None


def _end_round(
    messages: list[ChatMessage], calls: list[ToolCallPart], results: Mapping[str | None, list[ChatMessage]]
) -> None:
    """Move the calls into the messages: into the assistant's message right before them, with their results after it."""
    if not calls:
        return
    before = messages[-1] if messages else None
    if before and before.role == "assistant" and not before.tool_calls:
        messages[-1] = before.model_copy(update={"tool_calls": tuple(calls)})
    else:
        messages.append(ChatMessage(role="assistant", tool_calls=tuple(calls)))
    messages += (results[call.id].pop(0) for call in calls if results.get(call.id))
    calls.clear()
