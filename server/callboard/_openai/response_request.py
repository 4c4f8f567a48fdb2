"""The body of `POST /v1/responses`, and the run for it.

The form is that of https://platform.openai.com/docs/api-reference/responses/create. A request has the whole
conversation, with earlier calls and outputs as items, or the id of the response that it continues
(`previous_response_id`). Unless `store` is false, the server stores responses; then clients may send an
`item_reference` in place of an item, or an `mcp_call` without its result.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, TypeAdapter

from callboard._openai.client_functions import Offer
from callboard._openai.input_items import (
    AnyMessage,
    Call,
    CallItem,
    ClientCallItem,
    ClientOutputItem,
    InputItem,
    KeptId,
    McpItem,
    OtherItem,
    Output,
    ReferenceItem,
    ToolsItem,
)
from callboard._openai.offered_tools import read_response_offer
from callboard._openai.request import ClientContext, RequestBody, refuse_empty
from callboard.errors import RequestError
from callboard.models.model import select_options
from callboard.runs.conversation import Reference
from callboard.storage.sql.responses import Responses
from callboard.storage.values import RESPONSE_PREFIX
from callboard_protocol import ChatMessage, RunRequest, ToolCallPart, User
from callboard_protocol.wire import Wire

_ITEM: TypeAdapter[InputItem] = TypeAdapter(InputItem)


def _read_text(given: Any) -> Any:
    """Return the message for an input that is only a text."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}] if given else []
    return given


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

    input: Annotated[tuple[InputItem, ...], AfterValidator(refuse_empty), BeforeValidator(_read_text)]
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
    def is_stored(self) -> bool:
        """Whether the response is stored, so that later requests can refer to it. True by default, as at OpenAI."""
        return self.store is not False

    @property
    def reference(self) -> Reference:
        """The response that the request continues, and whether later requests may continue this one."""
        previous = self.previous_response_id.removeprefix(RESPONSE_PREFIX) if self.previous_response_id else None
        instruction_count = bool(self.instructions) + (self.offer.form is not None)
        return Reference(previous, self.is_stored, instruction_count)

    @cached_property
    def offer(self) -> Offer:
        """The tools that the client offers, also those in its input. Raises `RequestError`."""
        added = [tool for item in self.input if isinstance(item, (ToolsItem, ClientOutputItem)) for tool in item.tools]
        offer = read_response_offer(self.tools or (), added, self.tool_choice)
        ignored = [item.type for item in self.input if isinstance(item, OtherItem) and item.type != "reasoning"]
        return replace(offer, ignored=(*offer.ignored, *ignored))

    async def with_kept_items(self, kept: Responses) -> "ResponseBody":
        """Return the body with stored items in place of their ids.

        Raises `RequestError` for an item that is not stored for this user.
        """
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
        messages += _build_messages(self.input)
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


def _build_messages(items: Sequence[InputItem]) -> list[ChatMessage]:
    """Return the items as chat messages: adjacent calls are one round, followed by their results.

    Results whose calls are in the response that the request continues come first. Reasoning is left out, and so are
    items without content.
    """
    messages: list[ChatMessage] = []
    results: defaultdict[str, list[ChatMessage]] = defaultdict(list)
    called = {item.call_id for item in items if isinstance(item, (CallItem, ClientCallItem))}
    for item in items:
        if isinstance(item, Output):
            (results[item.call_id] if item.call_id in called else messages).append(item.to_chat())
        elif isinstance(item, McpItem) and item.result is not None:
            results[item.call_id].append(ChatMessage(role="tool", tool_call_id=item.call_id, content=item.result))
    calls: list[ToolCallPart] = []
    for round_key, group in groupby(items, _read_round_key):
        # Some clients send the calls of a round in the order in which they ended.
        for item in sorted(group, key=_read_place) if round_key else group:
            if isinstance(item, Call):
                calls.append(item.to_chat())
            elif isinstance(item, Output | AnyMessage):
                _end_round(messages, calls, results)
            if isinstance(item, AnyMessage):
                messages.append(item.to_chat())
        if round_key:
            _end_round(messages, calls, results)
    _end_round(messages, calls, results)
    return messages


def _read_round_key(item: InputItem) -> str | None:
    return item.round_key if isinstance(item, (McpItem, CallItem)) else None


def _read_place(item: InputItem) -> float:
    """Return the place of an item in its round; calls of the client come last."""
    return item.place[1] if isinstance(item, McpItem) else math.inf


def _end_round(
    messages: list[ChatMessage], calls: list[ToolCallPart], results: Mapping[str, list[ChatMessage]]
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
