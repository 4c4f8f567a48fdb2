"""The server that the clients talk to: a real one, whose agent has a tool that they offer too, and a scripted model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from callboard.agents import Agent
from callboard.errors import ToolError
from callboard.skills import Skill
from callboard.tools import tool
from tests.fakes.openai_server import Answer, Body, OpenAIServer, call, chunks, finish, text
from tests.serving import serving

QUESTION = "What is an apple?"
NEXT = "Sure?"
FOUND = 'a fruit, "round" & <b>red</b>'
LENT = "the dictionary is lent"


@dataclass
class Library:
    """A running server; `looked_up` are the words that its own tool was given."""

    base_url: str
    endpoint: OpenAIServer
    looked_up: list[str] = field(default_factory=list)


@asynccontextmanager
async def opened(folder: Path, *, lent: bool = False) -> AsyncIterator[Library]:
    """A library whose model looks a word up, and then says what it was told; where all is `lent` the tool fails."""
    looked_up: list[str] = []

    @tool
    async def look_up(word: str) -> str:
        """Looks a word up."""
        looked_up.append(word)
        if lent:
            raise ToolError(LENT)
        return FOUND

    agent = Agent("librarian", skills=(Skill("words", "Words.", tools=(look_up,)),))
    async with OpenAIServer(_answer) as endpoint:
        async with serving(folder, agent, model_base_url=endpoint.base_url, model="m") as service:
            yield Library(f"{service.client.base_url}/v1", endpoint, looked_up)


def _answer(body: Body) -> Answer:
    last = body["messages"][-1]
    if last["role"] == "tool":
        return chunks(text(f"It is said: {last['content']}."), finish("stop"))
    if QUESTION in str(last["content"]):
        wanted = call("look_up", '{"word": "apple"}', call_id="call_1")
        return chunks(text("I look. "), wanted, finish("tool_calls"))
    return chunks(text("Quite."), finish("stop"))
