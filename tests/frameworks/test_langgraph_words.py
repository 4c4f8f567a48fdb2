"""The answer of a graph with several nodes: whose text is shown, and the output of nodes and tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import RunContext
from callboard.errors import AgentError
from callboard_protocol import Source, Status, ToolCallComplete, ToolCallError
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Answer, Body, Chunks, chunks, finish, text
from tests.frameworks.scenario import ADD, calls, says, scenario
from tests.frameworks.stage import Performance, perform

if TESTS_RUN:
    from langchain.agents.middleware import ToolCallLimitMiddleware
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.config import get_stream_writer
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolRuntime
    from langgraph.runtime import Runtime
    from langgraph.types import RetryPolicy, Send

    from callboard.frameworks.langgraph import from_langgraph
    from tests.frameworks.langgraph_agents import Made, add, agent_of, asks_another, asks_another_and_waits, solo

    class State(MessagesState):
        """Messages, and a value outside of them."""

        category: str


Nodes = Mapping[str, Callable[..., Any]]
Says = Callable[["ChatOpenAI"], Nodes]


async def seen_of(
    tmp_path: Path, nodes: Says, script: Any, *, side_by_side: bool = False, **options: Any
) -> Performance:
    """The record of a graph with these nodes, in sequence or in parallel."""

    def make(model: ChatOpenAI) -> Any:
        graph = StateGraph(State)
        before = START
        for name, node in nodes(model).items():
            graph.add_node(name, node)
            graph.add_edge(START if side_by_side else before, name)
            before = name
        return from_langgraph(graph.compile(name="agent"), **options)

    seen, _ = await perform(Made(make), scenario(script), tmp_path)
    return seen


def said(seen: Performance) -> list[str]:
    """The text that was not taken back, and the end."""
    return [line for line in seen.lines(in_order=True) if line.split()[0] in ("say", "done", "rewind", "error")]


def asking(model: ChatOpenAI, prompt: str, **keep: Any) -> Callable[..., Any]:
    """A node that sends the model this question. The answer is a message, or is kept in another field."""

    async def node(state: State) -> dict[str, Any]:
        answer = await model.ainvoke(prompt)
        return {name: keep[name](answer) for name in keep} if keep else {"messages": [answer]}

    return node


def asked(body: Body) -> str:
    return str(body["messages"][-1]["content"])


def by_prompt(body: Body) -> Answer:
    return says({"route": "category=math", "greet": "Hello there.", "part": "Good bye."}[asked(body)])


async def test_texts_of_parallel_nodes_are_sent_one_after_the_other(tmp_path: Path) -> None:
    words = {name: [f"{name} {number}, " for number in range(20)] for name in ("one", "two", "three")}

    def script(body: Body) -> Answer:
        return chunks(*(text(word) for word in words[asked(body)]), finish("stop"))

    seen = await seen_of(
        tmp_path, lambda model: {name: asking(model, name) for name in words}, script, side_by_side=True
    )
    [whole, end] = said(seen)
    assert end == "done stop"
    assert sorted(whole.removeprefix("say ").split("\n\n")) == sorted("".join(spoken) for spoken in words.values())


async def test_texts_of_parallel_runs_of_one_node_are_sent_one_after_the_other(tmp_path: Path) -> None:
    def make(model: ChatOpenAI) -> Any:
        async def write(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        def spread(state: MessagesState) -> list[Send]:
            return [Send("write", {"messages": word}) for word in ("greet", "part")]

        graph = StateGraph(MessagesState).add_node("write", write).add_conditional_edges(START, spread, ["write"])
        return from_langgraph(graph.compile(name="agent"))

    seen, _ = await perform(Made(make), scenario(by_prompt), tmp_path)
    [whole, _] = said(seen)
    assert sorted(whole.removeprefix("say ").split("\n\n")) == ["Good bye.", "Hello there."]


async def test_each_node_starts_a_paragraph(tmp_path: Path) -> None:
    seen = await seen_of(
        tmp_path, lambda model: {"greet": asking(model, "greet"), "part": asking(model, "part")}, by_prompt
    )
    assert said(seen) == ["say Hello there.\n\nGood bye.", "done stop"]


@pytest.mark.parametrize("side_by_side", [False, True])
async def test_text_of_router_is_taken_back(side_by_side: bool, tmp_path: Path) -> None:
    def nodes(model: ChatOpenAI) -> Nodes:
        return {"route": asking(model, "route", category=lambda answer: answer.text), "greet": asking(model, "greet")}

    seen = await seen_of(tmp_path, nodes, by_prompt, side_by_side=side_by_side)
    assert seen.left() == "Hello there."


async def test_answer_outside_of_messages_is_shown(tmp_path: Path) -> None:
    seen = await seen_of(
        tmp_path, lambda model: {"greet": asking(model, "greet", category=lambda answer: answer.text)}, by_prompt
    )
    assert seen.left() == "Hello there."


async def test_only_nodes_named_in_answers_are_shown(tmp_path: Path) -> None:
    seen = await seen_of(
        tmp_path,
        lambda model: {"part": asking(model, "part"), "greet": asking(model, "greet")},
        by_prompt,
        answers=("greet",),
    )
    assert said(seen) == ["say Hello there.", "done stop"]


async def test_last_message_of_state_is_answer_if_named_nodes_are_silent(tmp_path: Path) -> None:
    async def quiet(state: State) -> None:
        pass

    seen = await seen_of(
        tmp_path, lambda model: {"quiet": quiet, "greet": asking(model, "greet")}, by_prompt, answers=("quiet",)
    )
    assert said(seen) == ["say Hello there.", "done stop"]


async def test_nostream_model_is_shown_once_its_message_is_complete(tmp_path: Path) -> None:
    def nodes(model: ChatOpenAI) -> Nodes:
        silent: Any = model.with_config(tags=["nostream"])
        return {
            "route": asking(silent, "route", category=lambda answer: answer.text),
            "greet": asking(silent, "greet"),
        }

    seen = await seen_of(tmp_path, nodes, by_prompt)
    assert said(seen) == ["say Hello there.", "done stop"]


def test_unknown_node_in_answers_is_refused() -> None:
    async def node(state: State) -> None:
        pass

    graph = StateGraph(State).add_node("node", node).add_edge(START, "node").compile(name="agent")
    with pytest.raises(AgentError, match=r"no node 'writer'\. Its nodes are: node"):
        from_langgraph(graph, answers=("writer",))


@pytest.mark.parametrize(
    "returned", [{"role": "assistant", "content": "A dict."}, ("ai", "A dict."), [{"type": "ai", "content": "A dict."}]]
)
async def test_message_in_openai_form_is_shown(returned: Any, tmp_path: Path) -> None:
    async def node(state: State) -> dict[str, Any]:
        return {"messages": returned if isinstance(returned, list) else [returned]}

    seen = await seen_of(tmp_path, lambda _: {"node": node}, [])
    assert said(seen) == ["say A dict.", "done stop"]


async def test_message_of_code_alone_is_shown_once(tmp_path: Path) -> None:
    async def node(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage("```py\nprint()\n```")]}

    seen = await seen_of(tmp_path, lambda _: {"node": node}, [])
    assert said(seen) == ["say ```py\nprint()\n```", "done stop"]


@dataclass(frozen=True)
class Whose:
    """The context of a graph."""

    user_id: str


async def test_nodes_and_tools_get_context_of_run(tmp_path: Path) -> None:
    async def whose(context: RunContext) -> Whose:
        return Whose(context.user.id if context.user else "nobody")

    def make(_: ChatOpenAI) -> Any:
        async def node(state: MessagesState, runtime: Runtime[Whose]) -> dict[str, Any]:
            return {"messages": [AIMessage(f"You are {runtime.context.user_id}.")]}

        graph = StateGraph(MessagesState, context_schema=Whose).add_node("node", node).add_edge(START, "node")
        return from_langgraph(graph.compile(name="agent"), context=whose)

    seen, _ = await perform(Made(make), scenario([]), tmp_path)
    assert said(seen) == ["say You are u1.", "done stop"]


ASKS = calls(("ask_other", '{"task": "help"}'))
HALF = Chunks((text("Half an answer"),), "cut")


@pytest.mark.parametrize("kind", ["retried node", "retried model", "fallback"])
async def test_text_of_failed_request_is_taken_back_on_retry(kind: str, tmp_path: Path) -> None:
    def make(model: ChatOpenAI) -> Any:
        asked: Any = model
        if kind == "retried model":
            asked = model.with_retry(stop_after_attempt=3, wait_exponential_jitter=False)
        if kind == "fallback":
            asked = model.with_fallbacks([model, model])

        async def node(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await asked.ainvoke(state["messages"])]}

        policy = RetryPolicy(initial_interval=0, jitter=False, max_attempts=3, retry_on=Exception)
        graph = StateGraph(MessagesState).add_edge(START, "node")
        graph.add_node("node", node, retry_policy=policy if kind == "retried node" else None)
        return from_langgraph(graph.compile(name="agent"))

    seen, _ = await perform(Made(make), scenario([HALF, HALF, says("A whole answer.")]), tmp_path)
    assert seen.left() == "A whole answer."
    assert len(seen.requests) == 3


async def test_stream_writer_output_of_tools_and_nodes_is_shown(tmp_path: Path) -> None:
    @tool
    async def travel(place: str) -> str:
        """Goes somewhere."""
        get_stream_writer()({"message": f"half way to {place}", "progress": 50})
        # So that the status is sent while the tool runs.
        await asyncio.sleep(0)
        return f"in {place}"

    @tool
    def drive(place: str, runtime: ToolRuntime) -> str:
        """Drives somewhere, in a thread."""
        runtime.stream_writer(f"on the road to {place}")
        return f"in {place}"

    def make(model: ChatOpenAI) -> Any:
        async def pack(state: MessagesState) -> None:
            get_stream_writer()("Packing")

        graph = StateGraph(MessagesState).add_node("pack", pack).add_node("go", agent_of(model, travel, drive))
        return from_langgraph(graph.add_edge(START, "pack").add_edge("pack", "go").compile(name="agent"))

    both = calls(("travel", '{"place": "Rome"}'), ("drive", '{"place": "Pisa"}'))
    seen, _ = await perform(Made(make), scenario([both, says("There.")]), tmp_path)
    lines = seen.lines(in_order=True)
    assert "status 1 processing half way to Rome 50" in lines
    assert "status 2 processing on the road to Pisa" in lines
    assert [event.content for event in seen.events if isinstance(event, Status)] == ["Packing"]


async def test_pictures_files_and_citations_of_a_message_are_shown(tmp_path: Path) -> None:
    cited = {"type": "citation", "url": "https://example.org/owls", "title": "Owls", "cited_text": "They see at night."}
    picture = {"type": "image", "base64": "AAAA", "mime_type": "image/png"}
    paper = {"type": "file", "base64": "AAAA", "mime_type": "application/pdf", "extras": {"filename": "owls.pdf"}}

    async def draw(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage([{"type": "text", "text": "Owls.", "annotations": [cited]}, picture, paper])]}

    seen = await seen_of(tmp_path, lambda _: {"draw": draw}, [])
    [source] = [event for event in seen.events if isinstance(event, Source)]
    assert source.source == {"name": "Owls", "url": "https://example.org/owls"}
    assert source.document == ("They see at night.",)
    shown = [file for event in seen.events if isinstance(event, ToolCallComplete) for file in event.files]
    assert [(file["type"], file.get("name")) for file in shown] == [("image", None), ("file", "owls.pdf")]
    assert shown[0]["url"] == "data:image/png;base64,AAAA"
    assert seen.left() == "Owls."


async def test_text_of_model_inside_tool_is_not_shown(tmp_path: Path) -> None:
    def make(model: ChatOpenAI) -> Any:
        async def ask_other(task: str) -> str:
            """Asks the model."""
            return (await model.ainvoke(task)).text

        return from_langgraph(agent_of(model, tool("ask_other")(ask_other)))

    seen, _ = await perform(Made(make), scenario([ASKS, says("I say 5."), says("It says 5.")]), tmp_path)
    assert seen.lines(in_order=True) == [
        *("call 1 ask_other {'task': 'help'}", "result 1 I say 5."),
        *("say It says 5.", "done stop"),
    ]


async def test_a_call_of_an_agent_in_a_tool_ends_before_its_tool_does(tmp_path: Path) -> None:
    turns = [ASKS, calls(ADD, first=1), says("I say 5."), says("It says 5.")]
    for number in range(10):
        seen, _ = await perform(asks_another(add), scenario(turns), tmp_path / str(number))
        assert seen.lines(in_order=True) == [
            "call 1 ask_other {'task': 'help'}",
            *("call 2 in 1 add {'a': 2, 'b': 3}", "result 2 5", "result 1 I say 5."),
            *("say It says 5.", "done stop"),
        ]


async def test_call_of_inner_agent_has_timeout(tmp_path: Path) -> None:
    async def hang() -> str:
        """Takes for ever."""
        await asyncio.Event().wait()
        return "never"

    script = [ASKS, calls(("hang", "{}"), first=1), says("It hangs."), says("It says so.")]
    seen, _ = await perform(asks_another(tool(hang)), scenario(script), tmp_path, tool_timeout_seconds=0.5)
    assert seen.lines(in_order=True)[2:4] == ["failed 2 timeout", "failed 1 timeout"]


async def test_blocking_run_of_graph_is_refused_by_name(tmp_path: Path) -> None:
    framework = asks_another_and_waits(add, in_a_thread=False)
    seen, _ = await perform(framework, scenario([ASKS, says("It cannot.")]), tmp_path)
    [failure] = [event for event in seen.events if isinstance(event, ToolCallError)]
    assert "The graph 'agent' runs synchronously" in failure.error
    assert "await graph.ainvoke" in failure.error


@pytest.mark.parametrize("before", ["", "Once more. "])
async def test_limit_message_comes_once_after_refused_calls(before: str, tmp_path: Path) -> None:
    made = solo(add, middleware=[ToolCallLimitMiddleware(run_limit=1, exit_behavior="end")])
    seen, _ = await perform(made, scenario([calls(ADD), calls(ADD, first=1, before=before)]), tmp_path)
    said = [f"say {before}"] if before else []
    assert seen.lines(in_order=True)[2:] == [
        *(*said, "call 2 add {'a': 2, 'b': 3}", "failed 2 tool_failed"),
        *("say Tool call limit reached: run limit exceeded (2/1 calls).", "done stop"),
    ]
