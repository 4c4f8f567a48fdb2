"""Models: send an agent's requests to an endpoint and stream the answers.

This package knows neither the code of tools nor the server's settings. The tool loop uses it.
"""

from callboard.models.call_joiner import CallJoiner, JoinedCall
from callboard.models.chunks import KNOWN_REASONS, REASONING, merge_details
from callboard.models.endpoint_quirks import with_valid_arguments
from callboard.models.endpoint_stream import REFUSAL_STATUSES, upstream_code
from callboard.models.local_endpoints import LOCAL_ENDPOINTS, LocalEndpoint, LocalModel, find_local_model
from callboard.models.messages import MUST_CALL, content_text, with_instructions
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
    select_options,
)
from callboard.models.openai_compatible import OpenAICompatible
from callboard.models.scripted import Pause, Script, ScriptedModel, task_answer, typed, user_text

__all__ = [
    "KNOWN_REASONS",
    "LOCAL_ENDPOINTS",
    "MUST_CALL",
    "REASONING",
    "REFUSAL_STATUSES",
    "RESERVED_OPTIONS",
    "CallJoiner",
    "ChatDict",
    "ChatModel",
    "DescribedModel",
    "Finish",
    "JoinedCall",
    "LocalEndpoint",
    "LocalModel",
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
    "Script",
    "ScriptedModel",
    "TextDelta",
    "TokenUsage",
    "ToolCallDelta",
    "content_text",
    "find_local_model",
    "merge_details",
    "select_options",
    "task_answer",
    "typed",
    "upstream_code",
    "user_text",
    "with_instructions",
    "with_valid_arguments",
]
