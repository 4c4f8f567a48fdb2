"""Runs agents and teams of Agno as Callboard agents."""

from collections.abc import AsyncGenerator
from copy import copy
from functools import partial
from typing import Any, cast

from agno.agent import Agent
from agno.team import Team, TeamMode
from agno.tools.function import Function

from callboard.agents.context import OnOwnerLoss
from callboard.frameworks.adapter import (
    Factory,
    FrameworkAgent,
    to_agent_id,
    to_factory,
)
from callboard.frameworks.agno.hooks import AgnoHooks, current_hooks
from callboard.frameworks.agno.messages import add_history, to_messages
from callboard.frameworks.agno.model import AgnoAgent, hook_agents_in_tools, hook_models
from callboard.frameworks.agno.requirements import resolve_requirements
from callboard.frameworks.agno.stream import EventTranslator, Item
from callboard.frameworks.turn import AdapterTurn, run_openwebui_tool
from callboard.openwebui.requests import OpenWebUITools


def from_agno(
    agent: AgnoAgent | Factory[AgnoAgent],
    *,
    agent_id: str = "",
    name: str = "",
    description: str = "",
    on_owner_loss: OnOwnerLoss | None = None,
    openwebui_tools: OpenWebUITools = "attached",
) -> FrameworkAgent[AgnoAgent]:
    """Return an agent of Callboard that runs an agent or team of Agno, or one that a function makes for each run.

    An agent or team is copied now: later changes to it have no effect.

    Args:
        agent: The agent or team, or a function of the `RunContext` that returns one.
        agent_id: The id of the Callboard agent; by default the agent's own. Required with a function.
        name: The name of the Callboard agent; by default the agent's own.
        description: A description for people. The agent's own description is for its model.
        on_owner_loss: The rule for a run whose server stops. `continue`: another server starts a new run of the
            agent, with the calls that have ended among its messages. `end`: the run ends. The default is `continue`;
            it is `end` for a team whose members receive the user's input or tasks instead of their leader's
            instructions.
        openwebui_tools: Which of Open WebUI's own tools the agent or the team's leader gets: `attached` (by the user or
            a preset), `all`, `none`, or name patterns.

    The model is sent the chat as Callboard remembers it: the agent's `add_history_to_context` is ignored. Tools find
    `user_id` and `chat_id` among the run's `dependencies`, beside the agent's own. They are None if the client did not
    send them.

    Raises:
        AgentError: The agent cannot be served as declared.
    """
    hook_agents_in_tools()
    if isinstance(agent, Agent | Team):
        agent_id = agent_id or to_agent_id(agent.id or agent.name or "")
        name = name or agent.name or ""
        # Hooked once, not for each run, because a model keeps its connections.
        agent = hook_models(agent)
        if isinstance(agent, Team) and (agent.mode == TeamMode.tasks or not agent.determine_input_for_members):
            on_owner_loss = on_owner_loss or "end"
    make: Factory[AgnoAgent] = to_factory(agent, _AgnoAdapter.agent_classes, _AgnoAdapter.agent_noun)
    return _AgnoAdapter(make, agent_id, name, description, on_owner_loss or "continue", openwebui_tools)


class _AgnoAdapter(FrameworkAgent[AgnoAgent]):
    agent_classes = (Agent, Team)
    agent_noun = "an Agent or a Team of Agno"
    calls_can_wait = True

    async def run_turn(self, agent: AgnoAgent, turn: AdapterTurn) -> None:
        hooks = self._make_hooks(turn)
        translator = EventTranslator(hooks)
        # Typed as Any because agents and teams have the same methods but no common type.
        player: Any = _add_openwebui_tools(hook_models(agent), turn)
        player, given = add_history(player, to_messages(turn.context.messages))
        hooks.question = given["input"]
        user_id = turn.context.user.id if turn.context.user else None
        options = {
            "user_id": user_id,
            # A run's dependencies replace the agent's own.
            "dependencies": {**(agent.dependencies or {}), "user_id": user_id, "chat_id": turn.context.chat_id},
            "run_id": turn.context.run_id,
            "session_id": turn.context.chat_id or turn.context.run_id,
            "stream": True,
            "stream_events": True,
            "yield_run_output": True,
        }
        run = player.arun(**given, add_history_to_context=False, **options)
        while (paused := await translator.follow(run)) is not None:
            await resolve_requirements(paused, hooks)
            run = player.acontinue_run(run_response=paused, **options)

    async def run_task(self, agent: AgnoAgent, turn: AdapterTurn) -> None:
        translator = EventTranslator(self._make_hooks(turn))
        plain = Agent(model=hook_models(agent).model, telemetry=False)
        run = plain.arun(to_messages(turn.context.messages), stream=True, stream_events=True)
        await translator.follow(cast(AsyncGenerator[Item, None], run))

    def _make_hooks(self, turn: AdapterTurn) -> AgnoHooks:
        hooks = AgnoHooks(turn, self.agent_id)
        # Set for this task only, which is this run.
        current_hooks.set(hooks)
        return hooks


def _add_openwebui_tools(agent: AgnoAgent, turn: AdapterTurn) -> AgnoAgent:
    """Return a copy of the agent that also has Open WebUI's tools of this run; the agent itself if there are none.

    An agent whose tools are made by a function keeps only those.
    """
    tools = agent.tools or []
    if not turn.context.openwebui_tools or not isinstance(tools, list):
        return agent
    added = [
        Function(
            name=tool.name,
            description=tool.description,
            parameters=dict(tool.parameters),
            entrypoint=partial(run_openwebui_tool, turn, tool),
            skip_entrypoint_processing=True,
        )
        for tool in turn.context.openwebui_tools
    ]
    extended = copy(agent)
    # Last, because Agno skips a tool whose name an earlier one has.
    extended.tools = [*tools, *added]
    return extended
