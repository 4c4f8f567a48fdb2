"""Models: what an agent asks for the next words and tool calls.

Above: the tool loop. Below: settings and errors. Knows nothing of tools' code.
"""

from callboard.models.embeddings import EmbeddingEndpoint
from callboard.models.local_endpoints import LOCAL_ENDPOINTS, LocalEndpoint, LocalModel, find_local_model
from callboard.models.model import (
    RESERVED_OPTIONS,
    ChatDict,
    ChatModel,
    DescribedModel,
    Finish,
    ModelDelta,
    ModelDescription,
    ModelEndpoint,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    select_options,
)
from callboard.models.openai_compatible import OpenAICompatible
from callboard.models.scripted import Pause, Script, ScriptedModel, content_text, task_answer, typed, user_text

__all__ = [
    "LOCAL_ENDPOINTS",
    "RESERVED_OPTIONS",
    "ChatDict",
    "ChatModel",
    "DescribedModel",
    "EmbeddingEndpoint",
    "Finish",
    "LocalEndpoint",
    "LocalModel",
    "ModelDelta",
    "ModelDescription",
    "ModelEndpoint",
    "ModelRequest",
    "OpenAICompatible",
    "Pause",
    "ReasoningDelta",
    "Script",
    "ScriptedModel",
    "TextDelta",
    "TokenUsage",
    "ToolCallDelta",
    "content_text",
    "find_local_model",
    "select_options",
    "task_answer",
    "typed",
    "user_text",
]
