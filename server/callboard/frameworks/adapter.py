"""The base of every adapter: an agent whose turns another framework runs."""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from inspect import isawaitable, signature
from typing import Any, Generic, Literal, TypeVar

from callboard._agents import OnOwnerLoss, RunContext, check_on_owner_loss
from callboard.errors import AgentError
from callboard.frameworks.description import MADE_PER_RUN, Description
from callboard.frameworks.openai_client import refusing_half_answers, watch_openai_client
from callboard.frameworks.turn import Turn
from callboard_protocol import Event

A = TypeVar("A")

Factory = Callable[[RunContext], A | Awaitable[A]]
"""Makes an agent for one run: for agents that depend on who asks."""

HistoryOf = Literal["callboard", "own"]
"""The owner of the memory that the model is sent: the replayed messages, or the framework's own session; never both."""

_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_.:/-]+")
MAX_ID_CHARS = 128


class FrameworkAgent(ABC, Generic[A]):
    """An agent of another framework, or what makes one per run, as an agent like any other.

    `make` gives the agent of each run. An adapter says `play` and `answer`; the rest is the same
    for all: the framework runs in a task of its own, which ends with the run, and what it raises
    ends the run. The client's options for the model are not passed on: the model is its author's.
    `on_owner_loss` is `continue` where the framework, given messages that end in the results of tools,
    asks its model what comes next. `known` is the agent where it is the same one for every run.
    Raises `AgentError` for an id that a model list cannot hold.
    """

    kinds: tuple[type, ...] = (object,)
    """The classes of the framework's agents."""
    wanted = "an agent"
    """The same in words."""

    def __init__(
        self,
        make: Factory[A],
        agent_id: str,
        name: str,
        description: str,
        on_owner_loss: OnOwnerLoss = "end",
        known: A | None = None,
    ) -> None:
        self.agent_id = agent_id
        self.name = name or agent_id
        self.description = description
        self.on_owner_loss = on_owner_loss
        self._make = make
        self._known = known
        if not agent_id or id_from(agent_id) != agent_id:
            raise AgentError(
                f"An agent cannot have the id {agent_id!r}: give one as agent_id=…, of 1 to {MAX_ID_CHARS} letters, "
                "digits and any of _ . : / -"
            )
        check_on_owner_loss(agent_id, on_owner_loss)
        watch_openai_client()

    @abstractmethod
    async def play(self, agent: A, turn: Turn) -> None:
        """Play one turn of the framework's agent, and tell `turn` of it. Raises `ModelError` where its model fails."""

    @abstractmethod
    async def answer(self, agent: A, turn: Turn) -> None:
        """Answer a background task of the client: one plain answer of the agent's model, without tools."""

    def describe(self) -> Description:
        """Return what is known of the agent before it runs."""
        return MADE_PER_RUN if self._known is None else self.describe_agent(self._known)

    def describe_agent(self, agent: A) -> Description:
        """Return what the framework's objects tell; an adapter that says nothing else knows nothing."""
        del agent
        return Description(notes=("What its prompt, its tools and its model are is known during a run alone.",))

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None, None]:
        """Hold open what is needed for as long as the server runs; nothing, unless an adapter says so."""
        yield

    async def run(self, context: RunContext) -> AsyncGenerator[Event, None]:
        """Play one turn as events; closing the generator ends the framework's run, its requests and its tools."""
        turn = Turn(context)
        work = asyncio.create_task(self._work(turn), name=f"{self.agent_id} {context.run_id}")
        try:
            async with aclosing(turn.events.read(work)) as events:
                async for event in events:
                    yield event
        finally:
            work.cancel()
            await asyncio.wait({work})
            turn.close()
        work.result()
        for event in turn.end():
            yield event

    async def _work(self, turn: Turn) -> None:
        made = self._make(turn.context)
        agent: A = await made if isawaitable(made) else made
        if not isinstance(agent, self.kinds):
            raise AgentError(
                f"The function of the agent '{self.agent_id}' is to return {self.wanted}: it returned an object of the "
                f"class {type(agent).__name__}."
            )
        try:
            with refusing_half_answers():
                await (self.play(agent, turn) if turn.context.task is None else self.answer(agent, turn))
        finally:
            turn.finish_answer()


def check_given(given: object, kinds: tuple[type, ...], wanted: str, advice: str = "") -> None:
    """Raise `AgentError` for an object that is none of these kinds and no function that makes one for each run."""
    if isinstance(given, kinds):
        return
    if callable(given) and not isinstance(given, type):
        if _takes_one_argument(given):
            return
        advice = "A function that makes an agent takes one argument, the RunContext."
    named = repr(given)[:80] if isinstance(given, str | int | float | None) else getattr(given, "__name__", "")
    what = named or f"an object of the class {type(given).__module__}.{type(given).__name__}"
    raise AgentError(f"Give {wanted}, or a function that makes one for each run: this is {what}. {advice}".rstrip())


def _takes_one_argument(function: Callable[..., Any]) -> bool:
    try:
        signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:
        # Some built-in functions do not say.
        return True
    return True


def choose_on_owner_loss(
    agent_id: str, given: OnOwnerLoss | None, *, has_own_history: bool, usual: OnOwnerLoss = "continue"
) -> OnOwnerLoss:
    """Return what becomes of an agent's run whose server is gone: what was `given`, else what is `usual`.

    A memory of its own does not know the calls that ended on another server: such an agent ends. Raises `AgentError`
    where it is to go on all the same.
    """
    if not has_own_history:
        return given or usual
    if given == "continue":
        raise AgentError(
            f"The agent '{agent_id}' cannot go on with a run of another server: its own history does not know the "
            "calls that have ended there. Leave on_owner_loss out, or leave the history to Callboard."
        )
    return given or "end"


def id_from(name: str) -> str:
    """Return a name as an agent's id, the same where it can be one."""
    return _NOT_IN_AN_ID.sub("-", name).strip("-")[:MAX_ID_CHARS]
