"""Runs agents behind AG-UI endpoints as Callboard agents."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from hashlib import sha256
from typing import Any
from uuid import uuid4

from pydantic_core import to_json

from callboard.agents import RunContext
from callboard.agents.tool_loop import run_completion
from callboard.errors import ToolDenied
from callboard.frameworks.adapter import FrameworkAgent, make_for_run, to_agent_id
from callboard.frameworks.agui.endpoint import Endpoint
from callboard.frameworks.agui.interrupts import answer_interrupts, restore_interrupts
from callboard.frameworks.agui.messages import to_messages
from callboard.frameworks.agui.stream import EventTranslator
from callboard.frameworks.questions import UNANSWERED
from callboard.frameworks.turn import AdapterTurn
from callboard.redaction import SECRET_NAME
from callboard_protocol import Done

Headers = Mapping[str, str]

UNUSED_FIELDS: dict[str, Any] = {"state": None, "tools": [], "context": [], "forwardedProps": {}}
"""The fields that the protocol requires in each request."""


def from_agui(
    url: str,
    *,
    agent_id: str = "",
    name: str = "",
    description: str = "",
    headers: Headers | Callable[[RunContext], Headers | Awaitable[Headers]] | None = None,
    timeout_seconds: float = 300,
) -> FrameworkAgent[Endpoint]:
    """Return an agent of Callboard that runs an agent behind an AG-UI endpoint, of any framework.

    The agent's server runs its tools. Callboard shows and stores the calls, but its limits on calls and
    `CALLBOARD_CONFIRM_TOOLS` do not apply to them. What the agent's server asks before a call is asked here, and can
    wait. If Callboard's server stops in the middle of an answer, the run ends, unless it waits.

    Args:
        url: The address of the agent's route, to which clients POST.
        agent_id: The id of the Callboard agent; by default made of the address.
        name: The name of the Callboard agent; by default its id.
        description: A description for people.
        headers: Headers of every request, for example `{"Authorization": "Bearer …"}`, or a function of the
            `RunContext` that returns them. The values of those named like secrets are removed from events and logs.
        timeout_seconds: The longest silence of the endpoint during a run.

    Raises:
        AgentError: The address or the id cannot be used.
    """
    endpoint = Endpoint(url, timeout_seconds)
    agent_id = agent_id or to_agent_id(endpoint.address.partition("://")[2])
    agent = _AGUIAdapter(lambda _: endpoint, agent_id, name, description, openwebui_tools="none")
    agent.headers = headers or {}
    return agent


class _AGUIAdapter(FrameworkAgent[Endpoint]):
    calls_can_wait = True
    keeps_runs = True
    headers: Headers | Callable[[RunContext], Headers | Awaitable[Headers]]

    async def run_turn(self, agent: Endpoint, turn: AdapterTurn) -> None:
        context = turn.context
        headers = self.headers if isinstance(self.headers, Mapping) else await make_for_run(self.headers, context)
        secrets = [value for name, value in headers.items() if SECRET_NAME.search(name)]
        context.redaction.add(*agent.secrets, *(part for value in secrets for part in (value, *value.split())))
        translator = EventTranslator(turn, agent)
        # The agent is a part, because two agents may be at one address.
        thread = to_json([self.agent_id, context.user and context.user.id, context.run_id])
        thread_id = sha256(thread).hexdigest()[:32]
        interrupts = await restore_interrupts(translator)
        while True:
            try:
                answers = await answer_interrupts(interrupts, translator) if interrupts else {}
            except ToolDenied:
                turn.add_text(UNANSWERED)
                return
            messages = to_messages([*context.messages, *translator.messages], context.run_id)
            body = {"threadId": thread_id, "runId": uuid4().hex, "messages": messages, **UNUSED_FIELDS, **answers}
            with turn.observe_request(agent.address, len(messages), 0) as request:
                async with aclosing(agent.stream(body, headers)) as events:
                    interrupts = await translator.follow(events)
                request.usage = translator.usage
            if not interrupts:
                return

    async def run_task(self, agent: Endpoint, turn: AdapterTurn) -> None:  # noqa: ARG002 - see below
        """Ask the server's own model, because AG-UI has no requests without the agent's tools."""
        async with aclosing(run_completion(turn.context)) as events:
            async for event in events:
                if not isinstance(event, Done):
                    turn.events.send(event)
