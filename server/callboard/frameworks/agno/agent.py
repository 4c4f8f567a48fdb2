"""Agents and teams of Agno: their runs as turns."""

from collections.abc import AsyncGenerator
from typing import Any, cast

from agno.agent import Agent
from agno.team import Team, TeamMode

from callboard._agents import OnOwnerLoss
from callboard.frameworks.adapter import Factory, FrameworkAgent, HistoryOf, check_given, choose_on_owner_loss, id_from
from callboard.frameworks.agno.description import describe
from callboard.frameworks.agno.hooks import EventTranslator, Item
from callboard.frameworks.agno.messages import tell_team, to_messages
from callboard.frameworks.agno.model import AgnoAgent, Hooks, current_hooks, hook_agents_in_tools, with_hooked_models
from callboard.frameworks.agno.tools import resolve
from callboard.frameworks.description import Description
from callboard.frameworks.turn import Turn


def from_agno(
    agent: AgnoAgent | Factory[AgnoAgent],
    *,
    agent_id: str = "",
    name: str = "",
    description: str = "",
    history: HistoryOf = "callboard",
    on_owner_loss: OnOwnerLoss | None = None,
) -> FrameworkAgent[AgnoAgent]:
    """Return an agent or a team of Agno as it is now, or a function that makes one per run, as an agent of Callboard.

    `agent_id` and `name` are the agent's own unless they are given; a function needs an `agent_id`.
    `description` is for people (the agent's own is for its model). `history`: the model is sent
    the chat as Callboard remembers it, with every call and result, and the agent's
    `add_history_to_context` does not count (`callboard`); or the last message and what the agent's
    own database has of the session, which is the chat (`own`). Tools find `user_id` and `chat_id`,
    None where the client did not say, among the run's `dependencies`, beside the agent's own.
    `on_owner_loss`: whether another server goes on with a run whose own is gone (`continue`), by a
    new run of the agent that is told the calls that have ended, or ends it (`end`); by default the
    first, and the second with the history `own`, which does not know them, and for a team whose
    members get more than its leader tells them: the user's input, or tasks. Raises `AgentError`.
    """
    check_given(agent, _FromAgno.kinds, _FromAgno.wanted)
    hook_agents_in_tools()
    if isinstance(agent, Agent | Team):
        agent_id = agent_id or id_from(agent.id or agent.name or "")
        name = name or agent.name or ""
        # Once, and not for each run: a model keeps its connections.
        ready = with_hooked_models(agent)
        if isinstance(agent, Team) and (agent.mode == TeamMode.tasks or not agent.determine_input_for_members):
            on_owner_loss = on_owner_loss or "end"
        return _FromAgno(lambda _: ready, agent_id, name, description, history, on_owner_loss, known=agent)
    return _FromAgno(agent, agent_id, name, description, history, on_owner_loss)


class _FromAgno(FrameworkAgent[AgnoAgent]):
    kinds = (Agent, Team)
    wanted = "an Agent or a Team of Agno"

    def __init__(
        self,
        make: Factory[AgnoAgent],
        agent_id: str,
        name: str,
        description: str,
        history: HistoryOf,
        on_owner_loss: OnOwnerLoss | None,
        known: AgnoAgent | None = None,
    ) -> None:
        on_owner_loss = choose_on_owner_loss(agent_id, on_owner_loss, has_own_history=history == "own")
        super().__init__(make, agent_id, name, description, on_owner_loss, known)
        self._history = history

    def describe_agent(self, agent: AgnoAgent) -> Description:
        return describe(agent)

    async def play(self, agent: AgnoAgent, turn: Turn) -> None:
        hooks = self._make_hooks(turn)
        translator = EventTranslator(hooks)
        # Any: an agent's and a team's methods are the same, their types are not.
        player: Any = with_hooked_models(agent)
        messages = to_messages(turn.context.messages)
        own = self._history == "own"
        given: Any = messages[-1:] if own else messages
        if isinstance(player, Team) and not own:
            player, given = tell_team(player, messages)
        user_id = turn.context.user.id if turn.context.user else None
        options = {
            "user_id": user_id,
            # Those of a run take the place of the agent's own.
            "dependencies": {**(agent.dependencies or {}), "user_id": user_id, "chat_id": turn.context.chat_id},
            "run_id": turn.context.run_id,
            "session_id": turn.context.chat_id or turn.context.run_id,
            "stream": True,
            "stream_events": True,
            "yield_run_output": True,
        }
        run = player.arun(given, add_history_to_context=own, **options)
        while (paused := await translator.follow(run)) is not None:
            await resolve(paused, hooks)
            run = player.acontinue_run(run_response=paused, **options)

    async def answer(self, agent: AgnoAgent, turn: Turn) -> None:
        translator = EventTranslator(self._make_hooks(turn))
        plain = Agent(model=with_hooked_models(agent).model, telemetry=False)
        run = plain.arun(to_messages(turn.context.messages), stream=True, stream_events=True)
        await translator.follow(cast(AsyncGenerator[Item, None], run))

    def _make_hooks(self, turn: Turn) -> Hooks:
        hooks = Hooks(turn, self.agent_id)
        # For this task, and so for this run alone.
        current_hooks.set(hooks)
        return hooks
