"""A minimal agent framework: ask a model, run the tools that it calls, ask again.

It does not import Callboard. `tiny_adapter.py` runs its agents in Callboard.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

Message = dict[str, Any]
MAX_ROUNDS = 10


class TinyHooks:
    """Hooks for a program that runs agents: override them to observe and change a run."""

    def offer(self, schemas: list[Message]) -> list[Message]:
        """Return the tools to offer to the model."""
        return schemas

    def on_text(self, text: str) -> None:
        """Receive a text of the model."""

    async def run_tool(self, call: Message, perform: Callable[[], Awaitable[str]]) -> str:
        """Run the tool of `call` with `perform`, and return the result for the model."""
        del call
        return await perform()


@dataclass(frozen=True)
class TinyAgent:
    """An agent of the framework, with a model behind an OpenAI-compatible URL and tools by name."""

    name: str
    url: str
    model: str
    tools: Mapping[str, Callable[..., Awaitable[str]]] = field(default_factory=dict)
    schemas: Sequence[Message] = ()

    async def run(self, messages: Sequence[Message], hooks: TinyHooks) -> None:
        """Ask the model until it calls no more tools."""
        conversation = list(messages)
        async with httpx.AsyncClient(base_url=self.url) as client:
            for _ in range(MAX_ROUNDS):
                body = {"model": self.model, "messages": conversation, "tools": hooks.offer(list(self.schemas))}
                response = await client.post("/chat/completions", json=body)
                answer = response.raise_for_status().json()["choices"][0]["message"]
                conversation.append(answer)
                hooks.on_text(answer.get("content") or "")
                for call in answer.get("tool_calls") or ():
                    result = await hooks.run_tool(call, partial(self._perform, call["function"]))
                    conversation.append({"role": "tool", "tool_call_id": call["id"], "content": result})
                if not answer.get("tool_calls"):
                    return

    async def _perform(self, function: Message) -> str:
        if function["name"] not in self.tools:
            raise ValueError(f"there is no tool {function['name']}")
        return await self.tools[function["name"]](**json.loads(function["arguments"]))
