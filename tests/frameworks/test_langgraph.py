"""Features of LangGraph only: handwritten graphs, subgraphs, agents inside tools, its own threads."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from callboard.errors import AgentError
from callboard_protocol import Error, Plan, ToolCallArgsDelta, ToolCallStart
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Body, chunks, finish, text
from tests.frameworks.scenario import ADD, ADDED, calls, says, scenario
from tests.frameworks.stage import perform
from tests.frameworks.toolbox import Toolbox

if TESTS_RUN:
    from langchain.agents.middleware import TodoListMiddleware
    from langchain.agents.structured_output import ToolStrategy
    from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
    from langchain_core.outputs import ChatGenerationChunk
    from langchain_core.tools import BaseTool
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph

    from callboard.frameworks.langgraph import from_langgraph
    from tests.frameworks.langgraph_agents import Made, add, agent_of, asks_another, loop, solo

    class Reasoning(ChatOpenAI):
        """A model that keeps the reasoning, as LangChain's models of other endpoints do."""

        def _convert_chunk_to_generation_chunk(self, chunk: Any, *rest: Any) -> ChatGenerationChunk | None:
            made = super()._convert_chunk_to_generation_chunk(chunk, *rest)
            if made is not None and (thought := chunk["choices"][0]["delta"].get("reasoning_content")):
                made.message.additional_kwargs["reasoning_content"] = thought
                made.message.response_metadata["model_provider"] = "another"
            return made

    class Quit(BaseTool):
        """A tool of its own class, which runs in a thread."""

        name: str = "quit"
        description: str = "Quits."
        raised: type[BaseException]

        def _run(self) -> str:
            raise self.raised("enough")

    class QuitAsync(Quit):
        """The same without a thread."""

        async def _arun(self) -> str:
            return self._run()


BROKEN = ("add", '{"a": 2, "b": oops')


class Weather(BaseModel):
    """The type of a structured answer."""

    city: str


async def run_tools(state: MessagesState) -> dict[str, list[BaseMessage]]:
    """A handwritten tool node, as in LangGraph's own tutorial."""
    asked = state["messages"][-1]
    assert isinstance(asked, AIMessage)
    return {
        "messages": [ToolMessage(str(await add(**call["args"])), tool_call_id=call["id"]) for call in asked.tool_calls]
    }


async def test_calls_of_handwritten_tool_node_are_shown(tmp_path: Path) -> None:
    made = Made(lambda model: from_langgraph(loop(model, [add], run_tools)))
    seen, _ = await perform(made, scenario([calls(ADD, ADD), says("It is 5.")]), tmp_path)
    assert seen.lines(in_order=False) == [
        *("call 1 add {'a': 2, 'b': 3}", "call 2 add {'a': 2, 'b': 3}"),
        *("result 1 5", "result 2 5", "say It is 5.", "done stop"),
    ]
    ids = [event.tool_call_id for event in seen.events if isinstance(event, ToolCallStart)]
    assert [message.get("tool_call_id") for message in seen.requests[-1]["messages"][-2:]] == ids


async def test_call_is_shown_before_handwritten_tool_node_runs_it(tmp_path: Path) -> None:
    def make(model: ChatOpenAI) -> Any:
        async def run(state: MessagesState) -> dict[str, list[BaseMessage]]:
            await model.ainvoke("Say something.")
            return await run_tools(state)

        return from_langgraph(loop(model, [add], run))

    seen, _ = await perform(Made(make), scenario([calls(ADD), says("Adding."), says("It is 5.")]), tmp_path)
    assert seen.lines(in_order=True) == [ADDED[0], "say Adding.", ADDED[1], "say \n\nIt is 5.", "done stop"]


async def test_unreadable_call_is_not_run_by_handwritten_tool_node(tmp_path: Path) -> None:
    made = Made(lambda model: from_langgraph(loop(model, [add], run_tools)))
    seen, _ = await perform(made, scenario([calls(ADD, BROKEN), says("It is 5.")]), tmp_path)
    lines = seen.lines(in_order=False)
    assert sorted(lines[:4]) == [
        'call 1 add {"a": 2, "b": oops',
        ADDED[0].replace("1", "2", 1),
        "failed 1 invalid_args",
        "result 2 5",
    ]
    assert lines[4:] == ["say It is 5.", "done stop"]


async def test_endless_graph_is_stopped(tmp_path: Path) -> None:
    def adds_for_ever(body: Body) -> Any:
        return calls(("add", f'{{"a": {len(body["messages"])}, "b": 1}}'), first=len(body["messages"]))

    limited = Made(lambda model: from_langgraph(loop(model, [add], run_tools).with_config(recursion_limit=6)))
    seen, _ = await perform(limited, scenario(adds_for_ever), tmp_path)
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert error.code == "agent_error"
    assert "loops without end" in error.message


@pytest.mark.parametrize("threads", [False, True])
async def test_a_node_may_ask_its_model_in_a_thread(threads: bool, tmp_path: Path) -> None:
    def make(model: ChatOpenAI) -> Any:
        asking = model.bind_tools([add])

        def ask(state: MessagesState) -> dict[str, Any]:
            return {"messages": [asking.invoke(state["messages"])]}

        return from_langgraph(loop(model, [add], ask=ask if threads else None))

    seen, _ = await perform(Made(make), scenario([calls(ADD), says("It is 5.")]), tmp_path)
    assert seen.lines(in_order=True) == [*ADDED, "say It is 5.", "done stop"]


async def test_tools_of_subgraph_are_limited_and_its_text_is_shown(tmp_path: Path) -> None:
    toolbox = Toolbox()

    def make(model: ChatOpenAI) -> Any:
        worker = agent_of(model, toolbox.plain("kaboom"), checkpointer=None)
        graph = StateGraph(MessagesState).add_node("worker", worker).add_edge(START, "worker")
        return from_langgraph(graph.compile(name="agent"))

    turns = [calls(("kaboom", '{"reason": "no fuel"}'), before="Well. "), says("It failed.")]
    seen, _ = await perform(Made(make), scenario(turns), tmp_path)
    assert seen.lines(in_order=True) == [
        *("say Well. ", "call 1 kaboom {'reason': 'no fuel'}", "failed 1 tool_failed", "say It failed.", "done stop"),
    ]
    assert seen.sent()[-1] == "tool Error: ValueError: kaboom: no fuel"


async def test_tools_ask_first_in_every_graph_that_a_node_runs(tmp_path: Path) -> None:
    toolbox = Toolbox()

    def make(model: ChatOpenAI) -> Any:
        worker = agent_of(model, toolbox.plain("wipe"), checkpointer=None)

        async def work(state: MessagesState) -> dict[str, Any]:
            # LangGraph gives the second graph of a node, and one with its own thread, another namespace.
            configs: list[Any] = [{}, {}, {"configurable": {"thread_id": "own"}}]
            for config in configs:
                await worker.ainvoke({"messages": state["messages"]}, config)
            return {"messages": [AIMessage("Done.")]}

        return from_langgraph(
            StateGraph(MessagesState).add_node("work", work).add_edge(START, "work").compile(name="agent")
        )

    turns = [turn for disk in "CDE" for turn in (calls(("wipe", f'{{"disk": "{disk}"}}')), says("Kept."))]
    seen, _ = await perform(Made(make), scenario(turns, reply=False), tmp_path, confirm_tools=("wipe",))
    assert toolbox.wiped == []
    assert [line for line in seen.lines(in_order=True) if line.startswith("failed")] == [
        f"failed {number} denied" for number in (1, 2, 3)
    ]


async def test_exception_in_tool_of_inner_agent_fails_outer_tool(tmp_path: Path) -> None:
    turns = [
        calls(("ask_other", '{"task": "help"}')),
        calls(("kaboom", '{"reason": "no fuel"}'), first=1),
        says("It failed."),
    ]
    seen, _ = await perform(asks_another(Toolbox().plain("kaboom")), scenario(turns), tmp_path)
    assert seen.lines(in_order=False) == [
        *("call 1 ask_other {'task': 'help'}", "call 2 in 1 kaboom {'reason': 'no fuel'}"),
        *("failed 1 tool_failed", "failed 2 tool_failed"),
        *("say It failed.", "done stop"),
    ]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("kind", ["Quit", "QuitAsync"])
async def test_tool_of_any_class_fails_without_ending_process(
    kind: str, raised: type[BaseException], tmp_path: Path
) -> None:
    quits = {"Quit": Quit, "QuitAsync": QuitAsync}[kind](raised=raised)
    seen, _ = await perform(solo(quits), scenario([calls(("quit", "{}")), says("It failed.")]), tmp_path)
    assert seen.lines(in_order=True) == ["call 1 quit {}", "failed 1 tool_failed", "say It failed.", "done stop"]
    assert seen.sent()[-1].startswith(f"tool Error: {raised.__name__}: enough")


@pytest.mark.parametrize("history", ["own", "callboard"])
async def test_model_gets_chat_once_with_either_history(history: Any, tmp_path: Path) -> None:
    saver = InMemorySaver()
    made = Made(lambda model: from_langgraph(agent_of(model, add, checkpointer=saver), history=history))
    turns = scenario([calls(ADD), says("It is 5."), says("It was 5.")], turns=("go", "what was it?"))
    seen, _ = await perform(made, turns, tmp_path)
    assert seen.sent() == [
        *("user go", "assistant calls add {'a': 2, 'b': 3}", "tool 5", "assistant It is 5."),
        "user what was it?",
    ]
    assert bool(saver.storage) == (history == "own")


async def test_thread_stopped_during_call_can_continue(tmp_path: Path) -> None:
    toolbox = Toolbox()
    made = Made(lambda model: from_langgraph(agent_of(model, toolbox.plain("wait"), checkpointer=saver), history="own"))
    saver = InMemorySaver()
    await perform(made, scenario([calls(("wait", "{}"))], stop_at="call"), tmp_path / "a")
    seen, _ = await perform(made, scenario([says("Again.")]), tmp_path / "b")
    assert seen.sent()[1:] == ["assistant calls wait {}", "tool Error: the run ended before this call did.", "user go"]


async def test_graph_nodes_get_answer_as_plain_text(tmp_path: Path) -> None:
    contents: list[object] = []

    def make(model: ChatOpenAI) -> Any:
        async def ask(state: MessagesState) -> dict[str, Any]:
            answer = await model.ainvoke(state["messages"])
            contents.append(answer.content)
            return {"messages": [answer]}

        return from_langgraph(
            StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile(name="agent")
        )

    await perform(Made(make), scenario([says("Hello there.")]), tmp_path)
    assert contents == ["Hello there."]


async def test_reasoning_is_shown(tmp_path: Path) -> None:
    thinking = chunks(text(None, reasoning_content="Hmm. "), text("Yes!"), finish("stop"))
    made = Made(lambda model: from_langgraph(agent_of(model)), Reasoning)
    seen, _ = await perform(made, scenario([thinking]), tmp_path)
    assert seen.lines(in_order=True) == ["think Hmm. ", "say Yes!", "done stop"]


async def test_structured_answer_is_shown_as_text(tmp_path: Path) -> None:
    turns = scenario([calls(("Weather", '{"city": "Rome"}'))])
    seen, _ = await perform(solo(response_format=ToolStrategy(Weather)), turns, tmp_path)
    assert seen.lines(in_order=True)[-2:] == ['say {"city":"Rome"}', "done stop"]


async def test_arguments_are_shown_while_they_are_written(tmp_path: Path) -> None:
    seen, _ = await perform(solo(add), scenario([calls(ADD), says("It is 5.")]), tmp_path)
    deltas = [event for event in seen.events if isinstance(event, ToolCallArgsDelta)]
    assert "".join(event.delta for event in deltas) == ADD[1]


async def test_todos_of_the_graph_are_a_plan_whenever_they_change(tmp_path: Path) -> None:
    def todos(*states: str) -> tuple[str, str]:
        listed = [{"content": name, "status": state} for name, state in zip(("Look", "Write"), states, strict=True)]
        return "write_todos", json.dumps({"todos": listed})

    first, second = todos("in_progress", "pending"), todos("completed", "in_progress")
    made = solo(add, middleware=[TodoListMiddleware()])
    answers = [calls(first), calls(ADD), calls(second), says("It is 5.")]
    seen, _ = await perform(made, scenario(answers), tmp_path)
    plans = [event for event in seen.events if isinstance(event, Plan)]
    assert [plan.summary for plan in plans] == ["Plan: 0 of 2: Look", "Plan: 1 of 2: Write"]
    assert [step["id"] for step in plans[0].steps] == ["1", "2"]


async def test_no_task_is_left_running(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    waiting = scenario([calls(("wait", "{}"), ADD)], stop_at="call")
    await perform(solo(Toolbox().plain("wait"), add), waiting, tmp_path)
    assert asyncio.all_tasks() == before


async def test_background_task_uses_given_model_if_graph_has_none(tmp_path: Path) -> None:
    async def ask(state: MessagesState) -> None:
        pass

    graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile(name="agent")
    titles = scenario([says("A title")], task="title_generation")
    seen, _ = await perform(Made(lambda _: from_langgraph(graph)), titles, tmp_path / "a")
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert "model=" in error.message
    seen, _ = await perform(Made(lambda model: from_langgraph(graph, model=model)), titles, tmp_path / "b")
    assert seen.lines(in_order=True) == ["say A title", "done stop"]


def test_unsuitable_graph_is_refused() -> None:
    class Counter(TypedDict):
        count: int

    async def count(state: Any) -> None:
        pass

    talk = StateGraph(MessagesState).add_node("count", count).add_edge(START, "count")
    with pytest.raises(AgentError, match="checkpointer"):
        from_langgraph(talk.compile(name="agent"), history="own")
    with pytest.raises(AgentError, match="messages"):
        from_langgraph(StateGraph(Counter).add_node("count", count).add_edge(START, "count").compile(name="agent"))
