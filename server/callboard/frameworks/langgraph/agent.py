"""Graphs of LangGraph, and LangChain's agents, which are graphs too: their runs as turns."""

import re
from collections.abc import Awaitable, Callable, Collection
from inspect import isawaitable
from typing import Any

from langchain_core.language_models import LanguageModelLike
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.pregel.protocol import PregelProtocol

from callboard._agents import OnOwnerLoss, RunContext
from callboard.errors import AgentError
from callboard.frameworks.adapter import Factory, FrameworkAgent, HistoryOf, check_given, choose_on_owner_loss, id_from
from callboard.frameworks.description import Description
from callboard.frameworks.langgraph.description import describe
from callboard.frameworks.langgraph.held import model_of
from callboard.frameworks.langgraph.hooks import Hooks, current_hooks
from callboard.frameworks.langgraph.interrupts import resolve
from callboard.frameworks.langgraph.messages import ends_of_open_calls, to_messages, words_of
from callboard.frameworks.langgraph.stream import EventTranslator, Graph
from callboard.frameworks.langgraph.tools import contain_tools, hook_agents_in_tools, hook_tool_nodes
from callboard.frameworks.turn import Turn

Context = Callable[[RunContext], Any | Awaitable[Any]]
"""Makes what the graph's nodes and tools get as `runtime.context`, for each run."""

UNNAMED = "LangGraph"
"""The name of a graph that nobody gave one."""

MAX_STEPS = 10_000
"""As LangChain's own agents have it: what ends a turn is the server's limits."""

HOOK = re.compile(r"\.(before|after)_(agent|model)$|^(pre|post)_model_hook$|^generate_structured_response$")
"""The names of nodes that LangChain's agents have around their model: middleware, and the form of the answer."""

UNANSWERED = "I cannot go on without your answer. Send it, and I will start again."


def from_langgraph(
    agent: Graph | Factory[Graph],
    *,
    agent_id: str = "",
    name: str = "",
    description: str = "",
    history: HistoryOf = "callboard",
    model: LanguageModelLike | None = None,
    answers: Collection[str] = (),
    context: Context | None = None,
    on_owner_loss: OnOwnerLoss | None = None,
) -> FrameworkAgent[Graph]:
    """Return a compiled graph (`create_agent(…)` gives one), or what makes one per run, as an agent of Callboard.

    Its state has `messages`. The answer is what its models say and it keeps among its messages, one
    node after the other; what it does not keep, such as a router's choice, is taken back. `answers`
    names the nodes whose words alone are the answer; a model with the tag `nostream` is not heard
    while it speaks. Where nobody is heard, the last message of its state is the answer.

    `agent_id` and `name` are the graph's own unless they are given; a function needs an `agent_id`.
    `context` makes what its nodes get as `runtime.context`, for each run. `history`: the model is
    sent the chat as Callboard remembers it, and the graph's checkpointer keeps nothing beyond the
    run (`callboard`); or the last message and what the checkpointer has of the thread, which is the
    chat (`own`). `model`, without tools, answers the client's background tasks and says the last word
    of a turn that has used up its calls: the first one found in the graph unless it is given. A
    graph that interrupts needs a checkpointer.

    `on_owner_loss`: whether another server goes on with a run whose own is gone (`continue`), or ends it
    (`end`). It begins the graph anew, with messages that end in the results of the calls that have ended.
    By default a graph that is one node and its tools goes on, such as `create_agent(…)` makes: after
    its tools it goes where it begins. Others end, for nodes that have run would run again, and so do functions
    that make a graph, and graphs with the history `own`. Raises `AgentError`.
    """
    check_given(agent, _FromLangGraph.kinds, _FromLangGraph.wanted, _advise(agent))
    hook_agents_in_tools()
    contain_tools()
    if isinstance(agent, Pregel):
        own_name = "" if agent.name == UNNAMED else agent.name
        agent_id = agent_id or id_from(own_name)
        name = name or own_name
        _refuse_unfit(agent, history)
        _refuse_unknown(agent, answers)
        if is_agent_loop(agent):
            on_owner_loss = choose_on_owner_loss(agent_id, on_owner_loss, has_own_history=history == "own")
        return _FromLangGraph(
            lambda _: agent, agent_id, name, description, history, on_owner_loss, model, answers, context, known=agent
        )
    return _FromLangGraph(agent, agent_id, name, description, history, on_owner_loss, model, answers, context)


class _FromLangGraph(FrameworkAgent[Graph]):
    kinds = (Pregel,)
    wanted = "a compiled graph of LangGraph"

    def __init__(
        self,
        make: Factory[Graph],
        agent_id: str,
        name: str,
        description: str,
        history: HistoryOf,
        on_owner_loss: OnOwnerLoss | None,
        model: LanguageModelLike | None,
        answers: Collection[str],
        context: Context | None,
        known: Graph | None = None,
    ) -> None:
        is_own = history == "own"
        on_owner_loss = choose_on_owner_loss(agent_id, on_owner_loss, has_own_history=is_own, usual="end")
        super().__init__(make, agent_id, name, description, on_owner_loss, known)
        self._history = history
        self._model = model
        self._answers = frozenset(answers)
        self._context = context

    def describe_agent(self, agent: Graph) -> Description:
        return describe(agent, self._model or model_of(agent))

    async def play(self, agent: Graph, turn: Turn) -> None:
        _refuse_unfit(agent, self._history)
        made = self._context(turn.context) if self._context else None
        context = await made if isawaitable(made) else made
        with Hooks(turn, self.agent_id, set(hook_tool_nodes(agent))) as hooks:
            # For this task, and so for this run alone.
            current_hooks.set(hooks)
            graph = self._prepare(agent, hooks)
            translator = EventTranslator(hooks, self._answers)
            given: Any = {"messages": await self._messages(graph, turn)}
            with translator:
                while given is not None and (interrupts := await translator.follow(graph, given, context)):
                    if graph.checkpointer is None:
                        raise AgentError(f"The graph of '{self.agent_id}' interrupts: compile it with a checkpointer.")
                    given = await resolve(interrupts, hooks)
            if given is None:
                turn.say(UNANSWERED)
            elif request := hooks.last_request:
                model = self._model or model_of(agent)
                if model is not None:
                    await _ask(model, request, hooks, reasoning=True)
            translator.end()

    async def answer(self, agent: Graph, turn: Turn) -> None:
        if (model := self._model or model_of(agent)) is None:
            raise AgentError(f"No model is found in the graph of '{self.agent_id}': give from_langgraph(…, model=…).")
        with Hooks(turn, self.agent_id, ()) as hooks:
            await _ask(model, to_messages(turn.context.messages), hooks, reasoning=False)

    async def _messages(self, graph: Graph, turn: Turn) -> list[BaseMessage]:
        messages = to_messages(turn.context.messages)
        if self._history == "callboard":
            return messages
        state = await graph.aget_state(graph.config or {})
        return [*ends_of_open_calls(state.values.get("messages", ())), *messages[-1:]]

    def _prepare(self, agent: Graph, hooks: Hooks) -> Graph:
        """Return the graph as this run has it: hooked, in a thread of its own or the chat's.

        Where the server's limits hold for its calls, LangGraph's own limit of steps does not count.
        """
        context = hooks.turn.context
        thread = context.run_id if self._history == "callboard" else context.chat_id or context.run_id
        configurable = {"thread_id": thread, **({"user_id": context.user.id} if context.user else {})}
        config = RunnableConfig(callbacks=[hooks], configurable=configurable)
        graph = agent.with_config(config | RunnableConfig(recursion_limit=MAX_STEPS) if hooks.tool_nodes else config)
        if self._history == "callboard" and isinstance(graph.checkpointer, BaseCheckpointSaver):
            graph.checkpointer = InMemorySaver(serde=graph.checkpointer.serde)
        return graph


def _advise(given: object) -> str:
    match given:
        case StateGraph():
            return "Compile it: graph.compile()."
        case PregelProtocol() if not isinstance(given, Pregel):
            return "Its nodes run on another server, whose calls cannot be held to limits: give the graph itself."
        case Runnable():
            return "Make it a node of a graph, or give its model and its tools to create_agent(…)."
        case _:
            return ""


def _refuse_unknown(graph: Graph, answers: Collection[str]) -> None:
    inner = [one for _, one in graph.get_subgraphs(recurse=True) if isinstance(one, Pregel)]
    names = {name for one in (graph, *inner) for name in one.nodes if not name.startswith("__")}
    if unknown := sorted(set(answers) - names):
        raise AgentError(
            f"The graph '{graph.name}' has no node {unknown[0]!r}. Its nodes are: {', '.join(sorted(names))}."
        )


def _refuse_unfit(graph: Graph, history: HistoryOf) -> None:
    if "messages" not in graph.channels:
        raise AgentError(f"The state of the graph '{graph.name}' has no messages: add them, as MessagesState has them.")
    if history == "own" and not isinstance(graph.checkpointer, BaseCheckpointSaver):
        raise AgentError(f"The graph '{graph.name}' has no history of its own: compile it with a checkpointer.")


def is_agent_loop(graph: Graph) -> bool:
    """Return whether the graph is one node, its tools and its middleware: after the tools it goes where it begins."""
    nodes = [name for name, node in graph.nodes.items() if not isinstance(node.bound, ToolNode)]
    own = [name for name in nodes if not name.startswith("__") and not HOOK.search(name)]
    inner = (one for _, one in graph.get_subgraphs() if isinstance(one, Pregel))
    return len(own) == 1 and all(map(is_agent_loop, inner))


async def _ask(model: LanguageModelLike, messages: list[BaseMessage], hooks: Hooks, *, reasoning: bool) -> None:
    async for piece in model.astream(messages, RunnableConfig(callbacks=[hooks])):
        for words in words_of(piece):
            if reasoning:
                hooks.turn.think(words.reasoning)
            hooks.turn.say(words.text)
