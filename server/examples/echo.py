"""An agent without a prompt or a model: its `run` yields events, which Callboard stores and sends."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from callboard import RunContext, register, tool
from callboard_protocol import Event, Message


@tool
def echo(text: str) -> str:
    """Return the text.

    Args:
        text: The text to return.
    """
    return text


@dataclass(frozen=True)
class Echo:
    """An agent that repeats the user's text with a tool call."""

    agent_id: str = "echo"
    name: str = "Echo"
    description: str = "Repeats your text."

    async def run(self, context: RunContext) -> AsyncIterator[Event]:
        """Yield the events of a turn."""
        said = str(context.messages[-1]["content"])
        result = await context.call(echo, {"text": said})
        yield Message(content=result.text)


register(Echo())
