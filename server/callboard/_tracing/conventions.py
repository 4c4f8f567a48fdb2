"""The names of spans' attributes: OpenTelemetry's semantic conventions for generative AI, version 1.41.0.

Only this module depends on the conventions, which are in development and change with each version. 1.41.0 is the last
version before they moved to their own repository, and the one that receivers support today.
"""

from typing import Final

SCOPE: Final = "callboard"
"""The instrumentation scope of the spans."""
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.0"

OPERATION_NAME: Final = "gen_ai.operation.name"
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

PROVIDER_NAME: Final = "gen_ai.provider.name"
OPENAI: Final = "openai"
"""The conventions' name of the provider for an endpoint with OpenAI's API whose provider is unknown."""

AGENT_ID: Final = "gen_ai.agent.id"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
USER_ID: Final = "user.id"
ERROR_TYPE: Final = "error.type"

REQUEST_MODEL: Final = "gen_ai.request.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"

TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
FUNCTION: Final = "function"
UNKNOWN_TOOL: Final = "unknown"
"""Replaces the name of a tool that does not exist, because the model invented it: it is content."""

RUN_ID: Final = "callboard.run.id"
"""The run's id as in the log, for which the conventions have no name."""
