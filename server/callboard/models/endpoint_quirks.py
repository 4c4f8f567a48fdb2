"""Adapts requests to parts that endpoints refuse or require.

Arguments that are not JSON are replaced for every endpoint. The rest is learnt from error messages, and, if a message
says nothing, by trying the known forms one after another.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from callboard._call_ids import nine_characters
from callboard.models.endpoint_stream import (
    CONTEXT_TOO_LONG,
    FILTERED,
    REFUSAL_STATUSES,
    EndpointError,
    upstream_code,
)
from callboard.models.endpoint_tools import EndpointTools, without
from callboard.models.messages import MUST_CALL, content_text, with_instructions
from callboard.models.model import ChatDict

Message = dict[str, Any]
Body = dict[str, Any]
T = TypeVar("T")
Change = Callable[[T], T]

STANDARD_FIELDS = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", "id", "type", "function"})
"""The fields of a message and its calls that stay even if a refusal names them; a quirk leaves `name` out."""
DISPENSABLE_OPTIONS = frozenset(
    {"parallel_tool_calls", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "safety_identifier"}
    | {"stream_options"}
)
"""Options that do not change the answer. Callboard sends them, or clients such as Codex without being asked."""
PLACEHOLDER_REASONING = " "
"""The reasoning of an answer that another model wrote. Kimi requires one for a call, and it must not be empty."""
PLACEHOLDER_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""The signature of a call that Gemini did not sign: https://ai.google.dev/gemini-api/docs/thought-signatures."""
PLACEHOLDER_TOOL = {
    "type": "function",
    "function": {
        "name": "no_tool",
        "description": "Do not call this.",
        "parameters": {"type": "object", "properties": {}},
    },
}
"""The tool that is offered if an endpoint requires a tool but the model must answer in text."""
BRIDGE_TEXT = "I have the results."
FIRST_USER_TEXT = "Hello."
CONTINUE_TEXT = "Go on."
EMPTY_TEXT = "(empty)"
PICTURE_TEXT = "[Here was a picture or a file, which you cannot read.]"
FORMAT_TEXT = "Your answer to the user must be in this format, without text around it: {response_format}"
"""The texts of messages that an endpoint requires and the chat does not have."""

_REQUIRES_REASONING = (
    r"reasoning_content\b.*\b(?:missing|required|must be|pass(?:ed)? back)|missing\b.*\breasoning_content"
)
_REFUSES_SIGNATURE = r"(?:invalid|corrupted) `?(?:thought[ _])?signature|bound to a different conversation"
# OpenRouter, llama.cpp, Ollama, LM Studio, vLLM, OpenAI, DeepSeek, Groq.
_REFUSES_PICTURES = (
    r"(?:\bnot|n't|that) support (?:image|vision|multi-?modal|audio|file)|image_url\b.{0,40}\bonly supported"
    r"|\b(?:image|vision|multi-?modal|audio|file)s?(?: inputs?| content)? (?:is|are) not (?:supported|enabled)"
    r"|not a multi-?modal|at most 0 (?:image|audio)|unknown variant `?(?:image_url|input_audio|file)"
    r"|data required for image input|content must be a string"
)
# OpenAI's and xAI's models that reason.
_REFUSES_STOPS = r"(?:unsupported parameter|not supported on this model): '?stop\b"


@dataclass(frozen=True, slots=True)
class Quirk:
    """A requirement of some endpoints: a pattern for their error message, and the change that satisfies it."""

    pattern: str
    adapt: Change[Body]


class EndpointQuirks:
    """The parts of requests that a model of an endpoint is known to refuse or require."""

    def __init__(self) -> None:
        self.refuses_stops = False
        """The model refuses stop sequences; those of a client are sent nevertheless."""
        self.tools = EndpointTools()
        self._refused: set[str] = set()
        self._quirks: list[Quirk] = []
        self._has_accepted = False

    def adapt(self, body: Body, form: Quirk | None = None) -> Body:
        """Return the request in a form that the endpoint accepts, or in another one that is tried."""
        body = self.tools.adapt(body)
        for quirk in (*self._quirks, *([form] if form else ())):
            body = quirk.adapt(body)
        return {**self._remove_refused(body), "messages": [self._remove_refused(one) for one in body["messages"]]}

    def learn(self, body: Body, error: EndpointError) -> bool:
        """Learn from the error for `body`, and return whether `adapt` now changes the request.

        Requirements are learnt at any status. Fields and options that a refusal names are left out: Groq, for example,
        sends `reasoning` but refuses it. Nothing is learnt twice, so that an endpoint that contradicts itself is not
        asked for ever.
        """
        words = error.words
        for quirk in QUIRKS:
            if quirk not in self._quirks and _says(quirk.pattern, words) and quirk.adapt(body) != body:
                self._quirks.append(quirk)
                return True
        if self.tools.learn(body.get("tools", ()), error.detail, words):
            return True
        if error.status not in REFUSAL_STATUSES or refuses_details(error) or _says(_REQUIRES_REASONING, words):
            # If reasoning is required, it is already sent: its name in the message does not mean that it is refused.
            return False
        self.refuses_stops = self.refuses_stops or _says(_REFUSES_STOPS, words)
        fields = {name for sent in body["messages"] for part in (sent, *_calls_of(sent)) for name in part}
        fields -= STANDARD_FIELDS
        fields |= DISPENSABLE_OPTIONS & body.keys()
        refused = {name for name in fields if re.search(rf"\b{re.escape(name)}\b", words)}
        learnt = refused - self._refused
        self._refused |= learnt
        return bool(learnt)

    def accept(self, form: Quirk | None) -> None:
        """Note that the endpoint has accepted a request, and that it demands the form that was tried."""
        self._has_accepted = True
        # One picture that is too large says nothing of the others.
        if form and form not in self._quirks and form.pattern != _REFUSES_PICTURES:
            self._quirks.append(form)

    def find_forms(self, body: Body, error: EndpointError) -> list[Quirk]:
        """Return the forms that may help after a refusal whose words say nothing.

        If the endpoint has accepted a request, it refuses a later part of this one: only forms of that are tried.
        """
        code = upstream_code(error.body, error.detail)
        if not self._has_accepted or code in (CONTEXT_TOO_LONG, FILTERED) or refuses_pictures(error, body["messages"]):
            return []
        changed = [(quirk, quirk.adapt(body)) for quirk in QUIRKS if quirk not in self._quirks]
        return [quirk for quirk, one in changed if one != body and _beginning(one) == _beginning(body)]

    def _remove_refused(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return a request, message or call without the fields that the endpoint refuses."""
        adapted = {name: value for name, value in fields.items() if name not in self._refused}
        if calls := _calls_of(fields):
            adapted["tool_calls"] = [self._remove_refused(call) for call in calls]
        return adapted


def _says(pattern: str, words: str) -> bool:
    return re.search(pattern, words, re.IGNORECASE | re.DOTALL) is not None


def _beginning(body: Body) -> Body:
    return {**body, "messages": body["messages"][:1]}


def refuses_pictures(error: EndpointError, messages: Sequence[ChatDict]) -> bool:
    """Return whether the endpoint refuses the messages because the model cannot read a picture or a file."""
    has_pictures = any(map(_is_picture, chain.from_iterable(map(_parts_of, messages))))
    return has_pictures and _says(_REFUSES_PICTURES, error.words)


def refuses_details(error: EndpointError) -> bool:
    """Return whether the endpoint refuses a signature that it sent itself, for example with another key.

    Every later request of the chat would be refused too: https://github.com/google-gemini/gemini-cli/issues/13467
    """
    return error.status in REFUSAL_STATUSES and _says(_REFUSES_SIGNATURE, error.words)


def without_details(messages: Sequence[ChatDict]) -> list[ChatDict]:
    """Return the messages without the fields that endpoints sent with them, and without signatures in the ids."""
    plain = []
    for message in messages:
        fields = {name: value for name, value in message.items() if name in STANDARD_FIELDS}
        if calls := _calls_of(message):
            fields["tool_calls"] = [_without_call_details(call) for call in calls]
        plain.append(_shorten_ids(fields))
    return plain


def _without_call_details(call: dict[str, Any]) -> dict[str, Any]:
    function = {name: call["function"][name] for name in ("name", "arguments")}
    signature = {"extra_content": PLACEHOLDER_SIGNATURE} if "extra_content" in call else {}
    return {"id": call["id"], "type": "function", "function": function, **signature}


def with_valid_arguments(messages: Sequence[ChatDict]) -> list[ChatDict]:
    """Return the messages with {} for arguments of calls that are not a JSON object.

    Chat templates parse the arguments of earlier calls, and vLLM and llama.cpp answer 400 or 500 if that fails. The
    call's result tells the model about the mistake.
    """
    return [
        {**message, "tool_calls": [_with_valid_call(call) for call in _calls_of(message)]}
        if _calls_of(message)
        else message
        for message in messages
    ]


def _with_valid_call(call: dict[str, Any]) -> dict[str, Any]:
    # Imported here, because a model can be declared without a parser of its answers.
    from callboard_formats import InvalidArguments
    from callboard_formats.arguments import parse_arguments

    function = call["function"]
    try:
        if function["arguments"].strip():
            parse_arguments(function["arguments"])
            return call
    except InvalidArguments:
        pass
    return {**call, "function": {**function, "arguments": "{}"}}


def _calls_of(message: Message) -> list[dict[str, Any]]:
    return message.get("tool_calls") or []


QUIRKS: list[Quirk] = []
"""All quirks, in the order in which they are tried."""


def _request_quirk(pattern: str) -> Callable[[Change[Body]], Change[Body]]:
    """Return a decorator for the change of a request that is refused with a message like `pattern`."""

    def register(change: Change[Body]) -> Change[Body]:
        QUIRKS.append(Quirk(pattern, change))
        return change

    return register


def _messages_quirk(pattern: str) -> Callable[[Change[list[Message]]], Change[list[Message]]]:
    """Return a decorator for the change of a request's messages."""

    def register(change: Change[list[Message]]) -> Change[list[Message]]:
        QUIRKS.append(Quirk(pattern, lambda body: {**body, "messages": change(body["messages"])}))
        return change

    return register


def _message_quirk(pattern: str) -> Callable[[Change[Message]], Change[Message]]:
    """Return a decorator for the change of each message of a request."""

    def register(change: Change[Message]) -> Change[Message]:
        _messages_quirk(pattern)(lambda messages: [change(message) for message in messages])
        return change

    return register


# Mistral, OpenAI for ids of more than 40 characters, Anthropic for the ids of other models.
@_message_quirk(r"length of 9\b|9 alphanumeric|tool_(?:call|use)\S*id'?: (?:string too long|string should match)")
def _shorten_ids(message: Message) -> Message:
    shortened = dict(message)
    if calls := _calls_of(message):
        shortened["tool_calls"] = [{**call, "id": nine_characters(call["id"])} for call in calls]
    if call_id := message.get("tool_call_id"):
        shortened["tool_call_id"] = nine_characters(call_id)
    return shortened


@_messages_quirk(r"Unexpected role 'user' after role 'tool'")
def _add_bridges(messages: list[Message]) -> list[Message]:
    changed: list[Message] = []
    for message in messages:
        if message["role"] == "user" and changed and changed[-1]["role"] == "tool":
            changed.append({"role": "assistant", "content": BRIDGE_TEXT})
        changed.append(message)
    return changed


# Mistral: https://github.com/mistralai/mistral-common/issues/186
@_message_quirk(r"\bcontent\b.{0,20}\btool_calls\b.{0,20}\bnot both")
def _leave_text_out(message: Message) -> Message:
    return {**message, "content": ""} if _calls_of(message) and message.get("content") else message


# Gemini: https://github.com/pydantic/pydantic-ai/issues/1879
@_messages_quirk(r"function_?response\.name\b|(?:role '?tool'?|tool messages?)\b.{0,40}\bname\b")
def _name_results(messages: list[Message]) -> list[Message]:
    names = {call["id"]: call["function"]["name"] for message in messages for call in _calls_of(message)}
    return [
        {"name": names[message["tool_call_id"]], **message} if message.get("tool_call_id") in names else message
        for message in messages
    ]


@_messages_quirk(_REFUSES_PICTURES)
def _leave_pictures_out(messages: list[Message]) -> list[Message]:
    """Replace the pictures of earlier messages. About a picture of the question, the user reads an error.

    A user message behind results holds their pictures.
    """
    roles = [message["role"] for message in messages]
    asked = [place for place, role in enumerate(roles) if role == "user" and roles[place - 1 : place] != ["tool"]]
    return [
        message if place in asked[-1:] or not _parts_of(message) else {**message, "content": _write_in_words(message)}
        for place, message in enumerate(messages)
    ]


def _write_in_words(message: Message) -> str:
    told = {"text": PICTURE_TEXT}
    return content_text([told if _is_picture(part) else part for part in _parts_of(message)])


def _parts_of(message: Message) -> list[Any]:
    return message["content"] if isinstance(message.get("content"), list) else []


def _is_picture(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") != "text"


# Mistral, Anthropic, DeepSeek, Perplexity and llama.cpp, if the last message is an answer to be continued:
# https://github.com/BerriAI/litellm/issues/8090, https://github.com/ggml-org/llama.cpp/issues/20861
@_messages_quirk(
    r"Expected last role User|must end with a user message|last message\b.{0,40}\bmust|response prefill is incompatible"
)
def _end_with_user(messages: list[Message]) -> list[Message]:
    return [*messages, {"role": "user", "content": CONTINUE_TEXT}] if messages[-1]["role"] == "assistant" else messages


# The chat templates of Gemma, Llama and others, Perplexity, DashScope.
@_messages_quirk(
    r"roles (?:must|should) (?:be )?alternat|first message must (?:use|be|have)|must start with a user message"
)
def _start_with_user(messages: list[Message]) -> list[Message]:
    first = next((place for place, message in enumerate(messages) if message["role"] != "system"), len(messages))
    if any(message["role"] == "user" for message in messages[first : first + 1]):
        return messages
    return [*messages[:first], {"role": "user", "content": FIRST_USER_TEXT}, *messages[first:]]


# The chat templates of Gemma 1 and 2 and of early Mistral models, Gemma at Google, o1-mini, Anthropic.
@_messages_quirk(
    r"System role (?:is )?not supported|Only user and assistant roles are supported"
    r"|Developer instruction is not enabled|does not support 'system'|role 'system' is not supported"
)
def _move_system_to_user(messages: list[Message]) -> list[Message]:
    """Put the system messages before the content of the first user message."""
    system = [message for message in messages if message["role"] in ("system", "developer")]
    if not system:
        return messages
    others = [message for message in messages if message not in system]
    first = next((place for place, message in enumerate(others) if message["role"] == "user"), None)
    if first is None:
        first, others = 0, [{"role": "user", "content": ""}, *others]
    contents = [message["content"] for message in (*system, others[first]) if message.get("content")]
    if all(isinstance(content, str) for content in contents):
        others[first] = {**others[first], "content": "\n\n".join(contents)}
    else:
        parts = [[{"type": "text", "text": one}] if isinstance(one, str) else one for one in contents]
        others[first] = {**others[first], "content": [*chain.from_iterable(parts)]}
    return others


# Mistral, vLLM (https://github.com/vllm-project/vllm/issues/12864) and xAI refuse the name of a user or of a tool:
# https://github.com/BerriAI/litellm/issues/9720
@_message_quirk(
    r"extra_forbidden.{0,40}\bmessages\b.{0,20}\bname\b|messages\.\S+\.name\b.{0,20}Extra inputs"
    r"|messages? of role '?user'? can have a name|[\"']name[\"'] is not supported"
)
def _leave_name_out(message: Message) -> Message:
    return without(message, "name")


# Kimi, Anthropic, Bedrock and xAI.
@_message_quirk(
    r"must not be empty|must be non-empty|must have non-empty content|must contain non-whitespace text|is blank"
    r"|at least one non-empty content element"
)
def _fill_blank(message: Message) -> Message:
    is_blank = not message.get("tool_calls") and not str(message["content"]).strip()
    return {**message, "content": EMPTY_TEXT} if is_blank else message


# Kimi requires it for calls, DeepSeek for all answers of a turn with calls.
@_message_quirk(_REQUIRES_REASONING)
def _add_reasoning(message: Message) -> Message:
    return {"reasoning_content": PLACEHOLDER_REASONING, **message} if message["role"] == "assistant" else message


# Gemini, for calls that another model made or that were written as text.
@_message_quirk(r"missing a `?thought_signature")
def _add_signature(message: Message) -> Message:
    """Add a placeholder to the first call if it has no signature; Gemini signs only the first call."""
    first, *others = _calls_of(message) or [{}]
    if not first or "extra_content" in first:
        return message
    return {**message, "tool_calls": [{**first, "extra_content": PLACEHOLDER_SIGNATURE}, *others]}


# LM Studio, Ollama and xAI (https://github.com/langchain-ai/langchain/issues/34140) refuse `content: null` beside
# calls. The null of another field, such as `param`, is no sign of it.
@_message_quirk(r"\bcontent\b.{0,80}(?:string|(?<!:)(?<!: )null|<nil>|none is not)|at least one content element")
def _fill_missing_content(message: Message) -> Message:
    return {**message, "content": ""} if message.get("content") is None else message


# OpenAI and Azure, for models that reason.
@_request_quirk(r"use 'max_completion_tokens'")
def _rename_max_tokens(body: Body) -> Body:
    return _rename(body, "max_tokens", "max_completion_tokens")


# Mistral, and older versions of Azure's API.
@_request_quirk(r"(?:extra_forbidden|Unrecognized request argument).{0,60}\bmax_completion_tokens\b")
def _rename_max_completion_tokens(body: Body) -> Body:
    return _rename(body, "max_completion_tokens", "max_tokens")


# OpenAI from GPT-5.4 on; GPT-5.6 also if no effort is sent: https://github.com/BerriAI/litellm/pull/34569
@_request_quirk(r"function tools with reasoning_effort are not supported")
def _turn_reasoning_off(body: Body) -> Body:
    return {**body, "reasoning_effort": "none"} if "tools" in body else body


# Gemini before version 3, and Groq.
@_request_quirk(r"response mime type: 'application/json' is unsupported|cannot be combined with tool")
def _describe_format(body: Body) -> Body:
    """Describe the format of the answer in the system message if the request offers tools."""
    if "tools" not in body or "response_format" not in body:
        return body
    response_format = json.dumps(body["response_format"], ensure_ascii=False)
    return _replace_option(body, "response_format", FORMAT_TEXT.format(response_format=response_format))


# DeepSeek, Kimi and Qwen, while they think; LiteLLM for Bedrock.
@_request_quirk(
    r"Thinking mode does not support this tool_choice|tool_choice '?required'? is incompatible with thinking"
    r"|tool_choice parameter does not support being set to required|doesn't support tool_choice="
)
def _leave_choice_out(body: Body) -> Body:
    if body.get("tool_choice") == "required":
        return _replace_option(body, "tool_choice", MUST_CALL)
    return without(body, "tool_choice")


# Claude at Bedrock behind LiteLLM: https://github.com/BerriAI/litellm/issues/31582
@_request_quirk(r"tools\.\S+\.strict: Extra inputs are not permitted")
def _leave_strict_out(body: Body) -> Body:
    return _change_functions(body, lambda function: without(function, "strict"))


# Anthropic behind LiteLLM, Bedrock.
@_request_quirk(r"`tools=` param|toolConfig field must be defined")
def _offer_tools(body: Body) -> Body:
    """Offer a placeholder tool if the messages have calls but the request offers no tools."""
    if "tools" in body or not any(_calls_of(message) for message in body["messages"]):
        return body
    return {**body, "tools": [PLACEHOLDER_TOOL], "tool_choice": "none"}


# The endpoint's own fields, refused in other words. `refuses_details` is about those that name a signature.
_messages_quirk(r"(?!)")(without_details)


def _rename(body: Body, old: str, new: str) -> Body:
    """Return the request with the option `old` as `new`."""
    return {new: body[old], **without(body, old)} if old in body else body


def _replace_option(body: Body, option: str, instruction: str) -> Body:
    """Return the request with an instruction in the system message instead of the option."""
    return {**without(body, option), "messages": with_instructions(body["messages"], instruction)}


def _change_functions(body: Body, change: Change[Body]) -> Body:
    tools = [{**tool, "function": change(tool["function"])} for tool in body.get("tools", ())]
    return {**body, "tools": tools} if tools else body
