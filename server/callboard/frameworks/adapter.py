"""The base class of every adapter: an agent whose turns another framework runs."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from inspect import isawaitable, signature
from typing import Any, ClassVar, Generic, TypeVar

from callboard.agents import RunContext
from callboard.agents.context import OnOwnerLoss
from callboard.agents.declarations import check_arguments
from callboard.errors import AgentError
from callboard.frameworks.openai_client import rejecting_cut_off_answers, watch_openai_client
from callboard.frameworks.turn import AdapterTurn
from callboard.openwebui.requests import OpenWebUITools
from callboard_protocol import Event

A = TypeVar("A")

Factory = Callable[[RunContext], A | Awaitable[A]]
"""Makes an agent for one run, for agents that depend on the user or the chat."""

_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.:/-]+")
MAX_ID_CHARS = 128


class FrameworkAgent(ABC, Generic[A]):
    """A Callboard agent that runs an agent of another framework, or one that a function makes for each run.

    An adapter implements `run_turn` and `run_task`. The framework runs in its own task, which ends with the run; its
    exceptions end the run. The client's model options are not passed on, because the agent's author chose the model.

    Args:
        make: Returns the framework's agent for a run.
        on_owner_loss: May be `continue` only if the framework, given messages that end in tool results, asks its model
            what comes next.
        openwebui_tools: Which of Open WebUI's tools it gets; see `Agent`.

    Raises:
        AgentError: The id cannot be used in a model list.
    """

    agent_classes: tuple[type, ...] = (object,)
    """The framework's classes of agents."""
    agent_noun = "an agent"
    """Those classes in words, for error messages."""
    calls_can_wait: ClassVar[bool] = False
    """Whether a call can wait for its approval while the run has ended: the adapter gives the framework
    `AdapterTurn.take_unfinished_answer` in place of the model's first answer."""
    keeps_runs: ClassVar[bool] = False
    """Whether the framework keeps a run that waits at its own server. Such a run goes on after the approval, also with
    `on_owner_loss="end"`."""

    def __init__(
        self,
        make: Factory[A],
        agent_id: str,
        name: str,
        description: str,
        on_owner_loss: OnOwnerLoss = "end",
        openwebui_tools: OpenWebUITools = "attached",
    ) -> None:
        self.agent_id = agent_id
        self.name = name or agent_id
        self.description = description
        self.on_owner_loss = on_owner_loss
        check_arguments(agent_id, on_owner_loss=on_owner_loss, openwebui_tools=openwebui_tools)
        self.openwebui_tools = openwebui_tools if isinstance(openwebui_tools, str) else tuple(openwebui_tools)
        self._make = make
        if not agent_id or to_agent_id(agent_id) != agent_id:
            raise AgentError(
                f"An agent cannot have the id {agent_id!r}: give one as agent_id=…, of 1 to {MAX_ID_CHARS} letters, "
                "digits and any of _ . : / -"
            )
        watch_openai_client()

    @abstractmethod
    async def run_turn(self, agent: A, turn: AdapterTurn) -> None:
        """Run one turn of the framework's agent, and report it to `turn`. Raises `ModelError` if the model fails.

        It is called again, with the turn so far in the conversation, if the user has sent messages to the run that no
        model has read.
        """

    @abstractmethod
    async def run_task(self, agent: A, turn: AdapterTurn) -> None:
        """Answer a background task of the client with one request to the agent's model, without tools."""

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None, None]:
        """Open resources for as long as the server runs. The default opens none."""
        yield

    async def run(self, context: RunContext) -> AsyncGenerator[Event, None]:
        """Run one turn and yield its events.

        Closing the generator stops the framework's run, its requests and its tools.
        """
        turn = AdapterTurn(context)
        work = asyncio.create_task(self._run_framework(turn), name=f"{self.agent_id} {context.run_id}")
        turn.calls.on_wait = work.cancel
        try:
            async with aclosing(turn.events.read(work)) as events:
                async for event in events:
                    yield event
        finally:
            turn.close()
        if turn.calls.is_waiting:
            # Without `Done`: the run goes on with the user's answer.
            return
        work.result()
        if any(call.id not in turn.context.begun for call in turn.context.unfinished):
            raise AgentError(
                f"The agent '{self.agent_id}' has not gone on with its calls that waited for approval. Declare it with "
                "on_owner_loss='end', so that its calls do not wait."
            )
        for event in turn.final_events():
            yield event

    async def _run_framework(self, turn: AdapterTurn) -> None:
        agent: A = await make_for_run(self._make, turn.context)
        if not isinstance(agent, self.agent_classes):
            raise AgentError(
                f"The function of the agent '{self.agent_id}' must return {self.agent_noun}: it returned an object of "
                f"the class {type(agent).__name__}."
            )
        try:
            with rejecting_cut_off_answers():
                if turn.context.task is not None:
                    await self.run_task(agent, turn)
                    return
                await self.run_turn(agent, turn)
                while await turn.take_last_message():
                    await self.run_turn(agent, turn)
        finally:
            turn.finish_answer()


async def make_for_run(make: Callable[[RunContext], Any] | None, context: RunContext) -> Any:
    """Return the object that a function, which may be async, makes for a run; None without a function."""
    try:
        made = make(context) if make else None
        return await made if isawaitable(made) else made
    except AttributeError as error:
        if context.user is not None or error.obj is not None:
            raise
        raise AgentError(
            f"The agent's function failed ({error}): this request names no user, so the `user` of its RunContext is "
            "None. Ask as a user, or let the function do without one."
        ) from error


def to_factory(given: A | Factory[A], agent_classes: tuple[type, ...], agent_noun: str, advice: str = "") -> Factory[A]:
    """Return the function that makes an agent for each run: `given`, or one that returns the agent that is given.

    Raises `AgentError` unless `given` is such a function or has one of these classes.
    """
    if isinstance(given, agent_classes):
        agent: Any = given
        return lambda _: agent
    if callable(given) and not isinstance(given, type):
        try:
            signature(given).bind(None)
        except TypeError:
            advice = "A function that makes an agent takes one argument, the RunContext."
        else:
            return given
    named = repr(given)[:80] if isinstance(given, str | int | float | None) else getattr(given, "__name__", "")
    what = named or f"an object of the class {type(given).__module__}.{type(given).__name__}"
    raise AgentError(f"Give {agent_noun}, or a function that makes one for each run: this is {what}. {advice}".rstrip())


def to_agent_id(name: str) -> str:
    """Return a name as an agent id, with every run of characters that ids cannot have replaced by `-`."""
    return _NOT_IN_AN_ID.sub("-", name).strip("-")[:MAX_ID_CHARS]
