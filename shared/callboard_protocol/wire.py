"""The base of all types of the protocol, and the limits of their fields."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints

T = TypeVar("T")
if TYPE_CHECKING:
    # A list may be given too, and becomes a tuple.
    Items = Sequence[T]
else:
    Items = tuple[T, ...]

MAX_FRAME_BYTES = 256 * 1024
"""Maximum size of a frame; the limits of an event's fields add up to less."""

MAX_TOOL_REQUEST_BYTES = 192 * 1024
MAX_FILES_BYTES = 96 * 1024
MAX_TEXT_BYTES = 64 * 1024
MAX_FORM_BYTES = 32 * 1024
MAX_CHOICES_BYTES = 16 * 1024
MAX_LINE_BYTES = 4 * 1024
MAX_NAME_BYTES = 512


class Wire(BaseModel):
    """The base of all types of the protocol: immutable, and ignores fields that a newer peer adds."""

    model_config = ConfigDict(frozen=True, extra="ignore")


@dataclass(frozen=True, slots=True)
class Limit:
    """The maximum size of a field on the wire, where it is ASCII-escaped JSON; used in the field's annotation.

    A larger value is truncated: a text to its beginning, a sequence to the first entries that fit, an object to the
    entries of at most `MAX_LINE_BYTES`. With `split` the event becomes several, each with a piece of the text. With
    `as_text` an object becomes JSON text, which is truncated. `flag` is the field that is set to true if the value was
    truncated.
    """

    max_bytes: int
    over: Literal["cut", "split", "as_text"] = "cut"
    flag: str = ""


Name = Annotated[str, Limit(MAX_NAME_BYTES)]
Line = Annotated[str, Limit(MAX_LINE_BYTES)]
Text = Annotated[str, Limit(MAX_TEXT_BYTES)]
Pieces = Annotated[str, Limit(MAX_TEXT_BYTES, "split")]
"""A text of any length, sent in as many events as needed."""

RequestId = Annotated[str, StringConstraints(min_length=1, max_length=640, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""The id of a question; for a question about a call it contains the call's id, which has up to 512 characters."""
