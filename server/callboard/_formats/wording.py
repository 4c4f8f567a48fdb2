"""The texts that explain tools, earlier calls and their results to models without native tools."""

import json
from collections.abc import Sequence
from typing import Protocol

from callboard.calls import Tool

NO_MORE_CALLS = "No tool can be called any more. Answer now with the information that you have."


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


def describe_tools(tools: Sequence[Tool]) -> str:
    """Return a paragraph for each tool: its name, its description and the JSON schema of its arguments."""
    return "\n\n".join(
        f"{tool.name}: {tool.description.strip()}\nArguments (JSON schema): {_schema(tool)}" for tool in tools
    )


def _schema(tool: Tool) -> str:
    return json.dumps(dict(tool.parameters), ensure_ascii=False)


class ReactWording:
    """ReAct: the lines `Thought:`, `Action:`, `Action Input:` and `Observation:`."""

    def instructions(self, tools: Sequence[Tool]) -> str:
        """Return the list of tools and the explanation of the lines."""
        names = ", ".join(tool.name for tool in tools)
        return (
            f"You can use these tools:\n\n{describe_tools(tools)}\n\n"
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
