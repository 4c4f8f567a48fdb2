"""Chooses the format for a model: by the settings, the model's name, and how the model has called tools so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from callboard._formats.call_styles import CallStyles, ObservedFormat
from callboard._formats.descriptions import ModelKey, model_key
from callboard._formats.format import Format
from callboard._formats.native import AutoFormat, FamilyFormat, NativeFormat
from callboard._formats.text import react_format, xml_format
from callboard.models import ChatModel, DescribedModel
from callboard.settings import ToolFormat


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """The settings that choose a format, and the record of how models call.

    `tool_format` is used for every model. With `auto`, models whose names match `react_models` get ReAct, and a model
    that has written calls in the syntax of its family gets that syntax.

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
        key = model_key(model, model_name)
        await self.call_styles.wait_for_description(key)
        return self._choose(key, tool_format, described)

    def _choose(self, model: ModelKey, tool_format: ToolFormat | None, described: DescribedModel | None) -> Format:
        chosen = self._choose_unobserved(model, tool_format or self.tool_format)
        uses_description = isinstance(chosen, AutoFormat | FamilyFormat) and chosen.name != "rescue"
        return ObservedFormat(chosen, model, self.call_styles, described if uses_description else None)

    def _choose_unobserved(self, model: ModelKey, tool_format: ToolFormat) -> Format:
        lowered = model.name.lower()
        if tool_format == "auto" and any(fnmatchcase(lowered, pattern.lower()) for pattern in self.react_models):
            tool_format = "react"
        match tool_format:
            case "auto":
                return AutoFormat(model, self.call_styles)
            case "native":
                return NativeFormat()
            case "react":
                return react_format(model.name)
            case "xml":
                return xml_format(model.name)
            case family_or_rescue:
                opens = self.call_styles.prompt_opens(model, family_or_rescue)
                return FamilyFormat(family_or_rescue, model.name, opens)
