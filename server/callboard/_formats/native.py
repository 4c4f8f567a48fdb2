"""Formats that request native calls: OpenAI's `tools` in the request. They differ in how they read the answer's text.

See https://platform.openai.com/docs/guides/function-calling. If a server does not parse its model's calls, they arrive
as text; but text with a call in it can also be a quotation of a web page. `native` never reads calls in text. `auto`
takes a call at the end of the text if it can hardly be anything else. A family's format reads calls in that family's
syntax, and `rescue` reads calls in every syntax anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from callboard._formats.call_styles import CallStyles
from callboard._formats.descriptions import ModelKey
from callboard._formats.format import ClaimId, Reader
from callboard._formats.native_reader import NativeReader
from callboard._formats.reading import ScanningReader
from callboard._formats.rescuing.reader import RescuingReader
from callboard.calls import Tool
from callboard.models import ChatDict, ModelRequest, TextDelta, with_valid_arguments


class _NativeRequest:
    """The request that all of these formats make."""

    __slots__ = ()

    def request(self, messages: Sequence[ChatDict], tools: Sequence[Tool]) -> ModelRequest:
        """Return the conversation unchanged, except for arguments that endpoints refuse."""
        return ModelRequest(with_valid_arguments(messages), [tool.schema() for tool in tools])


@dataclass(frozen=True, slots=True)
class NativeFormat(_NativeRequest):
    """Reads the endpoint's `tool_calls` and passes all text on unchanged."""

    name = "native"

    def reader(
        self,
        tools: Sequence[Tool],  # noqa: ARG002 - required by the protocol
        claim_id: ClaimId,
        messages: Sequence[ChatDict] = (),  # noqa: ARG002 - required by the protocol
    ) -> Reader:
        """Return a reader for one answer."""
        return NativeReader(claim_id)


@dataclass(frozen=True, slots=True)
class AutoFormat(_NativeRequest):
    """Reads native calls, and a call at the end of the text if the model has never called natively.

    If the model is known to write its calls in a syntax, all calls in that syntax are read.
    """

    model: ModelKey = field(default_factory=ModelKey)
    call_styles: CallStyles = field(default_factory=CallStyles)

    @property
    def name(self) -> str:
        """The model's own syntax if it is known, otherwise `auto`."""
        return self.call_styles.own_syntax(self.model) or "auto"

    def reader(self, tools: Sequence[Tool], claim_id: ClaimId, messages: Sequence[ChatDict] = ()) -> Reader:
        """Return a reader for one answer. Without tools it reads no calls in text."""
        if own := self.call_styles.own_syntax(self.model):
            return ScanningReader(
                own,
                tools,
                claim_id,
                model=self.model.name,
                prompt_opens=self.call_styles.prompt_opens(self.model, own),
                asks_first=True,
            )
        known = () if self.call_styles.calls_natively(self.model) else tuple(tool.name for tool in tools)
        return RescuingReader(known, claim_id, messages)


@dataclass(frozen=True, slots=True)
class FamilyFormat(_NativeRequest):
    """Reads native calls, and calls in the text that are written in the syntax `name`.

    With the name `rescue` it reads everything in the text that looks like a call, in any syntax, even if it may only be
    an example. `prompt_opens` says whether the prompt has opened a thought; None leaves that to the model's name.
    """

    name: str
    model: str = ""
    prompt_opens: bool | None = None

    def reader(
        self,
        tools: Sequence[Tool],
        claim_id: ClaimId,
        messages: Sequence[ChatDict] = (),  # noqa: ARG002 - required by the protocol
    ) -> Reader:
        """Return a reader for one answer."""
        return ScanningReader(self.name, tools, claim_id, model=self.model, prompt_opens=self.prompt_opens)


def prepare_reading() -> None:
    """Compile the regular expressions that most answers need. This takes some milliseconds: do it in a thread."""
    reader = RescuingReader(("tool",), str, ())
    reader.feed(TextDelta("An answer."))
    reader.finish()
