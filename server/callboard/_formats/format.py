"""Describes the tools to a model, and reads the calls in its answer.

The tool loop keeps every conversation as OpenAI chat messages with `tool_calls` and `role: "tool"`. A `Format` turns
them into a request that its model understands, and reads the answer back. So the loop, the store and replay handle one
shape, and a chat can continue with a model of another format.

Most formats request native calls: https://platform.openai.com/docs/guides/function-calling. If a server does not parse
its model's calls, they arrive as text; but text with a call in it can also be a quotation of a web page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType

from callboard._formats.call_styles import CallStyles, ModelKey
from callboard._formats.native_reader import NativeReader
from callboard._formats.pieces import ClaimId, Reader
from callboard._formats.reading import ScanningReader
from callboard._formats.rescuing.reader import RescuingReader
from callboard._formats.wording import WORDINGS, convert_calls_to_text
from callboard.calls import Tool, ToolCall
from callboard.models import ChatDict, ChatModel, DescribedModel, ModelRequest, TextDelta, with_valid_arguments
from callboard.models.messages import with_instructions
from callboard.settings import ToolFormat
from callboard_formats.formats import list_stops

NO_MORE_CALLS = "No tool can be called any more. Answer now with the information that you have."


@dataclass(frozen=True, slots=True)
class Format:
    """Describes the tools to one model, and reads its calls.

    `chosen` is a value of `TOOL_FORMAT`:

    - `native` reads only the endpoint's `tool_calls`, and passes all text on unchanged.
    - `auto` also reads a call at the end of the text that can hardly be anything else, unless the model has called
      natively before. If the model is known to write its calls in a syntax, all calls in that syntax are read.
    - `react` and `xml` are for models without native tools: the prompt describes the tools, and calls are read from the
      text.
    - The name of another syntax also reads calls in that syntax.
    - `rescue` also reads everything in the text that looks like a call, in any syntax, even if it may only be an
      example.

    `styles` remembers how `model` calls. `described` is the model again, if its endpoint can be asked for a
    description.
    """

    chosen: ToolFormat = "auto"
    model: ModelKey = field(default_factory=ModelKey)
    styles: CallStyles = field(default_factory=CallStyles)
    described: DescribedModel | None = None

    @property
    def name(self) -> str:
        """The name in `chosen`; for `auto` the model's own syntax if it is known."""
        return (self.chosen == "auto" and self.styles.own_syntax(self.model)) or self.chosen

    def request(
        self, messages: Sequence[ChatDict], tools: Sequence[Tool], thoughts: Mapping[str, str] = MappingProxyType({})
    ) -> ModelRequest:
        """Return the request for the model. Without tools the model must answer in text.

        For models without native tools, the system prompt describes the tools, and earlier calls and results are text;
        `thoughts` are texts before calls, by the calls' ids. The stop sequences are sent if there are tools or earlier
        calls, because the model may continue either.
        """
        if (wording := WORDINGS.get(self.chosen)) is None:
            return ModelRequest(with_valid_arguments(messages), [tool.schema() for tool in tools])
        worded, called = convert_calls_to_text(messages, wording, thoughts)
        if tools:
            worded = with_instructions(worded, wording.instructions(tools))
        elif called:
            worded = with_instructions(worded, NO_MORE_CALLS)
        return ModelRequest(worded, (), list_stops(self.chosen) if tools or called else ())

    def reader(self, tools: Sequence[Tool], claim_id: ClaimId, messages: Sequence[ChatDict] = ()) -> Reader:
        """Return a reader for the answer to the request with these tools and messages.

        Without tools, `auto` reads no calls in text, and other formats still remove the markers of their syntax.
        """
        syntax = self.name
        if syntax == "native":
            return NativeReader(claim_id)
        if syntax == "auto":
            known = () if self.styles.calls_natively(self.model) else tuple(tool.name for tool in tools)
            return RescuingReader(known, claim_id, messages)
        # Not `syntax`: with `auto`, the model may have its own syntax, but the request did not ask for calls in it.
        if self.chosen in WORDINGS:
            return ScanningReader(syntax, tools, claim_id, messages, model=self.model.name, is_requested=True)
        return ScanningReader(
            syntax,
            tools,
            claim_id,
            messages,
            model=self.model.name,
            prompt_opens=self.styles.prompt_opens(self.model, syntax),
            asks_first=self.chosen == "auto",
        )

    def note_native_call(self) -> None:
        """Remember that the model makes native calls, so that none is rescued from its text."""
        self.styles.note_native_call(self.model)

    def note_calls_in_text(self, calls: Sequence[ToolCall]) -> None:
        """Remember the syntax of the calls that were read from the answer's text."""
        # A description says nothing that these formats need.
        described = None if self.chosen in ("rescue", *WORDINGS) else self.described
        for call in calls:
            if call.rescued:
                if call.syntax:
                    self.styles.note_text_call(self.model, call.syntax, described)
            elif call.written is not None and described is not None:
                self.styles.request_description(self.model, described)


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """The settings that choose a format, and the record of how models call.

    `tool_format` is used for every model. With `auto`, models whose names match `react_models` get ReAct.

    `react_models` are shell patterns such as `*llama-2*`, matched without regard to case. Choices that share
    `call_styles` share what each has learnt about models.
    """

    tool_format: ToolFormat = "auto"
    react_models: Sequence[str] = ()
    call_styles: CallStyles = field(default_factory=CallStyles, compare=False)

    def for_name(self, model_name: str, tool_format: ToolFormat | None = None) -> Format:
        """Return the format for a model by its name alone. `tool_format` replaces the setting if given."""
        return self._choose(ModelKey(model_name), tool_format, None)

    async def for_model(self, model: ChatModel, model_name: str, tool_format: ToolFormat | None = None) -> Format:
        """Return the format for a model. Waits if its endpoint is being asked for a description."""
        described = model if isinstance(model, DescribedModel) else None
        key = ModelKey(model_name, described.address if described else "")
        await self.call_styles.descriptions.wait(key)
        return self._choose(key, tool_format, described)

    def _choose(self, model: ModelKey, tool_format: ToolFormat | None, described: DescribedModel | None) -> Format:
        chosen = tool_format or self.tool_format
        lowered = model.name.lower()
        if chosen == "auto" and any(fnmatchcase(lowered, pattern.lower()) for pattern in self.react_models):
            chosen = "react"
        return Format(chosen, model, self.call_styles, described)


def prepare_reading() -> None:
    """Compile the regular expressions that most answers need. This takes some milliseconds: do it in a thread."""
    reader = RescuingReader(("tool",), str, ())
    reader.feed(TextDelta("An answer."))
    reader.finish()
