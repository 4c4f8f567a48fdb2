"""The words in which a model without native tools is told of them, and of earlier calls and their results."""

import json
from collections.abc import Sequence
from typing import Protocol

from callboard.calls import Tool

NO_MORE_CALLS = "No tool can be called any more. Answer now, with what is known."


class Wording(Protocol):
    """The words for one dialect."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Return what the system prompt says of the tools and of how to call them."""
        ...

    def call(self, name: str, arguments: str, thought: str) -> str:
        """Return an earlier call as the model would have written it, after its `thought` where that is known."""
        ...

    def results(self, results: Sequence[tuple[str, str]]) -> str:
        """Return the results of one answer's calls, each with its tool's name, in their order."""
        ...


def described(tools: Sequence[Tool]) -> str:
    """Return a paragraph for each tool: name, description, the JSON schema of its arguments."""
    return "\n\n".join(
        f"{tool.name}: {tool.description.strip()}\nArguments (JSON schema): {_schema(tool)}" for tool in tools
    )


def _schema(tool: Tool) -> str:
    return json.dumps(dict(tool.parameters), ensure_ascii=False)


class ReactWording:
    """Thought, action, input, observation."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Return the tools, and the four markers."""
        names = ", ".join(tool.name for tool in tools)
        return (
            f"You can use these tools:\n\n{described(tools)}\n\n"
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
        """Return thought, action and input."""
        action = f"Action: {name}\nAction Input: {arguments.strip() or '{}'}"
        return f"Thought: {thought}\n{action}" if thought else action

    def results(self, results: Sequence[tuple[str, str]]) -> str:
        """Return an observation for each, named where there are several."""
        if len(results) == 1:
            return f"Observation: {results[0][1]}"
        return "\n\n".join(f"Observation ({name}): {result}" for name, result in results)


class XmlWording:
    """JSON between tags."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Return the tools, and the tags."""
        listed = "\n".join(json.dumps(tool.schema(), ensure_ascii=False) for tool in tools)
        return (
            f"You can call these tools, described as JSON schemas:\n\n<tools>\n{listed}\n</tools>\n\n"
            "To call one, write its name and arguments as a JSON object between these tags, then stop:\n\n"
            '<tool_call>\n{"name": "the tool\'s name", "arguments": {…}}\n</tool_call>\n\n'
            "Several calls at once each have tags of their own. You are then given each result between "
            "<tool_response> and </tool_response>; never write these yourself. "
            "Without need for a tool, answer the user in plain text."
        )

    def call(self, name: str, arguments: str, thought: str) -> str:  # noqa: ARG002 - the contract's
        """Return the tags with name and arguments; arguments that are no JSON stand there as they were."""
        return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments.strip() or "{}"}}}\n</tool_call>'

    def results(self, results: Sequence[tuple[str, str]]) -> str:
        """Return a pair of tags for each."""
        return "\n".join(f"<tool_response>\n{result}\n</tool_response>" for _, result in results)
