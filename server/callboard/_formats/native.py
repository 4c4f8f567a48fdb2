"""Formats that ask for native calls: OpenAI's `tools` in the request. They differ in what they read.

https://platform.openai.com/docs/guides/function-calling. A model whose server does not parse
its calls writes them into its text, and so does one that quotes a web page: `native` never
reads the text, `auto` takes a call from its end where little else can be meant, a family reads
its own syntax, and `rescue` every syntax anywhere.
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


class _AskedNatively:
    """The request that all of these formats make."""

    __slots__ = ()

    def request(self, messages: Sequence[ChatDict], tools: Sequence[Tool]) -> ModelRequest:
        """Return the conversation as it is, but for arguments that no endpoint would take back."""
        return ModelRequest([_acceptable(message) for message in messages], [tool.schema() for tool in tools])


@dataclass(frozen=True, slots=True)
class NativeFormat(_AskedNatively):
    """The format that reads the endpoint's `tool_calls` and nothing else: text passes to the letter."""

    name = "native"

    def reader(
        self,
        tools: Sequence[Tool],  # noqa: ARG002 - the contract's
        claim_id: ClaimId,
        messages: Sequence[ChatDict] = (),  # noqa: ARG002 - the contract's
    ) -> Reader:
        """Return a reader for one answer."""
        return NativeReader(claim_id)


@dataclass(frozen=True, slots=True)
class AutoFormat(_AskedNatively):
    """Native calls; a call at the answer's end is rescued from a model that has never called natively.

    Of a model that is known to write its calls, and in which syntax, all that are written so are read.
    """

    model: ModelKey = field(default_factory=ModelKey)
    call_styles: CallStyles = field(default_factory=CallStyles)

    @property
    def name(self) -> str:
        """The syntax where it is known, else `auto`."""
        own = self.call_styles.own_syntax(self.model)
        return own.name if own else "auto"

    def reader(self, tools: Sequence[Tool], claim_id: ClaimId, messages: Sequence[ChatDict] = ()) -> Reader:
        """Return a reader for one answer; without tools nothing is rescued."""
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
        known = () if self.model in self.call_styles else tuple(tool.name for tool in tools)
        return RescuingReader(known, claim_id, messages)


@dataclass(frozen=True, slots=True)
class FamilyFormat(_AskedNatively):
    """Native calls, and in the text those that are written in the syntax `name`.

    `prompt_opens`: whether the prompt has opened a thought, None where that is known by the model's name alone.
    """

    name: str
    model: str = ""
    prompt_opens: bool | None = None

    def reader(
        self,
        tools: Sequence[Tool],
        claim_id: ClaimId,
        messages: Sequence[ChatDict] = (),  # noqa: ARG002 - the contract's
    ) -> Reader:
        """Return a reader for one answer."""
        return ScanningReader(
            self.name, tools, claim_id, model=self.model, prompt_opens=self.prompt_opens, previews=False
        )


@dataclass(frozen=True, slots=True)
class RescueFormat(_AskedNatively):
    """Native calls, and whatever in the text looks like one: quoted, explained, or meant."""

    model: str = ""

    name = "rescue"

    def reader(
        self,
        tools: Sequence[Tool],
        claim_id: ClaimId,
        messages: Sequence[ChatDict] = (),  # noqa: ARG002 - the contract's
    ) -> Reader:
        """Return a reader for one answer."""
        return ScanningReader(self.name, tools, claim_id, model=self.model, previews=False, rescued=True)


def prepare_reading() -> None:
    """Compile the expressions of most answers, which takes some milliseconds, outside of the event loop."""
    reader = RescuingReader(("tool",), str, ())
    reader.feed(TextDelta("An answer."))
    reader.finish()


def _acceptable(message: ChatDict) -> ChatDict:
    """Return `message` with arguments that an endpoint can read.

    Chat templates parse the arguments of earlier calls (vLLM and llama.cpp answer 400 or 500
    where they cannot), so those that are no JSON object are sent as an empty one; the call's
    result says what was wrong with them.
    """
    if not message.get("tool_calls"):
        return message
    return {**message, "tool_calls": [_acceptable_call(call) for call in message["tool_calls"]]}


def _acceptable_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        if function["arguments"].strip():
            parse_arguments(function["arguments"])
            return call
    except InvalidArguments:
        pass
    return {**call, "function": {**function, "arguments": "{}"}}
