"""Runs graphs of LangGraph, including LangChain's agents, as Callboard agents."""

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel, LanguageModelLike
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig, RunnableLambda, RunnableSequence
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.pregel.protocol import PregelProtocol
from langgraph.types import Command

from callboard.agents import RunContext
from callboard.agents.context import OnOwnerLoss
from callboard.errors import AgentError
from callboard.frameworks.adapter import (
    Factory,
    FrameworkAgent,
    make_for_run,
    to_agent_id,
    to_factory,
)
from callboard.frameworks.langgraph.hooks import GraphHooks, current_hooks
from callboard.frameworks.langgraph.interrupts import answer_interrupts
from callboard.frameworks.langgraph.messages import results_for_open_calls, to_messages, to_pieces
from callboard.frameworks.langgraph.repeating import repeat_answers
from callboard.frameworks.langgraph.stream import EventTranslator, Graph
from callboard.frameworks.langgraph.tool_nodes import contain_tools, find_tool_nodes, hook_tool_nodes
from callboard.frameworks.questions import UNANSWERED
from callboard.frameworks.turn import AdapterTurn
from callboard.openwebui.requests import OpenWebUITools

Context = Callable[[RunContext], Any | Awaitable[Any]]
"""Makes the object that the graph's nodes and tools get as `runtime.context`, for each run."""

HistoryOf = Literal["callboard", "own"]
"""The source of the conversation that the model is sent: Callboard's replay, or the graph's checkpointer."""

DEFAULT_NAME = "LangGraph"
"""The name of a graph that was compiled without one."""

MAX_STEPS = 10_000
"""The limit of steps of a graph whose author set none. The server's limits end a turn earlier."""

HOOK_NODE = re.compile(r"\.(before|after)_(agent|model)$|^(pre|post)_model_hook$|^generate_structured_response$")
"""The names of nodes that LangChain's agents put around their model: middleware and structured output."""


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
    openwebui_tools: OpenWebUITools = "none",
) -> FrameworkAgent[Graph]:
    """Return an agent of Callboard that runs a compiled graph, or a graph that a function makes for each run.

    `create_agent(…)` returns such a graph. Its state must have `messages`. The answer is the text of its models that
    the state keeps among its messages, node by node; text that the state does not keep, such as a router's choice, is
    taken back. A model with the tag `nostream` is not shown while it writes. If no node streams text, the answer is the
    last message of the state.

    Args:
        agent: The graph, or a function of the `RunContext` that returns one.
        agent_id: The id of the Callboard agent; by default the graph's name. Required with a function.
        name: The name of the Callboard agent; by default the graph's name.
        description: A description for people.
        history: `callboard`: the model is sent the chat as Callboard remembers it, and the graph's checkpointer keeps
            nothing beyond the run. `own`: the model is sent the last message and the checkpointer's state of the
            thread, which is the chat.
        model: A model without tools for the client's background tasks, and for the last answer of a turn that has used
            all its calls. By default the first model found in the graph.
        answers: The names of the nodes whose text is the answer; by default all nodes.
        context: Makes the object that nodes get as `runtime.context`, for each run.
        on_owner_loss: The rule for a run whose server stops. `continue`: another server starts the graph again,
            with messages that end in the results of the calls that have ended. `end`: the run ends. The default is
            `continue` for a graph of one node and its tools, such as `create_agent(…)` makes, because it returns to
            its start after its tools. It is `end` for other graphs, whose nodes would run twice, for functions that
            make a graph, and with the history `own`.
        openwebui_tools: Which of Open WebUI's own tools the graph gets: `attached` (by the user or a preset), `all`,
            `none`, or name patterns. A compiled graph cannot get more tools, so `agent` must be a function, which gets
            them as `to_langchain_tools(context, own_tools)`.

    A graph that interrupts needs a checkpointer.

    Raises:
        AgentError: The graph cannot be served as declared.
    """
    make = to_factory(agent, _LangGraphAdapter.agent_classes, _LangGraphAdapter.agent_noun, _advice_for(agent))
    hook_tool_nodes()
    contain_tools()
    repeat_answers()
    usual: OnOwnerLoss = "end"
    if isinstance(agent, Pregel):
        if openwebui_tools != "none":
            raise AgentError(
                "A compiled graph cannot get Open WebUI's tools: give a function that makes a graph for each run, with "
                "the tools of to_langchain_tools(context, own_tools)."
            )
        own_name = "" if agent.name == DEFAULT_NAME else agent.name
        agent_id = agent_id or to_agent_id(own_name)
        name = name or own_name
        _check_graph(agent, history)
        _check_answer_nodes(agent, answers)
        usual = "continue" if is_agent_loop(agent) else "end"
    if history == "own":
        usual = "end"
        if on_owner_loss == "continue":
            raise AgentError(
                f"The agent '{agent_id}' cannot continue a run of another server: its own history lacks the calls that "
                "ended there. Leave out on_owner_loss, or leave the history to Callboard."
            )
    declared = (make, agent_id, name, description, on_owner_loss or usual, openwebui_tools)
    return _LangGraphAdapter(*declared, history=history, model=model, answers=answers, context=context)


class _LangGraphAdapter(FrameworkAgent[Graph]):
    agent_classes = (Pregel,)
    agent_noun = "a compiled graph of LangGraph"
    calls_can_wait = True

    def __init__(
        self,
        *declared: Any,
        history: HistoryOf,
        model: LanguageModelLike | None,
        answers: Collection[str],
        context: Context | None,
    ) -> None:
        super().__init__(*declared)
        self._history = history
        self._model = model
        self._answers = frozenset(answers)
        self._context = context

    async def run_turn(self, agent: Graph, turn: AdapterTurn) -> None:
        _check_graph(agent, self._history)
        context = await make_for_run(self._context, turn.context)
        with GraphHooks(turn, self.agent_id, set(find_tool_nodes(agent))) as hooks:
            # Set for this task only, which is this run.
            current_hooks.set(hooks)
            graph = self._prepare(agent, hooks)
            translator = EventTranslator(hooks, self._answers)
            messages = await self._input_messages(graph, turn)
            if isinstance(messages[-1], HumanMessage):
                messages[-1] = hooks.note_user_message(messages[-1])
            given: Any = {"messages": messages}
            with translator:
                while given is not None and (interrupts := await translator.follow(graph, given, context)):
                    if graph.checkpointer is None:
                        raise AgentError(
                            f"The graph of '{self.agent_id}' interrupts but has no checkpointer: compile it with one."
                        )
                    given = await answer_interrupts(interrupts, hooks)
            if given is None:
                turn.add_text(UNANSWERED)
            elif request := hooks.last_request:
                model = self._model or _find_model(agent)
                if model is not None:
                    await _stream_answer(model, request, hooks, reasoning=True)
            translator.end()

    async def run_task(self, agent: Graph, turn: AdapterTurn) -> None:
        if (model := self._model or _find_model(agent)) is None:
            raise AgentError(
                f"The graph of '{self.agent_id}' has no model for background tasks: pass from_langgraph(…, model=…)."
            )
        with GraphHooks(turn, self.agent_id, ()) as hooks:
            await _stream_answer(model, to_messages(turn.context.messages), hooks, reasoning=False)

    async def _input_messages(self, graph: Graph, turn: AdapterTurn) -> list[BaseMessage]:
        messages = to_messages(turn.context.messages)
        if self._history == "callboard":
            return messages
        state = await graph.aget_state(graph.config or {})
        return [*results_for_open_calls(state.values.get("messages", ())), *messages[-1:]]

    def _prepare(self, agent: Graph, hooks: GraphHooks) -> Graph:
        """Return the graph with this run's hooks and thread, which is the chat's only with the history `own`.

        If the author set no limit of steps, LangGraph's is lifted for a graph with hooked tool nodes, to which the
        server's limits apply.
        """
        context = hooks.turn.context
        thread = context.run_id if self._history == "callboard" else context.chat_id or context.run_id
        configurable = {"thread_id": thread, **({"user_id": context.user.id} if context.user else {})}
        config = RunnableConfig(callbacks=[hooks], configurable=configurable)
        if hooks.tool_nodes and "recursion_limit" not in (agent.config or {}):
            config["recursion_limit"] = MAX_STEPS
        graph = agent.with_config(config)
        if self._history == "callboard" and isinstance(graph.checkpointer, BaseCheckpointSaver):
            graph.checkpointer = InMemorySaver(serde=graph.checkpointer.serde)
        if (name := _find_entry(agent)) is not None:
            node = graph.nodes[name]
            graph.nodes = {**graph.nodes, name: node.copy({"bound": _reading_messages(node.bound, hooks)})}
        return graph


def _advice_for(given: object) -> str:
    match given:
        case StateGraph():
            return "Compile it: graph.compile()."
        case PregelProtocol() if not isinstance(given, Pregel):
            return "It runs on another server, where Callboard cannot apply its limits: pass the graph itself."
        case Runnable():
            return "Make it a node of a graph, or pass its model and its tools to create_agent(…)."
        case _:
            return ""


def _check_answer_nodes(graph: Graph, answers: Collection[str]) -> None:
    inner = [subgraph for _, subgraph in graph.get_subgraphs(recurse=True) if isinstance(subgraph, Pregel)]
    names = {name for known in (graph, *inner) for name in known.nodes if not name.startswith("__")}
    if unknown := sorted(set(answers) - names):
        raise AgentError(
            f"The graph '{graph.name}' has no node {unknown[0]!r}. Its nodes are: {', '.join(sorted(names))}."
        )


def _check_graph(graph: Graph, history: HistoryOf) -> None:
    if "messages" not in graph.channels:
        raise AgentError(f"The state of the graph '{graph.name}' has no messages: add them, as MessagesState does.")
    if history == "own" and not isinstance(graph.checkpointer, BaseCheckpointSaver):
        raise AgentError(f"The graph '{graph.name}' has no history of its own: compile it with a checkpointer.")


def is_agent_loop(graph: Graph) -> bool:
    """Return whether the graph is one node with tools and middleware, which returns to its start after the tools."""
    nodes = [name for name, node in graph.nodes.items() if not isinstance(node.bound, ToolNode)]
    own = [name for name in nodes if not name.startswith("__") and not HOOK_NODE.search(name)]
    inner = (subgraph for _, subgraph in graph.get_subgraphs() if isinstance(subgraph, Pregel))
    return len(own) == 1 and all(map(is_agent_loop, inner))


def _find_entry(graph: Graph) -> str | None:
    """Return the node of an agent's loop to which its tools return; None for other graphs.

    Also None if middleware checks the user's words before the loop, because it would not see later messages.
    """
    names = [name for name, node in graph.nodes.items() if not isinstance(node.bound, ToolNode | Pregel)]
    if (
        len(names) == len(graph.nodes)
        or not is_agent_loop(graph)
        or any(name.endswith(".before_agent") for name in names)
    ):
        return None
    own = [name for name in names if not name.startswith("__") and not HOOK_NODE.search(name)]
    return next(iter([*(name for name in names if re.search(r"\.before_model$|^pre_model_hook$", name)), *own]), None)


def _reading_messages(node: Runnable[Any, Any], hooks: GraphHooks) -> Runnable[Any, Any]:
    """Return the node; its state also gets the user's messages to the run."""
    # Until the node has ended: LangGraph may run it again after an exception, and drops its update.
    taken: list[BaseMessage] = []

    async def run(state: Any, config: RunnableConfig) -> Any:
        if isinstance(state, dict) and "messages" in state and (text := await hooks.turn.take_message()):
            taken.append(hooks.note_user_message(HumanMessage(text)))
        if not taken:
            return await node.ainvoke(state, config)
        output = await node.ainvoke({**state, "messages": [*state["messages"], *taken]}, config)
        update: Command[Any] = Command(update={"messages": taken.copy()})
        taken.clear()
        return [update, *(output if isinstance(output, list) else [output])]

    return RunnableLambda(run)


async def _stream_answer(
    model: LanguageModelLike, messages: list[BaseMessage], hooks: GraphHooks, *, reasoning: bool
) -> None:
    async for piece in model.astream(messages, RunnableConfig(callbacks=[hooks])):
        for words in to_pieces(piece):
            if reasoning:
                hooks.turn.add_reasoning(words.reasoning)
            hooks.turn.add_text(words.text)


def _find_model(graph: Graph) -> BaseChatModel | None:
    """Return the first model that is a node of the graph or is used by a node's function, or None.

    LangGraph has no public access to the objects that a node's function has captured.
    """
    found = (model for node in graph.nodes.values() for model in _find_models(node.bound))
    nested = (
        model for _, inner in graph.get_subgraphs() if isinstance(inner, Pregel) and (model := _find_model(inner))
    )
    return next(found, None) or next(nested, None)


def _find_models(value: object) -> Iterator[BaseChatModel]:
    match value:
        case BaseChatModel():
            yield value
        case RunnableBinding():
            yield from _find_models(value.bound)
        case RunnableSequence():
            for step in value.steps:
                yield from _find_models(step)
        case Runnable() if not isinstance(value, Pregel):
            for function in (getattr(value, "afunc", None), getattr(value, "func", None)):
                for value_used in _captured_values(function):
                    # Functions inside captured functions are not searched.
                    if isinstance(value_used, BaseChatModel | RunnableBinding | RunnableSequence):
                        yield from _find_models(value_used)


def _captured_values(function: object) -> Iterator[object]:
    """Yield the non-local and global variables that a function uses, and the attributes of a method's object."""
    function = inspect.unwrap(function) if callable(function) else function
    if inspect.ismethod(function):
        yield from vars(function.__self__).values()
        function = function.__func__
    if inspect.isfunction(function):
        seen = inspect.getclosurevars(function)
        yield from [*seen.nonlocals.values(), *seen.globals.values()]
