"""Formats for models without native tools: the prompt describes the tools, and calls are read from the text."""

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
    """Has the model write its calls in the syntax `name`, which `wording` explains. `model` is the model's name."""

    name: str
    wording: Wording
    model: str = ""

    def request(self, messages: Sequence[ChatDict], tools: Sequence[Tool]) -> ModelRequest:
        """Return a request without `tools`: the system prompt describes them, and earlier calls and results are text.

        The stop sequences are sent if there are tools or earlier calls, because the model may continue either.
        """
        worded, called = convert_calls_to_text(messages, self.wording)
        if tools:
            worded = with_instructions(worded, self.wording.instructions(tools))
        elif called:
            worded = with_instructions(worded, NO_MORE_CALLS)
        own = stops_of(self.name) if tools or called else ()
        # Endpoints accept four stop sequences at most, so the most useful one of the syntax comes first.
        return ModelRequest(worded, (), (*own[:1], *model_stops(self.model), *own[1:]))

    def reader(
        self,
        tools: Sequence[Tool],
        claim_id: ClaimId,
        messages: Sequence[ChatDict] = (),
    ) -> Reader:
        """Return a reader for one answer. Without tools it still removes the markers of the syntax."""
        return ScanningReader(self.name, tools, claim_id, messages, model=self.model, is_requested=True)


def react_format(model: str = "") -> TextFormat:
    return TextFormat("react", ReactWording(), model)


def xml_format(model: str = "") -> TextFormat:
    return TextFormat("xml", XmlWording(), model)
