"""Models: send an agent's requests to an endpoint and stream the answers.

This package knows neither the code of tools nor the server's settings. The tool loop uses it.
"""

from callboard.models.endpoint_quirks import with_valid_arguments
from callboard.models.model import (
    RESERVED_OPTIONS,
    ChatDict,
    ChatModel,
    DescribedModel,
    Finish,
    MessageDetails,
    ModelDelta,
    ModelDescription,
    ModelEndpoint,
    ModelRequest,
    PictureDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolsRefused,
)
from callboard.models.openai_compatible import OpenAICompatible
from callboard.models.scripted import Pause, ScriptedModel

__all__ = [
    "RESERVED_OPTIONS",
    "ChatDict",
    "ChatModel",
    "DescribedModel",
    "Finish",
    "MessageDetails",
    "ModelDelta",
    "ModelDescription",
    "ModelEndpoint",
    "ModelRequest",
    "OpenAICompatible",
    "Pause",
    "PictureDelta",
    "ReasoningDelta",
    "RefusalDelta",
    "ScriptedModel",
    "TextDelta",
    "TokenUsage",
    "ToolCallDelta",
    "ToolsRefused",
    "with_valid_arguments",
]
