"""Formats that request native calls: OpenAI's `tools` in the request. They differ in how they read the answer's text.

See https://platform.openai.com/docs/guides/function-calling. If a server does not parse its model's calls, they arrive
as text; but text with a call in it can also be a quotation of a web page. `native` never reads calls in text. `auto`
takes a call at the end of the text if it can hardly be anything else. A family's format reads calls in that family's
syntax, and `rescue` reads calls in every syntax anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from callboard._formats.call_styles import CallStyles
from callboard._formats.calls import parse_arguments
from callboard._formats.descriptions import ModelKey
from callboard._formats.format import ClaimId, Reader
from callboard._formats.native_reader import NativeReader
from callboard._formats.reading import ScanningReader
from callboard._formats.rescuing.reader import RescuingReader
from callboard.calls import Tool
from callboard.errors import InvalidArguments
from callboard.models import ChatDict, ModelRequest, TextDelta


class _NativeRequest:
    """The request that all of these formats make."""

    __slots__ = ()

    def request(self, messages: Sequence[ChatDict], tools: Sequence[Tool]) -> ModelRequest:
        """Return the conversation unchanged, except for arguments that endpoints refuse."""
        return ModelRequest([_with_valid_arguments(message) for message in messages], [tool.schema() for tool in tools])


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
        own = self.call_styles.own_syntax(self.model)
        return own.name if own else "auto"

    def reader(self, tools: Sequence[Tool], claim_id: ClaimId, messages: Sequence[ChatDict] = ()) -> Reader:
        """Return a reader for one answer. Without tools it reads no calls in text."""
        if own := self.call_styles.own_syntax(self.model):
            return ScanningReader(
                own.name,
                tools,
                claim_id,
                model=self.model.name,
                prompt_opens=own.prompt_opens,
                previews=False,
                rescued=True,
                asks_first=True,
            )
        known = () if self.call_styles.calls_natively(self.model) else tuple(tool.name for tool in tools)
        return RescuingReader(known, claim_id, messages)


@dataclass(frozen=True, slots=True)
class FamilyFormat(_NativeRequest):
    """Reads native calls, and calls in the text that are written in the syntax `name`.

    `prompt_opens` says whether the prompt has opened a thought; None leaves that to the model's name.
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
        return ScanningReader(
            self.name, tools, claim_id, model=self.model, prompt_opens=self.prompt_opens, previews=False
        )


@dataclass(frozen=True, slots=True)
class RescueFormat(_NativeRequest):
    """Reads native calls, and everything in the text that looks like a call, even if it may only be an example."""

    model: str = ""

    name = "rescue"

    def reader(
        self,
        tools: Sequence[Tool],
        claim_id: ClaimId,
        messages: Sequence[ChatDict] = (),  # noqa: ARG002 - required by the protocol
    ) -> Reader:
        """Return a reader for one answer."""
        return ScanningReader(self.name, tools, claim_id, model=self.model, previews=False, rescued=True)


def prepare_reading() -> None:
    """Compile the regular expressions that most answers need. This takes some milliseconds: do it in a thread."""
    reader = RescuingReader(("tool",), str, ())
    reader.feed(TextDelta("An answer."))
    reader.finish()


def _with_valid_arguments(message: ChatDict) -> ChatDict:
    """Return `message` with {} for arguments that are not a JSON object.

    Chat templates parse the arguments of earlier calls, and vLLM and llama.cpp answer 400 or 500 if that fails. The
    call's result tells the model about the mistake.
    """
    if not message.get("tool_calls"):
        return message
    return {**message, "tool_calls": [_with_valid_call(call) for call in message["tool_calls"]]}


def _with_valid_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        if function["arguments"].strip():
            parse_arguments(function["arguments"])
            return call
    except InvalidArguments:
        pass
    return {**call, "function": {**function, "arguments": "{}"}}
