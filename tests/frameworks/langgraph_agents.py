"""Graphs and agents of LangGraph."""

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from openai import AsyncOpenAI, OpenAI
from pydantic import SecretStr

from callboard.agents import AgentLike
from tests.frameworks import stage
from tests.frameworks.scenario import INSTRUCTIONS
from tests.frameworks.toolbox import PICTURE, Toolbox

if TYPE_CHECKING:
    from callboard.frameworks.langgraph.stream import Graph


def with_tools(*tools: Any) -> stage.Made:
    return solo(*tools, middleware=[approval()], system_prompt=INSTRUCTIONS)


def approval() -> Any:
    """Middleware that asks about the tool `wipe`."""
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    return HumanInTheLoopMiddleware(interrupt_on={"wipe": {"allowed_decisions": ["approve", "reject"]}})


def tool_named(name: str, toolbox: Toolbox) -> Any:
    from langchain_core.tools import tool

    async def paint(what: str) -> list[dict[str, Any]]:
        """Paints."""
        picture = {"type": "image", "base64": base64.b64encode(PICTURE).decode(), "mime_type": "image/png"}
        return [{"type": "text", "text": f"{what}, painted"}, picture]

    return tool(paint if name == "paint" else toolbox.plain(name))


@asynccontextmanager
async def chat_model(base_url: str, kind: Any = None) -> AsyncIterator[Any]:
    """A model whose connections are closed at the end."""
    from langchain_openai import ChatOpenAI

    options: dict[str, Any] = {"base_url": base_url, "api_key": "key", "max_retries": 0, "timeout": None}
    with OpenAI(**options) as waiting:
        async with AsyncOpenAI(**options) as client:
            connections: dict[str, Any] = {
                "client": waiting.chat.completions,
                "async_client": client.chat.completions,
                "root_client": waiting,
                "root_async_client": client,
            }
            yield (kind or ChatOpenAI)(model="m", api_key=SecretStr("key"), stream_usage=True, **connections)


Made = partial(stage.Made, model_at=chat_model)


def solo(*tools: Any, **fields: Any) -> stage.Made:
    """A LangChain agent with these tools and a checkpointer."""
    return Made(lambda model: serve(agent_of(model, *tools, **fields)))


def serve(graph: Any, **options: Any) -> AgentLike:
    from callboard.frameworks.langgraph import from_langgraph

    return from_langgraph(graph, **options)


def agent_of(model: Any, *tools: Any, **fields: Any) -> "Graph":
    from langchain.agents import create_agent
    from langgraph.checkpoint.memory import InMemorySaver

    return create_agent(model, [*tools], name="agent", **{"checkpointer": InMemorySaver(), **fields})


def loop(model: Any, tools: Sequence[Any], run: Any = None, ask: Any = None, **fields: Any) -> "Graph":
    """A handwritten graph: a node that asks the model, and a node that runs the tools, by default LangGraph's."""
    from langchain_core.tools import tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    asking = model.bind_tools([tool(one) for one in tools])

    async def ask_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await asking.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask or ask_model)
    graph.add_node("tools", run or ToolNode([*tools]))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    return graph.compile(name="agent", **fields)


def chain(*nodes: tuple[str, Any], state: Any = None, side_by_side: bool = False, **fields: Any) -> "Graph":
    """A graph of these nodes, in sequence or in parallel; `state` is the class of its state."""
    from langgraph.graph import START, MessagesState, StateGraph

    graph = StateGraph(state or MessagesState, **fields)
    before = START
    for name, node in nodes:
        graph.add_node(name, node)
        graph.add_edge(START if side_by_side else before, name)
        before = name
    return graph.compile(name="agent")


def asks_another(*tools: Any, way: str) -> stage.Made:
    """An agent with a tool that runs another agent, which has these tools."""

    def make(model: Any) -> AgentLike:
        from langchain_core.messages import HumanMessage

        other = agent_of(model, *tools, checkpointer=None, middleware=[approval()])

        async def awaits(task: str) -> str:
            """Asks the other agent."""
            return str((await other.ainvoke({"messages": [HumanMessage(task)]}))["messages"][-1].content)

        def in_a_thread(task: str) -> str:
            """Asks the other agent."""
            return str(other.invoke({"messages": [("user", task)]})["messages"][-1].content)

        async def blocks(task: str) -> str:
            """Asks the other agent."""
            return in_a_thread(task)

        [ask_other] = [one for one in (awaits, in_a_thread, blocks) if one.__name__ == way]
        ask_other.__name__ = "ask_other"
        return serve(agent_of(model, ask_other))

    return Made(make)


add = Toolbox().plain("add")
