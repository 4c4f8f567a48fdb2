"""Writes rounds as chat messages; for models without native tools, writes tools, calls and results as text."""

import json
from collections.abc import Mapping, Sequence
from typing import Protocol

from callboard.calls import Tool, ToolCall
from callboard.calls.call import RejectedCall, ResolvedCall
from callboard.models import ChatDict
from callboard.models.messages import content_text


class Wording(Protocol):
    """The texts for one syntax."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Return the part of the system prompt that describes the tools and how to call them."""
        ...

    def call(self, name: str, arguments: str, thought: str) -> str:
        """Return an earlier call as the model would have written it, after its `thought` if that is not empty."""
        ...

    def results(self, results: Sequence[tuple[str, str]]) -> str:
        """Return the results of one answer's calls as one text. Each result is a pair: tool name, result."""
        ...


class ReactWording:
    """ReAct: the lines `Thought:`, `Action:`, `Action Input:` and `Observation:`."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Return the list of tools and the explanation of the lines."""
        names = ", ".join(tool.name for tool in tools)
        schemas = [json.dumps(dict(tool.parameters), ensure_ascii=False) for tool in tools]
        described = "\n\n".join(
            f"{tool.name}: {tool.description.strip()}\nArguments (JSON schema): {schema}"
            for tool, schema in zip(tools, schemas, strict=True)
        )
        return (
            f"You can use these tools:\n\n{described}\n\n"
            "To use a tool, write exactly this, then stop and wait for the observation:\n\n"
            "Thought: why you need the tool\n"
            f"Action: the tool's name, one of: {names}\n"
            "Action Input: one JSON object with the tool's arguments\n\n"
            "You are then given a line that begins with `Observation:`; never write it yourself. "
            "Use as many tools as you need, one after another. When you can answer, or need no tool, write:\n\n"
            "Thought: I can answer now.\n"
            "Final Answer: your answer to the user"
        )

    def call(self, name: str, arguments: str, thought: str) -> str:
        """Return the lines of thought, action and input."""
        action = f"Action: {name}\nAction Input: {arguments.strip() or '{}'}"
        return f"Thought: {thought}\n{action}" if thought else action

    def results(self, results: Sequence[tuple[str, str]]) -> str:
        """Return an observation for each result, with the tool's name if there are several."""
        if len(results) == 1:
            return f"Observation: {results[0][1]}"
        return "\n\n".join(f"Observation ({name}): {result}" for name, result in results)


class XmlWording:
    """Calls as JSON objects between `<tool_call>` tags."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Return the list of tools and the explanation of the tags."""
        listed = "\n".join(json.dumps(tool.schema(), ensure_ascii=False) for tool in tools)
        return (
            f"You can call these tools, described as JSON schemas:\n\n<tools>\n{listed}\n</tools>\n\n"
            "To call one, write its name and arguments as a JSON object between these tags, then stop:\n\n"
            '<tool_call>\n{"name": "the tool\'s name", "arguments": {…}}\n</tool_call>\n\n'
            "Several calls at once each have tags of their own. You are then given each result between "
            "<tool_response> and </tool_response>; never write these yourself. "
            "Without need for a tool, answer the user in plain text."
        )

    def call(self, name: str, arguments: str, thought: str) -> str:  # noqa: ARG002 - required by the protocol
        """Return name and arguments between tags. Arguments that are not JSON are inserted unchanged."""
        return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments.strip() or "{}"}}}\n</tool_call>'

    def results(self, results: Sequence[tuple[str, str]]) -> str:
        """Return each result between `<tool_response>` tags."""
        return "\n".join(f"<tool_response>\n{result}\n</tool_response>" for _, result in results)


WORDINGS: Mapping[str, Wording] = {"react": ReactWording(), "xml": XmlWording()}
"""The wordings by the name of the format."""


def convert_calls_to_text(
    messages: Sequence[ChatDict], wording: Wording, thoughts: Mapping[str, str]
) -> tuple[list[ChatDict], bool]:
    """Return the messages with calls and results as text, and whether there were any calls.

    `thoughts` are the texts that the model wrote before calls, by the calls' ids.

    Results become a user message. It is joined with a user message that follows, because many chat templates require
    that user and assistant alternate.
    """
    worded: list[ChatDict] = []
    names: dict[str, str] = {}
    results: list[tuple[str, str]] = []
    for message in messages:
        if message["role"] == "tool":
            name = names.get(message.get("tool_call_id", ""), "tool")
            results.append((name, content_text(message.get("content"))))
            continue
        _add_results(worded, results, wording)
        if calls := message.get("tool_calls"):
            names |= {call["id"]: call["function"]["name"] for call in calls}
            written = [
                wording.call(call["function"]["name"], call["function"]["arguments"], thoughts.get(call["id"], ""))
                for call in calls
            ]
            said = content_text(message.get("content"))
            content = "\n".join([*([said] if said.strip() else []), *written])
            message = {key: value for key, value in message.items() if key != "tool_calls"} | {"content": content}
        _add(worded, message)
    _add_results(worded, results, wording)
    return worded, bool(names)


def _add_results(worded: list[ChatDict], results: list[tuple[str, str]], wording: Wording) -> None:
    if results:
        worded.append({"role": "user", "content": wording.results(results)})
        results.clear()


def _add(worded: list[ChatDict], message: ChatDict) -> None:
    before = worded[-1] if worded else None
    if before is None or message["role"] != "user" or before["role"] != "user":
        worded.append(message)
    elif isinstance(before["content"], str) and isinstance(message["content"], str):
        worded[-1] = {**message, "content": f"{before['content']}\n\n{message['content']}"}
    else:
        worded[-1] = {**message, "content": [*_parts(before["content"]), *_parts(message["content"])]}


def _parts(content: object) -> list[object]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def round_messages(
    text: str, calls: Sequence[ToolCall | ResolvedCall | RejectedCall], results: Sequence[str]
) -> list[ChatDict]:
    """Return one round as OpenAI messages: an assistant message with the calls, then a `tool` message for each result.

    `results` are in the order of `calls`.
    """
    asked = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_text}}
        for call in calls
    ]
    answers: list[ChatDict] = [
        {"role": "tool", "tool_call_id": call.id, "content": result}
        for call, result in zip(calls, results, strict=True)
    ]
    # Anthropic and Bedrock refuse white space: https://github.com/LibreChat-AI/agents/pull/124
    return [{"role": "assistant", "content": text if text.strip() else None, "tool_calls": asked}, *answers]
