"""The file that `CALLBOARD_AGENTS` names: the agents of all benchmarks.

The question is a number: how many chunks, pieces or calls there are to be, or how many MiB.
"""

import asyncio
import base64
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from callboard import Agent, RunContext, Skill, register, tool
from callboard_protocol import Event, Message, ToolCallComplete, ToolCallStart
from tests.bench import story

PACE_SECONDS = 0.1
FILES = 3
PIECE = "A piece of text" + " of a long answer" * 63 + "\n"
ORDER_SECONDS = 0.4


@dataclass(frozen=True, slots=True)
class Scripted:
    agent_id: str
    script: Callable[[int], AsyncIterator[Event]]
    description: str = "Says what the benchmark wants."

    @property
    def name(self) -> str:
        return self.agent_id

    def run(self, context: RunContext) -> AsyncIterator[Event]:
        return self.script(int(str(context.messages[-1]["content"])))


async def text(chunks: int) -> AsyncIterator[Event]:
    """The story, as fast as possible."""
    for event in story.text_only(chunks):
        yield event


async def calls(chunks: int) -> AsyncIterator[Event]:
    """The story with calls, as fast as possible."""
    for event in story.with_calls(chunks):
        yield event


async def paced(pieces: int) -> AsyncIterator[Event]:
    """Each piece is the time at which it was sent, by a clock that all processes of this machine share."""
    for _ in range(pieces):
        yield Message(content=f"{time.monotonic()} ")
        await asyncio.sleep(PACE_SECONDS)


async def calling(count: int) -> AsyncIterator[Event]:
    """Calls, as fast as possible."""
    for number in range(count):
        for event in story.call(number, statuses=0):
            yield event


async def silent(_: int) -> AsyncIterator[Event]:
    """A word, and then nothing for ever."""
    yield Message(content="Hello.")
    await asyncio.Event().wait()


async def filing(mib: int) -> AsyncIterator[Event]:
    """Files of this size."""
    for number in range(FILES):
        yield ToolCallStart(tool_call_id=f"file {number}", tool_name="write_file")
        url = "data:application/pdf;base64," + base64.b64encode(os.urandom(mib * 2**20)).decode()
        files = ({"name": "report.pdf", "url": url},)
        yield ToolCallComplete(tool_call_id=f"file {number}", result="Written.", files=files)
    yield Message(content="Done.")


async def writing(mib: int) -> AsyncIterator[Event]:
    """A text of this size."""
    for _ in range(mib * 2**20 // len(PIECE)):
        yield Message(content=PIECE)


@tool
async def place(order: str) -> str:
    """Place an order, which is the effect in the middle of the call: a line in a file."""
    await asyncio.sleep(ORDER_SECONDS / 2)
    # One write, because other servers write to the same file.
    placed = os.open(os.environ["CALLBOARD_BENCH_PLACED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(placed, f"{order}\n".encode())
    os.close(placed)
    await asyncio.sleep(ORDER_SECONDS / 2)
    return f"{order} is placed"


@tool(read_only=True)
async def read_file(path: str) -> str:
    """Read a file."""
    return story.result(int(path.rpartition("/")[2]))


@tool
async def wait(step: int) -> str:
    """Wait a while, and note the end."""
    await asyncio.sleep(0.5)
    (Path(os.environ["CALLBOARD_BENCH_NOTES"]) / f"ended_{step}").write_text(repr(time.time()))
    return "Waited."


for script in (text, calls, paced, calling, silent, filing, writing):
    register(Scripted(script.__name__, script))
register(Agent("clerk", skills=[Skill("orders", "Places orders.", tools=[place])]))
register(Agent("reader", skills=[Skill("files", "Reads files.", tools=[read_file])]))
register(Agent("waiter", skills=[Skill("waits", "Waits.", tools=[wait])]))
