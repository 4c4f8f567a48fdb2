"""Formats of models that call tools in their text: told of the tools in words, read by a syntax."""

from collections.abc import Sequence
from dataclasses import dataclass

from callboard._formats.format import ClaimId, Reader
from callboard._formats.reading import ScanningReader
from callboard._formats.transcript import convert_calls_to_text, with_instructions
from callboard._formats.wording import NO_MORE_CALLS, ReactWording, Wording, XmlWording
from callboard.calls import Tool
from callboard.models import ChatDict, ModelRequest
from callboard_formats.formats import stops_of
from callboard_formats.markers import model_stops


@dataclass(frozen=True, slots=True)
class TextFormat:
    """Calls in text; `name` is the syntax to write them in, `wording` the words for it, `model` the model's name."""

    name: str
    wording: Wording
    model: str = ""

    def request(self, messages: Sequence[ChatDict], tools: Sequence[Tool]) -> ModelRequest:
        """Return a request with the tools in the system prompt, earlier calls and results as text, and never `tools`.

        The stop sequences stay on as long as the model knows of calls, its own earlier ones too.
        """
        worded, called = convert_calls_to_text(messages, self.wording)
        if tools:
            worded = with_instructions(worded, self.wording.instructions(tools))
        elif called:
            worded = with_instructions(worded, NO_MORE_CALLS)
        own = stops_of(self.name) if tools or called else ()
        # The first of the format's own is the one that saves most; an endpoint takes no more than four.
        return ModelRequest(worded, (), (*own[:1], *model_stops(self.model), *own[1:]))

    def reader(
        self,
        tools: Sequence[Tool],
        claim_id: ClaimId,
        messages: Sequence[ChatDict] = (),
    ) -> Reader:
        """Return a reader for one answer; without tools it still takes the syntax's markers out."""
        return ScanningReader(self.name, tools, claim_id, messages, model=self.model, falls_back=True)


def react_format(model: str = "") -> TextFormat:
    """Return the format for ReAct."""
    return TextFormat("react", ReactWording(), model)


def xml_format(model: str = "") -> TextFormat:
    """Return the format for XML."""
    return TextFormat("xml", XmlWording(), model)
