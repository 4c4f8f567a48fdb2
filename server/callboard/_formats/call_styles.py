"""How each model has called tools so far: natively, or in its text, and in which syntax.

The endpoint of a model that calls natively parses its calls, so a call in that model's text is only quoted or
explained. A model that has written a call as text, in the syntax that its chat template or its name tells, has no
other way to call. Its endpoint is asked for the template after the first such call, so models that call natively never
wait for that request.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from callboard._formats.descriptions import ModelDescriptions, ModelKey
from callboard._formats.format import ClaimId, Format, Piece, Reader
from callboard.calls import Tool, ToolCall
from callboard.models import ChatDict, DescribedModel, ModelDelta, ModelDescription, ModelRequest, ToolCallDelta
from callboard_formats.detection import FoundFormat, find_format, prompt_opens_thought
from callboard_formats.formats import is_written_by

_log = structlog.get_logger(__name__)

NO_EVIDENCE = "neither its chat template nor its name tells one"


class CallStyles:
    """Remembers, as long as the process lives, which models call natively and which write calls in their text.

    The syntax found for a model is logged, and again when it changes.
    """

    def __init__(self, descriptions: ModelDescriptions | None = None) -> None:
        self._descriptions = descriptions or ModelDescriptions()
        self._native: set[ModelKey] = set()
        self._written: dict[ModelKey, set[str]] = {}
        self._own: dict[ModelKey, str] = {}
        self._logged: dict[ModelKey, tuple[str, str]] = {}

    def calls_natively(self, model: ModelKey) -> bool:
        """Return whether this model has called natively."""
        return model in self._native

    def note_native_call(self, model: ModelKey) -> None:
        """Remember that this model has called natively."""
        self._native.add(model)
        self._own.pop(model, None)

    def note_text_call(self, model: ModelKey, syntax: str, described: DescribedModel | None = None) -> None:
        """Remember that this model has written a call as text. `described` is asked once for its description."""
        if model in self._native:
            return
        written = self._written.setdefault(model, set())
        is_new = syntax not in written
        written.add(syntax)
        is_requested = described is not None and self._descriptions.request(model, described, self._decide)
        if is_new and not is_requested:
            self._decide(model)

    def own_syntax(self, model: ModelKey) -> str | None:
        """Return the syntax of a model that writes its calls; None if it is unknown or the model calls natively."""
        return self._own.get(model)

    def request_description(self, model: ModelKey, described: DescribedModel) -> None:
        """Request the description of a model whose syntax is known: its prompt tells whether it opens a thought."""
        if model not in self._native:
            # The next answer looks the description up.
            self._descriptions.request(model, described, lambda _: None)

    def prompt_opens(self, model: ModelKey, syntax: str) -> bool | None:
        """Return whether the prompt of a model of this syntax opens a thought; None if no description tells."""
        description = self._descriptions.get(model)
        return prompt_opens_thought(syntax, description.template, description.prompt)

    async def wait_for_description(self, model: ModelKey) -> None:
        """Wait for a running request for the description of this model."""
        await self._descriptions.wait(model)

    async def aclose(self) -> None:
        """Cancel all running requests for descriptions."""
        await self._descriptions.aclose()

    def _decide(self, model: ModelKey) -> None:
        """Decide which syntax is the model's own: the one that the evidence names, if the model has written it."""
        if model in self._native:
            return
        written = self._written[model]
        found = find_model_format(model.name, self._descriptions.get(model))
        if found is None:
            self._log_once(model, "auto", NO_EVIDENCE)
        elif any(is_written_by(syntax, found.name) for syntax in written):
            self._own[model] = found.name
            self._log_once(model, found.name, found.because)
        else:
            self._own.pop(model, None)
            wrote = ", ".join(sorted(written))
            self._log_once(model, "auto", f"{found.because} says {found.name}, and it wrote {wrote}")

    def _log_once(self, model: ModelKey, syntax: str, because: str) -> None:
        if self._logged.get(model) != (syntax, because):
            self._logged[model] = syntax, because
            _log.info("format_found", model=model.name, endpoint=model.endpoint, format=syntax, because=because)


def find_model_format(model: str, description: ModelDescription) -> FoundFormat | None:
    """Return the syntax of a model by its endpoint's description, or else by its name; None if neither tells."""
    found = find_format(model, description.template, description.other_names, description.prompt)
    if found is not None and found.is_from_template and description.program:
        return replace(found, because=f"{found.because} ({description.program})")
    return found


@dataclass(frozen=True, slots=True)
class ObservedFormat:
    """A format that behaves as `format` and notes in `styles` how `model` calls.

    `described` is the model again, if its endpoint can be asked for a description.
    """

    format: Format
    model: ModelKey
    styles: CallStyles
    described: DescribedModel | None = None

    @property
    def name(self) -> str:
        """The name of `format`."""
        return self.format.name

    def request(self, messages: Sequence[ChatDict], tools: Sequence[Tool]) -> ModelRequest:
        """Return the request of `format`."""
        return self.format.request(messages, tools)

    def reader(self, tools: Sequence[Tool], claim_id: ClaimId, messages: Sequence[ChatDict] = ()) -> Reader:
        """Return the reader of `format`, observed."""
        return _ObservedReader(self.format.reader(tools, claim_id, messages), self.model, self.styles, self.described)


@dataclass(frozen=True, slots=True)
class _ObservedReader:
    reader: Reader
    model: ModelKey
    styles: CallStyles
    described: DescribedModel | None

    def feed(self, delta: ModelDelta) -> list[Piece]:
        if isinstance(delta, ToolCallDelta) and delta.name:
            self.styles.note_native_call(self.model)
        return self.reader.feed(delta)

    def finish(self) -> list[Piece]:
        pieces = self.reader.finish()
        for call in self.reader.calls():
            if call.rescued:
                self.styles.note_text_call(self.model, call.syntax, self.described)
            elif call.written and self.described is not None:
                self.styles.request_description(self.model, self.described)
        return pieces

    def calls(self) -> list[ToolCall]:
        return self.reader.calls()
