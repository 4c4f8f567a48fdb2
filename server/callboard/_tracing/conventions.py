"""The names of spans' attributes: OpenTelemetry's semantic conventions for generative AI, version 1.41.0.

All that is taken from them stands here. They are in development and change with their versions; 1.41.0 is the last one
before they moved into a repository of their own, and the one that receivers read today.
"""

from typing import Final

SCOPE: Final = "callboard"
"""The library that the spans are of."""
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.0"

OPERATION_NAME: Final = "gen_ai.operation.name"
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

PROVIDER_NAME: Final = "gen_ai.provider.name"
OPENAI: Final = "openai"
"""The provider, as the conventions have it, where an endpoint speaks OpenAI's API and nobody knows whose it is."""

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
"""The attributes of OpenAI's parameters of a request; all of them are numbers."""

FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"

USAGE: Final = "gen_ai.usage."
"""What the names of tokens begin with at a request to a model."""
SUM_OF_USAGE: Final = "gen_ai.aggregated_usage."
"""What they begin with at a run, of all its requests: receivers add up `gen_ai.usage` of all spans, and would count
each token twice. The conventions have no name for it; that is the one that others took."""
INPUT_TOKENS: Final = "input_tokens"
OUTPUT_TOKENS: Final = "output_tokens"
CACHED_TOKENS: Final = "cache_read.input_tokens"
REASONING_TOKENS: Final = "reasoning.output_tokens"

TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
FUNCTION: Final = "function"
UNKNOWN_TOOL: Final = "unknown"
"""The name of a tool that there is not, where contents are not told."""

SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"

# OpenInference's names: what lists of traces show as what went in and out, in Phoenix and elsewhere.
INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"

# What the conventions have no name for.
RUN_ID: Final = "callboard.run.id"
TASK: Final = "callboard.task"
LOSSES: Final = "callboard.run.losses"
LEFT: Final = "callboard.run.left"
