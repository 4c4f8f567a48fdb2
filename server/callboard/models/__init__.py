"""Models: what an agent asks for the next words and tool calls.

Above: the tool loop. Below: settings and errors. Knows nothing of tools' code.
"""

from callboard.models.builtin import task_answer
from callboard.models.model import (
    MODEL_OPTIONS,
    ChatDict,
    ChatModel,
    Finish,
    ModelDelta,
    ModelEndpoint,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
)
from callboard.models.openai_compatible import OpenAICompatibleModel
from callboard.models.script import Pause, Script, content_text, typed, user_text
from callboard.models.scripted import ScriptedModel

__all__ = [
    "MODEL_OPTIONS",
    "ChatDict",
    "ChatModel",
    "Finish",
    "ModelDelta",
    "ModelEndpoint",
    "ModelRequest",
    "OpenAICompatibleModel",
    "Pause",
    "ReasoningDelta",
    "Script",
    "ScriptedModel",
    "TextDelta",
    "TokenUsage",
    "ToolCallDelta",
    "content_text",
    "task_answer",
    "typed",
    "user_text",
]
