"""The parts that answers of chat completions and of responses share. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from copy import deepcopy
from http import HTTPStatus
from typing import ClassVar

from callboard._openai.client_functions import ClientCalls, Json
from callboard.calls import EndedCall, RunningCall, follow_call
from callboard.http.errors import build_error_object
from callboard.openwebui.drawing import DetailsWriter, close_markdown
from callboard_protocol import (
    CallEvent,
    Error,
    Event,
    Source,
    ToolCallStart,
    ToolStatus,
)

TAKEN_BACK = "\n\n> The answer starts again. Ignore the text above that follows the last tool call.\n\n"
"""The note in a stream, where text that was sent cannot be removed."""

CANCELLED = "cancelled"
TOOLS_HAVE_RUN = "tools_already_run"

ALREADY_RUN = "Tools of this request have already run: a program must not repeat the request, or they run again."

# An error about the request is a client error; a wrong key or address of the server's model endpoint is not.
_STATUS = {
    "model_refused": HTTPStatus.BAD_REQUEST,
    "model_rate_limited": HTTPStatus.TOO_MANY_REQUESTS,
    "model_timeout": HTTPStatus.GATEWAY_TIMEOUT,
    "run_timeout": HTTPStatus.GATEWAY_TIMEOUT,
    "model_unauthorized": HTTPStatus.BAD_GATEWAY,
    "model_unreachable": HTTPStatus.BAD_GATEWAY,
    "model_cut_off": HTTPStatus.BAD_GATEWAY,
    "model_aborted": HTTPStatus.BAD_GATEWAY,
    "model_malformed_call": HTTPStatus.BAD_GATEWAY,
    "model_error": HTTPStatus.BAD_GATEWAY,
    "storage": HTTPStatus.SERVICE_UNAVAILABLE,
    "interrupted": HTTPStatus.SERVICE_UNAVAILABLE,
    CANCELLED: HTTPStatus.CONFLICT,
    TOOLS_HAVE_RUN: HTTPStatus.BAD_REQUEST,
}


def find_status(failure: Error) -> HTTPStatus:
    """Return the HTTP status for a run that has failed before its answer began."""
    return _STATUS.get(failure.code, HTTPStatus.INTERNAL_SERVER_ERROR)


def forbid_repetition(failure: Error, shown_code: str = "") -> Error:
    """Return the failure of a run that has called tools, as a client error, because clients repeat other requests.

    The Vercel AI SDK and LangChain.js repeat requests with the statuses 408, 409, 429 and every 5xx:
    https://github.com/vercel/ai/blob/main/packages/provider/src/errors/api-call-error.ts

    The Vercel AI SDK also repeats a request whose stream fails before any output, unless the type or the code says that
    the request is invalid; `rate_limit` in the code means "repeat": `openai-stream-error.ts` in
    https://github.com/vercel/ai/tree/main/packages/openai/src

    Codex repeats a response that fails after some output, unless its code is for example `invalid_prompt`:
    https://github.com/openai/codex/blob/main/codex-rs/codex-api/src/sse/responses.rs
    """
    return Error(message=f"{failure.message} {ALREADY_RUN}", code=TOOLS_HAVE_RUN, upstream_code=shown_code)


def build_error_body(failure: Error) -> Json:
    """Return OpenAI's error object; its code is that of the model's endpoint, if there is one."""
    return build_error_object(find_status(failure), failure.upstream_code or failure.code, failure.message)


class OpenAIAnswer(ABC):
    """Builds an answer in one of OpenAI's forms from the events of a run. Its generators yield the parts of a stream.

    `client_calls` are the calls of the client's functions. `guard` escapes tags in the model's text for clients that
    would show them as blocks.
    """

    last_frame: ClassVar[bytes] = b""
    """The last frame of a stream without an error."""

    def __init__(self, client_calls: ClientCalls, guard: DetailsWriter | None) -> None:
        self._client_calls = client_calls
        self._guard = guard
        self._kept_guard = deepcopy(guard)
        """The guard at the last start or end of a call; a rewind goes back to it."""
        self._calls: dict[str, RunningCall | EndedCall] = {}
        self.has_started_calls = False
        """Whether a tool of this server has been called."""

    def feed(self, event: Event) -> list[Json]:
        """Return the stream parts for an event."""
        self.has_started_calls |= isinstance(event, ToolCallStart)
        return [part for shown in self._client_calls.filter(event) for part in self._translate(shown)]

    @abstractmethod
    def fail(self, failure: Error) -> list[Json]:
        """Return the last stream parts of a failed run."""

    @abstractmethod
    def whole(self) -> Json:
        """Return the answer so far."""

    @abstractmethod
    def _translate(self, event: Event) -> Iterator[Json]: ...

    @abstractmethod
    def _write_call(self, call: RunningCall | EndedCall) -> Iterator[Json]:
        """Yield the parts for a call that has started or ended."""

    @abstractmethod
    def _append(self, text: str) -> Iterator[Json]:
        """Add text whose tags are escaped."""

    @abstractmethod
    def _mark(self) -> None:
        """Remember the current end of the answer; a rewind goes back to it."""

    def _follow_call(self, event: CallEvent) -> Iterator[Json]:
        call = follow_call(self._calls, event)
        if call is None or isinstance(event, ToolStatus):
            return
        if isinstance(call, EndedCall):
            del self._calls[call.id]
        yield from self._write_call(call)
        self._kept_guard = deepcopy(self._guard)
        self._mark()

    def _add_text(self, text: str) -> Iterator[Json]:
        """Add text of the model, with tags escaped so that it cannot fake a block."""
        yield from self._append(self._guard.add_text(text) if self._guard else text)

    def _show_thought(self, text: str) -> str:
        """Return a piece of reasoning; Open WebUI draws it as Markdown too."""
        return self._guard.break_tags(text) if self._guard else text


def write_note_below(draft: str) -> str:
    """Return the note below a text that is taken back, after the end of any open code block in that text."""
    return close_markdown(draft) + TAKEN_BACK


def build_citation(source: Source, position: int) -> Json | None:
    """Return the source as a citation at that position of the text, None if it has no web address."""
    metadata = source.metadata[0] if source.metadata else {}
    addresses = (source.source.get("url"), metadata.get("url"), metadata.get("source"))
    url = next((one for one in addresses if isinstance(one, str) and one.startswith(("http://", "https://"))), None)
    if url is None:
        return None
    title = source.source.get("name") or metadata.get("name") or url
    # One line: Open WebUI draws the title as Markdown, where a tag of a call ends its line.
    return {"url": url, "title": " ".join(str(title).split()), "start_index": position, "end_index": position}
