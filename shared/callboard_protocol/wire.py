"""The base of all types of the protocol, and the limits of their fields."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

MAX_FRAME_BYTES = 256 * 1024
"""The most that a frame may take; the limits of an event's fields are less, together."""

MAX_FILES_BYTES = 96 * 1024
MAX_TEXT_BYTES = 64 * 1024
MAX_LINE_BYTES = 4 * 1024
MAX_NAME_BYTES = 512


class Wire(BaseModel):
    """The base of all wire types: immutable, and tolerant of fields that a newer peer adds."""

    model_config = ConfigDict(frozen=True, extra="ignore")


@dataclass(frozen=True, slots=True)
class Limit:
    """The most bytes that a field takes as ASCII-escaped JSON, since that is what travels; stands in its annotation.

    What is over it is cut: of a text the beginning is left, of a sequence the first entries that fit together, of an
    object the entries of a line's length. `split`: the event becomes several, each with a piece of the text.
    `as_text`: an object becomes its JSON text, and is cut as that. `flag` is the field that tells that it was cut.
    """

    max_bytes: int
    over: Literal["cut", "split", "as_text"] = "cut"
    flag: str = ""


Name = Annotated[str, Limit(MAX_NAME_BYTES)]
Line = Annotated[str, Limit(MAX_LINE_BYTES)]
Text = Annotated[str, Limit(MAX_TEXT_BYTES)]
Pieces = Annotated[str, Limit(MAX_TEXT_BYTES, "split")]
"""A text of any length, in as many events as it needs."""

RequestId = Annotated[str, StringConstraints(min_length=1, max_length=640, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""The id of a question; one about a call holds that call's id, of up to 512 characters."""
