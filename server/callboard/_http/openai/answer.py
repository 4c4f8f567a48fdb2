"""Answers in OpenAI's shapes: what chat completions and responses have in common. Pure."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar

from callboard._http.errors import build_error_object
from callboard._openwebui.markdown_state import close_markdown
from callboard_protocol import Done, Error, Event, Source

Json = dict[str, Any]

TAKEN_BACK = "\n\n> The answer begins anew: what stands above since the last tool call is taken back.\n\n"
"""A note to readers of a stream, in which nothing that was sent can be unsaid."""

CANCELLED = "cancelled"

# What the endpoint says of the request, it says to the client; a key or address of the server's own that is wrong is
# no fault of the client's.
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
}


@dataclass(frozen=True, slots=True)
class Failure:
    """A reason for no whole answer; `code` is that of the run's last event, `upstream_code` the model endpoint's."""

    code: str
    message: str
    upstream_code: str = ""

    @property
    def status(self) -> HTTPStatus:
        """The status of an answer that has not begun."""
        return _STATUS.get(self.code, HTTPStatus.INTERNAL_SERVER_ERROR)

    @property
    def body(self) -> Json:
        """The error object."""
        return build_error_object(self.status, self.upstream_code or self.code, self.message)


def read_failure(event: Event) -> Failure | None:
    """Return why the run failed, if this is the event that says so."""
    match event:
        case Error():
            return Failure(event.code, event.message, event.upstream_code)
        case Done(finish_reason="cancelled"):
            return Failure(CANCELLED, "The run was cancelled; ask again.")
        case _:
            return None


class Answer(ABC):
    """A run's events in one of OpenAI's shapes."""

    last_frame: ClassVar[bytes] = b""
    """The frame that ends a stream that went well."""

    @abstractmethod
    def feed(self, event: Event) -> list[Json]:
        """Return what to stream for the event."""

    @abstractmethod
    def fail(self, failure: Failure) -> list[Json]:
        """Return what ends the stream of a run that failed."""

    @abstractmethod
    def whole(self) -> Json:
        """Return the answer as far as it has come."""


def write_note_below(draft: str) -> str:
    """Return the note to stand below the words that are taken back, outside of any code that they leave open."""
    return close_markdown(draft) + TAKEN_BACK


def build_citation(source: Source, position: int) -> Json | None:
    """Return the source as a citation at that place in the text; None for one that has no web address."""
    metadata = source.metadata[0] if source.metadata else {}
    addresses = (source.source.get("url"), metadata.get("url"), metadata.get("source"))
    url = next((one for one in addresses if isinstance(one, str) and one.startswith(("http://", "https://"))), None)
    if url is None:
        return None
    title = source.source.get("name") or metadata.get("name") or url
    return {"url": url, "title": str(title), "start_index": position, "end_index": position}
