"""The parts that answers of chat completions and of responses share. Pure."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar

from callboard._http.errors import build_error_object
from callboard._openwebui.markdown_state import close_markdown
from callboard_protocol import Done, Error, Event, Source

Json = dict[str, Any]

TAKEN_BACK = "\n\n> The answer begins anew: what stands above since the last tool call is taken back.\n\n"
"""The note in a stream, where text that was sent cannot be removed."""

CANCELLED = "cancelled"

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
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed: the code and message of its last event; `upstream_code` is the code of the model's endpoint."""

    code: str
    message: str
    upstream_code: str = ""

    @property
    def status(self) -> HTTPStatus:
        """The HTTP status, if the answer has not begun."""
        return _STATUS.get(self.code, HTTPStatus.INTERNAL_SERVER_ERROR)

    @property
    def body(self) -> Json:
        """The error object."""
        return build_error_object(self.status, self.upstream_code or self.code, self.message)


def read_failure(event: Event) -> Failure | None:
    """Return the failure if this is the last event of a failed run, otherwise None."""
    match event:
        case Error():
            return Failure(event.code, event.message, event.upstream_code)
        case Done(finish_reason="cancelled"):
            return Failure(CANCELLED, "The run was cancelled; ask again.")
        case _:
            return None


class Answer(ABC):
    """Builds an answer in one of OpenAI's forms from the events of a run."""

    last_frame: ClassVar[bytes] = b""
    """The last frame of a stream without an error."""

    @abstractmethod
    def feed(self, event: Event) -> list[Json]:
        """Return the stream parts for an event."""

    @abstractmethod
    def fail(self, failure: Failure) -> list[Json]:
        """Return the last stream parts of a failed run."""

    @abstractmethod
    def whole(self) -> Json:
        """Return the answer so far."""


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
    return {"url": url, "title": str(title), "start_index": position, "end_index": position}
