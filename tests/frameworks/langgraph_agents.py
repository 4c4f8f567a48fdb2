"""Graphs and agents of LangGraph for its own tests."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from callboard.agents import AgentLike
from callboard.frameworks.langgraph import from_langgraph
from callboard.frameworks.langgraph.stream import Graph
from tests.frameworks.toolbox import Toolbox
from tests.frameworks.with_langgraph import chat_model

Node = Callable[..., Any] | ToolNode | Graph


@dataclass(frozen=True)
class Made:
    """An agent that a test creates with its own model."""

    make: Callable[[ChatOpenAI], AgentLike]
    kind: type[ChatOpenAI] = ChatOpenAI

    @asynccontextmanager
    async def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
        async with chat_model(base_url, self.kind) as model:
            yield self.make(model)


def solo(*tools: Any, **fields: Any) -> Made:
    """A LangChain agent with these tools and a checkpointer."""
    return Made(lambda model: from_langgraph(agent_of(model, *tools, **fields)))


def agent_of(model: ChatOpenAI, *tools: Any, **fields: Any) -> Graph:
    return create_agent(model, [*tools], name="agent", **{"checkpointer": InMemorySaver(), **fields})


def loop(
    model: ChatOpenAI, tools: Sequence[Any], run: Node | None = None, ask: Node | None = None, **fields: Any
) -> Graph:
    """A handwritten graph: a node that asks the model, and a node that runs the tools, by default LangGraph's."""
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


def asks_another(*tools: Any) -> Made:
    """An agent with a tool that runs another agent, which has these tools."""

    def make(model: ChatOpenAI) -> Any:
        other = agent_of(model, *tools, checkpointer=None)

        async def ask_other(task: str) -> str:
            """Asks the other agent."""
            done = await other.ainvoke({"messages": [HumanMessage(task)]})
            return str(done["messages"][-1].content)

        return from_langgraph(agent_of(model, ask_other))

    return Made(make)


def asks_another_and_waits(*tools: Any, in_a_thread: bool = True) -> Made:
    """The same, with LangGraph's synchronous method."""

    def make(model: ChatOpenAI) -> Any:
        other = agent_of(model, *tools, checkpointer=None)

        def ask_other(task: str) -> str:
            """Asks the other agent."""
            return str(other.invoke({"messages": [("user", task)]})["messages"][-1].content)

        async def ask_other_async(task: str) -> str:
            """Asks the other agent."""
            return ask_other(task)

        return from_langgraph(agent_of(model, tool("ask_other")(ask_other if in_a_thread else ask_other_async)))

    return Made(make)


add = Toolbox().plain("add")
