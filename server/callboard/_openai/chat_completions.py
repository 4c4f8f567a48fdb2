"""Chat completions: the body of a request, and the answer as chunks or as one completion. Pure.

The form is that of https://platform.openai.com/docs/api-reference/chat. In addition to `content` there may be
`reasoning_content` (as in DeepSeek, vLLM and llama.cpp) and `images` (as in OpenRouter: pictures by the model).
`tool_calls` are only calls of functions that the client offered, never calls that ran on this server.

The whole completion does not have text that the agent has taken back. A stream cannot remove such text: a note for
readers follows it.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict

from callboard._openai.answer import (
    OpenAIAnswer,
    build_citation,
    build_error_body,
    forbid_repetition,
    write_note_below,
)
from callboard._openai.client_functions import ClientCalls, Json, Offer
from callboard._openai.request import ClientContext, RequestBody, ToolActivity, refuse_empty
from callboard.agents.notices import PICTURE_TOOL
from callboard.calls import EndedCall, RunningCall
from callboard.errors import RequestError
from callboard.models.model import select_options
from callboard.openwebui.drawing import DetailsWriter, StatusLines, write_block
from callboard_protocol import (
    CallEvent,
    ChatMessage,
    Done,
    Error,
    Event,
    Message,
    Reasoning,
    Rewind,
    RunRequest,
    RunStart,
    Source,
    Usage,
    User,
)
from callboard_protocol.wire import Wire

_OWN_FIELDS = {"annotations", "images", "reasoning_content"}
"""Fields that our own answers add to the text; few endpoints accept them in a request."""


_FINISH_REASONS = {"length": "length", "content_filter": "content_filter", "refusal": "content_filter"}
"""OpenAI's finish reasons, by ours; all others are `stop`. OpenAI has none for a refusal; its text is in `refusal`."""


def _translate_functions(messages: Any) -> Any:
    """Return the messages with calls in OpenAI's older form (`function_call`, `role: function`) in the current form."""
    if not isinstance(messages, list):
        return messages
    translated = []
    count = 0
    for message in messages:
        match message:
            case {"role": "assistant", "function_call": {} as function, **rest}:
                count += 1
                call = {"id": f"fn{count:07d}", "type": "function", "function": function}
                message = {"role": "assistant", **rest, "tool_calls": [call]}
            case {"role": "function", **rest}:
                message = {**rest, "role": "tool", "tool_call_id": f"fn{count:07d}"}
        translated.append(message)
    return translated


class StreamOptions(Wire):
    """`include_usage`: the last chunk has the number of tokens."""

    include_usage: bool | None = None


class ChatBody(RequestBody):
    """The body of a request. Fields that are not named here are options for the agent's model (`select_options`)."""

    model_config = ConfigDict(frozen=True, extra="allow")

    messages: Annotated[tuple[ChatMessage, ...], AfterValidator(refuse_empty), BeforeValidator(_translate_functions)]
    stream_options: StreamOptions | None = None
    n: int | None = None
    functions: tuple[Any, ...] | None = None
    function_call: str | dict[str, Any] | None = None

    @cached_property
    def offer(self) -> Offer:
        """The functions that the client offers. Raises `RequestError`."""
        offer = super().offer
        return replace(offer, ignored=(*offer.ignored, "functions")) if self.functions else offer

    def build_run(self, client: ClientContext, user: User | None) -> RunRequest:
        """Return the run. Raises `RequestError` for an option that agents do not support."""
        if self.n not in (None, 1):
            raise RequestError(f"n is {self.n}: an agent gives one answer; ask again for another")
        if self.function_call not in (None, "auto", "none"):
            raise RequestError("function_call is OpenAI's older form and is not supported: use tools and tool_choice")
        options = select_options(self.model_extra or {})
        return self._build_run(client, user, [_remove_own_fields(message) for message in self.messages], options)


def _remove_own_fields(message: ChatMessage) -> ChatMessage:
    if message.role != "assistant" or _OWN_FIELDS.isdisjoint(message.model_extra or ()):
        return message
    return ChatMessage.model_validate(message.model_dump(exclude=_OWN_FIELDS))


class ChatAnswer(OpenAIAnswer):
    """Builds one chat completion; `created` is in seconds since the epoch."""

    last_frame = b"data: [DONE]\n\n"

    def __init__(self, run_id: str, body: ChatBody, created: int, activity: ToolActivity, *, is_drawn: bool) -> None:
        """`is_drawn`: by Open WebUI, so tags in the model's text are escaped, or it would show them as blocks."""
        self._shows_calls = activity == "details"
        guard = DetailsWriter() if is_drawn or self._shows_calls else None
        super().__init__(ClientCalls(run_id, body.offer.form), guard)
        self._head: Json = {"id": f"chatcmpl-{run_id}", "created": created, "model": body.model}
        self._wants_usage = bool(body.stream_options and body.stream_options.include_usage)
        self._status = StatusLines() if activity == "status" else None
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._images: list[Json] = []
        self._annotations: list[Json] = []
        self._tool_calls: list[Json] = []
        self._usage: Json | None = None
        self._finish_reason = "stop"
        self._mark()

    def feed(self, event: Event) -> list[Json]:
        """Return the chunks for an event."""
        return [*self._show_status(event), *super().feed(event)]

    def fail(self, failure: Error) -> list[Json]:
        """Return the last parts of the stream of a failed run."""
        shown = forbid_repetition(failure) if self.has_started_calls else failure
        return [*self._show_status(failure), *self._list_additions(), build_error_body(shown)]

    def whole(self) -> Json:
        """Return the completion. To be called after the last event."""
        message: Json = {"role": "assistant", "content": "".join(self._text), "refusal": "".join(self._refusal) or None}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._images:
            message["images"] = self._images
        if self._annotations:
            message["annotations"] = self._annotations
        if self._tool_calls:
            message |= {"content": message["content"] or None, "tool_calls": self._tool_calls}
        choice = {"index": 0, "message": message, "finish_reason": self._finish_reason, "logprobs": None}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": self._usage}

    def _translate(self, event: Event) -> Iterator[Json]:
        match event:
            case RunStart():
                yield self._build_chunk({"role": "assistant", "content": ""})
            case Message():
                yield from self._add_message(event)
            case Reasoning(content=content):
                thought = self._show_thought(content)
                self._reasoning.append(thought)
                yield self._build_chunk({"reasoning_content": thought})
            case Rewind():
                yield from self._take_back()
            case Source():
                self._cite(event)
            case Usage():
                self._usage = {
                    "prompt_tokens": event.input_tokens,
                    "completion_tokens": event.output_tokens,
                    "total_tokens": event.total_tokens,
                    "prompt_tokens_details": {"cached_tokens": event.cached_tokens},
                    "completion_tokens_details": {"reasoning_tokens": event.reasoning_tokens},
                }
            case Done():
                yield from self._end(event)
            case CallEvent():
                yield from self._follow_call(event)
            case _:
                pass

    def _show_status(self, event: Event) -> Iterator[Json]:
        """Yield chunks with status lines, if the client wants them."""
        for line in self._status.lines(event) if self._status else ():
            # Open WebUI shows the field `event` of a chunk; other clients ignore unknown fields.
            yield self._build_frame([]) | {"event": {"type": "status", "data": line}}

    def _write_call(self, call: RunningCall | EndedCall) -> Iterator[Json]:
        """Yield the block of a call that has ended, if the client wants blocks, and the pictures of the model."""
        if isinstance(call, RunningCall):
            return
        if self._guard and self._shows_calls:
            block = write_block(
                call.start, call.display_text, error_code=call.error_code, is_from_text=call.is_from_text
            )
            yield from self._append(self._guard.add_block(block))
        if call.name == PICTURE_TOOL:
            urls = [file.get("url") for file in call.files]
            self._images += [{"type": "image_url", "image_url": {"url": url}} for url in urls if url]

    def _list_additions(self) -> Iterator[Json]:
        """Yield all pictures and all citations, each as one list in one chunk.

        OpenAI's helpers for streams cannot join lists without an `index`: Python's raises an error, Node's keeps the
        last list. https://github.com/openai/openai-python/blob/main/src/openai/lib/streaming/_deltas.py
        """
        if self._images:
            yield self._build_chunk({"images": self._images})
        if self._annotations:
            yield self._build_chunk({"annotations": self._annotations})

    def _mark(self) -> None:
        self._kept = (len(self._text), len(self._reasoning))

    def _take_back(self) -> Iterator[Json]:
        texts, thoughts = self._kept
        self._guard = deepcopy(self._kept_guard)
        draft = "".join(self._text[texts:])
        del self._text[texts:]
        del self._reasoning[thoughts:]
        kept_chars = sum(map(len, self._text))
        for annotation in self._annotations:
            citation = annotation["url_citation"]
            place = min(citation["end_index"], kept_chars)
            citation["start_index"] = place
            citation["end_index"] = place
        if draft:
            yield self._build_chunk({"content": write_note_below(draft)})

    def _add_message(self, message: Message) -> Iterator[Json]:
        """Add text of the model; a refusal is also added as text, because many clients show only text."""
        yield from self._add_text(message.content)
        if message.refusal:
            self._refusal.append(message.content)
            yield self._build_chunk({"refusal": message.content})

    def _append(self, text: str) -> Iterator[Json]:
        if text:
            self._text.append(text)
            yield self._build_chunk({"content": text})

    def _cite(self, source: Source) -> None:
        if citation := build_citation(source, sum(map(len, self._text))):
            self._annotations.append({"type": "url_citation", "url_citation": citation})

    def _end(self, event: Done) -> Iterator[Json]:
        if self._guard:
            yield from self._append(self._guard.finish())
        yield from self._list_additions()
        # `max_turns` is `stop`: the agent has given a whole answer without further calls.
        self._finish_reason = _FINISH_REASONS.get(event.finish_reason, "stop")
        if self._client_calls:
            self._finish_reason = "tool_calls"
            self._tool_calls = [call.model_dump() for call in self._client_calls]
            # LlamaIndex reads only the first call of a chunk.
            for index, call in enumerate(self._tool_calls):
                yield self._build_chunk({"tool_calls": [{"index": index, **call}]})
        yield self._build_chunk({}, self._finish_reason)
        if self._wants_usage and self._usage:
            yield self._build_frame([]) | {"usage": self._usage}

    def _build_chunk(self, delta: Json, finish_reason: str | None = None) -> Json:
        return self._build_frame([{"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}])

    def _build_frame(self, choices: list[Json]) -> Json:
        return {**self._head, "object": "chat.completion.chunk", "choices": choices}
