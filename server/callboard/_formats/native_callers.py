"""How models have called tools, as far as this process has seen: natively, or in their text, and in which syntax.

The server of a model that calls natively reads its calls, so a call in its text is one that it speaks of. A model
that has called in its text, in the syntax that its chat template or its name says, has no other way. Its endpoint is
asked for the template once it has done so: nobody who calls natively waits for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from callboard._formats.described import Descriptions, ModelKey
from callboard._formats.format import ClaimId, Format, Piece, Reader
from callboard.calls import Tool, ToolCall
from callboard.models import ChatDict, DescribedModel, ModelDelta, ModelDescription, ModelRequest, ToolCallDelta
from callboard_formats.formats import FoundFormat, find_format, is_written_by, prompt_opens_thought

_log = structlog.get_logger(__name__)

NOTHING_TELLS = "neither its chat template nor its name tells one"


@dataclass(frozen=True, slots=True)
class OwnSyntax:
    """The syntax that a model writes its calls in; `prompt_opens`: whether it begins within a thought, None unknown."""

    name: str
    prompt_opens: bool | None = None


class NativeCallers:
    """How models call, by their keys: who has called natively, who in text, and in which syntax of their own.

    For as long as the process runs. What was found of a model is logged, once until it changes.
    """

    def __init__(self, descriptions: Descriptions | None = None) -> None:
        self._descriptions = descriptions or Descriptions()
        self._native: set[ModelKey] = set()
        self._written: dict[ModelKey, set[str]] = {}
        self._found: dict[ModelKey, OwnSyntax] = {}
        self._logged: dict[ModelKey, tuple[str, str]] = {}

    def __contains__(self, model: ModelKey) -> bool:
        return model in self._native

    def add(self, model: ModelKey) -> None:
        """Remember that this model has called natively."""
        self._native.add(model)
        self._found.pop(model, None)

    def note_text(self, model: ModelKey, syntax: str, described: DescribedModel | None = None) -> None:
        """Remember that this model has called in its text; `described` is asked once whether the syntax is its own."""
        if model in self._native:
            return
        written = self._written.setdefault(model, set())
        is_news = syntax not in written
        written.add(syntax)
        is_asked = described is not None and self._descriptions.ask(model, described, self._judge)
        if is_news and not is_asked:
            self._judge(model)

    def own_syntax(self, model: ModelKey) -> OwnSyntax | None:
        """Return the syntax that a model without native calls writes them in; None while that is not known."""
        return self._found.get(model)

    def ask_prompt(self, model: ModelKey, described: DescribedModel) -> None:
        """Have `described` asked once for a prompt, of a model whose syntax is known."""
        if model not in self._native:
            self._descriptions.ask(model, described, _ignore)

    def prompt_opens(self, model: ModelKey, syntax: str) -> bool | None:
        """Return whether a model of this syntax begins within a thought, by what was told; None if unknown."""
        description = self._descriptions.of(model)
        return prompt_opens_thought(syntax, description.template, description.prompt)

    async def settle(self, model: ModelKey) -> None:
        """Wait for what its endpoint tells of the model, where it was asked."""
        await self._descriptions.settle(model)

    async def aclose(self) -> None:
        """Ask no more."""
        await self._descriptions.aclose()

    def _judge(self, model: ModelKey) -> None:
        if model in self._native:
            return
        description = self._descriptions.of(model)
        written = self._written[model]
        found = find_described(model.name, description)
        if found is None:
            self._log_once(model, "auto", NOTHING_TELLS)
        elif any(is_written_by(syntax, found.name) for syntax in written):
            self._found[model] = OwnSyntax(found.name, self.prompt_opens(model, found.name))
            self._log_once(model, found.name, found.because)
        else:
            self._found.pop(model, None)
            wrote = ", ".join(sorted(written))
            self._log_once(model, "auto", f"{found.because} says {found.name}, and it wrote {wrote}")

    def _log_once(self, model: ModelKey, syntax: str, because: str) -> None:
        if self._logged.get(model) != (syntax, because):
            self._logged[model] = syntax, because
            _log.info("format_found", model=model.name, endpoint=model.endpoint, format=syntax, because=because)


def _ignore(model: ModelKey) -> None:
    """Do nothing with what was told: it is looked up when the next answer is read."""


def find_described(model: str, description: ModelDescription) -> FoundFormat | None:
    """Return the syntax of a model by what its endpoint tells, else by its name."""
    # A prompt has the words as they are, where the template puts them together.
    found = find_format(model, f"{description.prompt}\n{description.template}", description.other_names)
    if found is not None and found.is_told and description.program:
        return FoundFormat(found.name, f"{found.because} ({description.program})", is_told=True)
    return found


@dataclass(frozen=True, slots=True)
class NotingFormat:
    """The format `format`, which remembers in `callers` how `model` calls; `described` may be asked about it."""

    format: Format
    model: ModelKey
    callers: NativeCallers
    described: DescribedModel | None = None

    @property
    def name(self) -> str:
        """The name of `format`."""
        return self.format.name

    def request(self, messages: Sequence[ChatDict], tools: Sequence[Tool]) -> ModelRequest:
        """Return the request of `format`, as it is."""
        return self.format.request(messages, tools)

    def reader(self, tools: Sequence[Tool], claim_id: ClaimId, messages: Sequence[ChatDict] = ()) -> Reader:
        """Return the reader of `format`, watched."""
        return _NotingReader(self.format.reader(tools, claim_id, messages), self.model, self.callers, self.described)


@dataclass(frozen=True, slots=True)
class _NotingReader:
    reader: Reader
    model: ModelKey
    callers: NativeCallers
    described: DescribedModel | None

    def feed(self, delta: ModelDelta) -> list[Piece]:
        if isinstance(delta, ToolCallDelta) and delta.name:
            self.callers.add(self.model)
        return self.reader.feed(delta)

    def finish(self) -> list[Piece]:
        pieces = self.reader.finish()
        for call in self.reader.calls():
            if call.rescued:
                self.callers.note_text(self.model, call.syntax, self.described)
            elif call.in_text and self.described is not None:
                self.callers.ask_prompt(self.model, self.described)
        return pieces

    def calls(self) -> list[ToolCall]:
        return self.reader.calls()
