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
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_OPTIONS: Final = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
}
"""Attributes of OpenAI's request parameters; all values are numbers."""

FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"

USAGE: Final = "gen_ai.usage."
"""Prefix of the token counts of a request to a model."""
SUM_OF_USAGE: Final = "gen_ai.aggregated_usage."
"""Prefix of the token counts of a run, which are the sums of its requests. Receivers add up `gen_ai.usage` of all
spans, and would count each token twice. The conventions have no name for the sums; other libraries use this one."""
INPUT_TOKENS: Final = "input_tokens"
OUTPUT_TOKENS: Final = "output_tokens"
CACHED_TOKENS: Final = "cache_read.input_tokens"
REASONING_TOKENS: Final = "reasoning.output_tokens"

TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
FUNCTION: Final = "function"
UNKNOWN_TOOL: Final = "unknown"
"""Replaces the name of a tool that does not exist, unless traces have contents: the model invented the name."""

SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"

# OpenInference's names, which lists of traces show as input and output, for example in Phoenix.
INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"

# Attributes without a name in the conventions.
RUN_ID: Final = "callboard.run.id"
TASK: Final = "callboard.task"
LOSSES: Final = "callboard.run.losses"
LEFT: Final = "callboard.run.left"
