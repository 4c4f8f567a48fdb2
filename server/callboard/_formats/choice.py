"""The choice of the format that a model is spoken to in: from the settings, the model's name and what is seen of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from callboard._formats.call_styles import CallStyles, ObservedFormat
from callboard._formats.descriptions import ModelKey, model_key
from callboard._formats.format import Format
from callboard._formats.native import AutoFormat, FamilyFormat, NativeFormat, RescueFormat
from callboard._formats.text import react_format, xml_format
from callboard._settings import ToolFormat
from callboard.models import ChatModel, DescribedModel


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """A choice: `tool_format` for every model; `auto` means react for names that match `react_models`.

    For a model that has been seen to call in its text, in the syntax of its family, `auto` means that syntax.

    `react_models` are shell patterns (`*llama-2*`), matched without regard to case.
    `call_styles` are the models from whose text `auto` rescues nothing any more: whoever
    shares them shares what was seen.
    """

    tool_format: ToolFormat = "auto"
    react_models: Sequence[str] = ()
    call_styles: CallStyles = field(default_factory=CallStyles, compare=False)

    def of(self, model_name: str, tool_format: ToolFormat | None = None) -> Format:
        """Return the format for that model; `tool_format` in place of the chosen one where it is given."""
        return self._of(ModelKey(model_name), tool_format, None)

    async def of_model(self, model: ChatModel, model_name: str, tool_format: ToolFormat | None = None) -> Format:
        """Return the format for that model, whose endpoint may be asked about it; waits while it is."""
        described = model if isinstance(model, DescribedModel) else None
        key = model_key(model, model_name)
        await self.call_styles.settle(key)
        return self._of(key, tool_format, described)

    def _of(self, model: ModelKey, tool_format: ToolFormat | None, described: DescribedModel | None) -> Format:
        tool_format = tool_format or self.tool_format
        chosen = choose_format(tool_format, model.name, self.react_models, self.call_styles, endpoint=model.endpoint)
        is_asked = isinstance(chosen, AutoFormat | FamilyFormat)
        return ObservedFormat(chosen, model, self.call_styles, described if is_asked else None)


def choose_format(
    tool_format: ToolFormat,
    model_name: str,
    react_models: Sequence[str] = (),
    call_styles: CallStyles | None = None,
    *,
    endpoint: str = "",
) -> Format:
    """Return the format that `tool_format` says, for `auto` by the model's name and what is known of it."""
    call_styles = call_styles or CallStyles()
    match tool_format:
        case "auto":
            lowered = model_name.lower()
            if any(fnmatchcase(lowered, pattern.lower()) for pattern in react_models):
                return react_format(model_name)
            return AutoFormat(ModelKey(model_name, endpoint), call_styles)
        case "native":
            return NativeFormat()
        case "rescue":
            return RescueFormat(model_name)
        case "react":
            return react_format(model_name)
        case "xml":
            return xml_format(model_name)
        case family:
            opens = call_styles.prompt_opens(ModelKey(model_name, endpoint), family)
            return FamilyFormat(family, model_name, opens)
