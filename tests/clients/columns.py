"""The clients, and the shapes in which each was tried."""

import asyncio
import importlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients import installed

HERE = Path(__file__).parent

Order = dict[str, Any]
"""What a client is to do: `base_url`, `headers`, `questions` one after another in one conversation, `streamed`, and
`by_id`: it sends `previous_response_id` and its new question, and nothing else of what was before."""

Converse = Callable[[Order, Path], Awaitable[dict[str, Any]]]
"""Asks the questions; returns the `answers`, and the number of `own_calls` of the tool that the client has itself."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client as it is told of; `needs` are those of its tests."""

    name: str
    converse: Converse
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """How the calls are shown, and how the client asks: what of it is not the default."""

    name: str
    streamed: bool = False
    activity: str | None = None
    fails: bool = False
    by_id: bool = False
    words: tuple[str, ...] = ("apple",)

    @property
    def headers(self) -> dict[str, str]:
        """What the client says beside the question."""
        return {"X-Callboard-Tool-Activity": self.activity} if self.activity else {}


def _here(module: str) -> Converse:
    async def run(order: Order, _folder: Path) -> dict[str, Any]:
        # Now, and not when the tests are collected: some take seconds to import.
        said: dict[str, Any] = await importlib.import_module(f"tests.clients.{module}").converse(order)
        return said

    return run


async def _openai_1(order: Order, _folder: Path) -> dict[str, Any]:
    python = await asyncio.to_thread(installed.python_of_openai_1)
    return await _said_by(str(python), str(HERE / "with_openai.py"), json.dumps(order))


def _node(script: str) -> Converse:
    async def run(order: Order, folder: Path) -> dict[str, Any]:
        packages = await asyncio.to_thread(installed.node_folder)
        # Node.js looks for packages beside the program.
        program = folder / script
        program.write_text((HERE / script).read_text())
        (folder / "node_modules").symlink_to(packages / "node_modules")
        return await _said_by("node", str(program), json.dumps(order))

    return run


async def _said_by(*command: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, f"{command[0]} ended with {process.returncode}"
    said: dict[str, Any] = json.loads(out)
    return said


CLIENTS = (
    Client("openai 3", _here("with_openai")),
    Client("openai 1", _openai_1, ("downloads",)),
    Client("openai 6 (Node.js)", _node("with_openai_node.mjs"), ("npm", "downloads")),
    Client("pydantic-ai", _here("with_pydantic_ai")),
    Client("LangChain", _here("with_langchain")),
    Client("OpenAI Agents", _here("with_openai_agents")),
    Client("AI SDK 6", _node("with_ai_sdk.mjs"), ("npm", "downloads")),
)
SHAPES = (
    Shape("whole"),
    Shape("streamed", streamed=True),
    Shape("a failing call, streamed", streamed=True, fails=True),
    Shape("two calls at once, streamed", streamed=True, words=("apple", "pear")),
    Shape("`previous_response_id`", by_id=True),
    Shape("`none`, streamed", streamed=True, activity="none"),
)
