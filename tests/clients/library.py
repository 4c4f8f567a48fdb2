"""The server that the clients talk to: a real one, whose agent has a tool that they offer too, and a scripted model."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from callboard.agents import Agent
from callboard.calls import tool
from callboard.errors import ToolError
from callboard.skills import Skill
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
async def opened(folder: Path, words: Sequence[str] = ("apple",), *, lent: bool = False) -> AsyncIterator[Library]:
    """A library whose model looks these words up at once, and then says what it was told last.

    The calls end in the opposite order. Where all is `lent` the tool fails.
    """
    looked_up: list[str] = []
    ended = {word: asyncio.Event() for word in words}

    @tool
    async def look_up(word: str) -> str:
        """Looks a word up."""
        looked_up.append(word)
        for later in words[words.index(word) + 1 :]:
            await ended[later].wait()
        ended[word].set()
        if lent:
            raise ToolError(LENT)
        return FOUND

    def answer(body: Body) -> Answer:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return chunks(text(f"It is said: {last['content']}."), finish("stop"))
        if QUESTION in str(last["content"]):
            wanted = (
                call("look_up", f'{{"word": "{word}"}}', index=index, call_id=f"call_{index}")
                for index, word in enumerate(words)
            )
            return chunks(text("I look. "), *wanted, finish("tool_calls"))
        return chunks(text("Quite."), finish("stop"))

    agent = Agent("librarian", skills=(Skill("words", "Words.", tools=(look_up,)),))
    async with OpenAIServer(answer) as endpoint:
        async with serving(folder, agent, model_base_url=endpoint.base_url, model="m") as service:
            yield Library(f"{service.client.base_url}/v1", endpoint, looked_up)
