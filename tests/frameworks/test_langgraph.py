"""What only LangGraph has: graphs by hand, whose text is shown, subgraphs, interrupts, its own threads."""

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from callboard.agents import AgentLike
from callboard.calls.approval import CHANGED_SINCE_CONSENT
from callboard.errors import AgentError
from callboard_protocol import (
    Error,
    InputRequest,
    Message,
    Parked,
    Plan,
    Source,
    Status,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
)
from tests.fakes.openai_server import Answer, Body, OpenAIServer, chunks, finish, text
from tests.frameworks.langgraph_agents import (
    Made,
    add,
    agent_of,
    approval,
    asks_another,
    chain,
    chat_model,
    loop,
    serve,
    solo,
)
from tests.frameworks.scenario import ADD, ADDED, calls, says, scenario, slowly
from tests.frameworks.stage import Framework, Performance, perform
from tests.frameworks.toolbox import Toolbox
from tests.frameworks.waiting import answer, begin, events_of_run, is_away, kill
from tests.runs.promises import check
from tests.serving import Service, numbered, serving

BROKEN = ("add", '{"a": 2, "b": oops')
ASKS = calls(("ask_other", '{"task": "help"}'))


class Weather(BaseModel):
    """The type of a structured answer."""

    city: str


async def run_tools(state: dict[str, Any]) -> dict[str, Any]:
    """A handwritten tool node, as in LangGraph's own tutorial."""
    from langchain_core.messages import ToolMessage

    asked = state["messages"][-1]
    return {
        "messages": [ToolMessage(str(await add(**call["args"])), tool_call_id=call["id"]) for call in asked.tool_calls]
    }


async def test_calls_of_handwritten_tool_node_are_shown_without_unreadable_ones_run(tmp_path: Path) -> None:
    made = Made(lambda model: serve(loop(model, [add], run_tools)))
    seen, _ = await perform(made, scenario([calls(ADD, BROKEN), says("It is 5.")]), tmp_path)
    lines = seen.lines(in_order=False)
    assert sorted(lines[:4]) == [
        'call 1 add {"a": 2, "b": oops',
        ADDED[0].replace("1", "2", 1),
        "failed 1 invalid_args",
        "result 2 5",
    ]
    assert lines[4:] == ["say It is 5.", "done stop"]
    ids = [event.tool_call_id for event in seen.events if isinstance(event, ToolCallStart)]
    told = {message["tool_call_id"] for message in seen.requests[-1]["messages"] if message["role"] == "tool"}
    assert told
    assert told <= set(ids)


async def test_call_is_shown_before_handwritten_tool_node_runs_it(tmp_path: Path) -> None:
    def make(model: Any) -> AgentLike:
        async def run(state: dict[str, Any]) -> dict[str, Any]:
            await model.ainvoke("Say something.")
            return await run_tools(state)

        return serve(loop(model, [add], run))

    seen, _ = await perform(Made(make), scenario([calls(ADD), says("Adding."), says("It is 5.")]), tmp_path)
    assert seen.lines(in_order=True) == [ADDED[0], "say Adding.", ADDED[1], "say \n\nIt is 5.", "done stop"]


async def test_endless_graph_and_interrupt_without_checkpointer_end_run_with_advice(tmp_path: Path) -> None:
    def adds_for_ever(body: Body) -> Any:
        return calls(("add", f'{{"a": {len(body["messages"])}, "b": 1}}'), first=len(body["messages"]))

    limited = Made(lambda model: serve(loop(model, [add], run_tools).with_config(recursion_limit=6)))
    few_steps = Made(lambda model: serve(agent_of(model, add).with_config(recursion_limit=4)))
    asked = scenario([calls(("name_pet", '{"kind": "cat"}'))], reply="Tom")
    for made, script, told in (
        (limited, scenario(adds_for_ever), "more than its limit of steps"),
        (few_steps, scenario(adds_for_ever), "more than its limit of steps"),
        (solo(name_pet, checkpointer=None), asked, "checkpointer"),
    ):
        seen, _ = await perform(made, script, tmp_path)
        error = seen.events[-1]
        assert isinstance(error, Error)
        assert (error.code, told in error.message) == ("agent_error", True)


@pytest.mark.parametrize("content", ["in Rome", [{"type": "text", "text": "in Rome"}]])
async def test_result_of_a_tool_that_ends_the_graph_is_the_answer(content: Any, tmp_path: Path) -> None:
    from langchain_core.tools import tool

    @tool(return_direct=True)
    def travel() -> Any:
        """Travels."""
        return content

    script = scenario([calls(("travel", "{}"), before="I go."), says("Again.")], turns=("go", "once more"))
    seen, _ = await perform(solo(travel), script, tmp_path)
    first = ["say I go.", "call 1 travel {}", "result 1 in Rome"]
    assert seen.lines(in_order=True)[:5] == [*first, "say in Rome", "done stop"]
    assert seen.sent()[-2:] == ["assistant in Rome", "user once more"]


async def test_a_node_may_ask_its_model_in_a_thread(tmp_path: Path) -> None:
    def make(model: Any) -> AgentLike:
        asking = model.bind_tools([add])

        def ask(state: dict[str, Any]) -> dict[str, Any]:
            return {"messages": [asking.invoke(state["messages"])]}

        return serve(loop(model, [add], ask=ask))

    seen, _ = await perform(Made(make), scenario([calls(ADD), says("It is 5.")]), tmp_path)
    assert seen.lines(in_order=True) == [*ADDED, "say It is 5.", "done stop"]


async def test_tools_of_subgraph_are_limited_and_its_text_is_shown(tmp_path: Path) -> None:
    kaboom = Toolbox().plain("kaboom")
    made = Made(lambda model: serve(chain(("worker", agent_of(model, kaboom, checkpointer=None)))))
    turns = [calls(("kaboom", '{"reason": "no fuel"}'), before="Well. "), says("It failed.")]
    seen, _ = await perform(made, scenario(turns), tmp_path)
    assert seen.lines(in_order=True) == [
        *("say Well. ", "call 1 kaboom {'reason': 'no fuel'}", "failed 1 tool_failed", "say It failed.", "done stop"),
    ]
    assert seen.sent()[-1] == "tool Error: ValueError: kaboom: no fuel"


async def test_tools_ask_first_in_every_graph_that_a_node_runs(tmp_path: Path) -> None:
    toolbox = Toolbox()

    def make(model: Any) -> AgentLike:
        worker = agent_of(model, toolbox.plain("wipe"), checkpointer=None)

        async def work(state: dict[str, Any]) -> dict[str, Any]:
            # LangGraph gives the second graph of a node, and one with its own thread, another namespace.
            configs: list[Any] = [{}, {}, {"configurable": {"thread_id": "own"}}]
            for config in configs:
                await worker.ainvoke({"messages": state["messages"]}, config)
            return {"messages": [("ai", "Done.")]}

        return serve(chain(("work", work)))

    turns = [turn for disk in "CDE" for turn in (calls(("wipe", f'{{"disk": "{disk}"}}')), says("Kept."))]
    seen, _ = await perform(Made(make), scenario(turns, reply=False), tmp_path, confirm_tools=("wipe",))
    assert toolbox.wiped == []
    assert [line for line in seen.lines(in_order=True) if line.startswith("failed")] == [
        f"failed {number} denied" for number in (1, 2, 3)
    ]


async def test_exception_in_tool_of_inner_agent_fails_outer_tool(tmp_path: Path) -> None:
    turns = [ASKS, calls(("kaboom", '{"reason": "no fuel"}'), first=1), says("It failed.")]
    seen, _ = await perform(asks_another(Toolbox().plain("kaboom"), way="awaits"), scenario(turns), tmp_path)
    assert seen.lines(in_order=False) == [
        *("call 1 ask_other {'task': 'help'}", "call 2 in 1 kaboom {'reason': 'no fuel'}"),
        *("failed 1 tool_failed", "failed 2 tool_failed"),
        *("say It failed.", "done stop"),
    ]


async def test_call_of_inner_agent_has_timeout(tmp_path: Path) -> None:
    script = [ASKS, calls(("wait", "{}"), first=1), says("It hangs."), says("It says so.")]
    made = asks_another(Toolbox().plain("wait"), way="awaits")
    seen, _ = await perform(made, scenario(script), tmp_path, tool_timeout_seconds=0.5)
    assert seen.lines(in_order=True)[3:5] == ["failed 2 timeout", "failed 1 timeout"]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_tool_of_any_class_fails_without_ending_process(in_thread: bool, tmp_path: Path) -> None:
    from langchain_core.tools import BaseTool

    class Quit(BaseTool):
        """A tool of its own class, which runs in a thread."""

        name: str = "quit"
        description: str = "Quits."

        def _run(self) -> str:
            raise GeneratorExit("enough")

    class QuitAsync(Quit):
        async def _arun(self) -> str:
            return self._run()

    quits = Quit() if in_thread else QuitAsync()
    seen, _ = await perform(solo(quits), scenario([calls(("quit", "{}")), says("It failed.")]), tmp_path)
    assert seen.lines(in_order=True) == ["call 1 quit {}", "failed 1 tool_failed", "say It failed.", "done stop"]
    assert seen.sent()[-1].startswith("tool Error: GeneratorExit: enough")


async def test_thread_stopped_during_call_can_continue(tmp_path: Path) -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    saver = InMemorySaver()
    wait = Toolbox().plain("wait")
    made = Made(lambda model: serve(agent_of(model, wait, checkpointer=saver), history="own"))
    await perform(made, scenario([calls(("wait", "{}"))], stop_at="call"), tmp_path / "a")
    seen, _ = await perform(made, scenario([says("Again.")]), tmp_path / "b")
    assert seen.sent()[1:] == ["assistant calls wait {}", "tool Error: the run ended before this call did.", "user go"]


async def test_reasoning_of_a_model_that_keeps_it_is_shown(tmp_path: Path) -> None:
    from langchain_openai import ChatOpenAI

    class Reasoning(ChatOpenAI):
        """A model that keeps the reasoning, as LangChain's models of other endpoints do."""

        def _convert_chunk_to_generation_chunk(self, chunk: Any, *rest: Any) -> Any:
            made = super()._convert_chunk_to_generation_chunk(chunk, *rest)
            if made is not None and (thought := chunk["choices"][0]["delta"].get("reasoning_content")):
                made.message.additional_kwargs["reasoning_content"] = thought
                made.message.response_metadata["model_provider"] = "another"
            return made

    thinking = chunks(text(None, reasoning_content="Hmm. "), text("Yes!"), finish("stop"))
    made = Made(lambda model: serve(agent_of(model)), model_at=partial(chat_model, kind=Reasoning))
    seen, _ = await perform(made, scenario([thinking]), tmp_path)
    assert seen.lines(in_order=True) == ["think Hmm. ", "say Yes!", "done stop"]


async def test_structured_answer_is_shown_as_text(tmp_path: Path) -> None:
    from langchain.agents.structured_output import ToolStrategy

    turns = scenario([calls(ADD), calls(("Weather", '{"city": "Rome"}'))])
    seen, _ = await perform(solo(add, response_format=ToolStrategy(Weather)), turns, tmp_path)
    said = [line for line in seen.lines(in_order=True) if line.startswith("say")]
    assert said == ['say {"city":"Rome"}']


async def test_todos_of_the_graph_are_a_plan_whenever_they_change(tmp_path: Path) -> None:
    from langchain.agents.middleware import TodoListMiddleware

    def todos(*states: str) -> tuple[str, str]:
        listed = [{"content": name, "status": state} for name, state in zip(("Look", "Write"), states, strict=True)]
        return "write_todos", json.dumps({"todos": listed})

    first, second = todos("in_progress", "pending"), todos("completed", "in_progress")
    made = solo(add, middleware=[TodoListMiddleware()])
    answers = [calls(first), slowly(calls(ADD)), calls(second), says("It is 5.")]
    seen, _ = await perform(made, scenario(answers), tmp_path)
    plans = [event for event in seen.events if isinstance(event, Plan)]
    assert [plan.summary for plan in plans] == ["Plan: 0 of 2: Look", "Plan: 1 of 2: Write"]
    written = [
        event.delta for event in seen.events if isinstance(event, ToolCallArgsDelta) and event.tool_name == "add"
    ]
    assert "".join(written) == ADD[1]


async def test_background_task_uses_given_model_if_graph_has_none(tmp_path: Path) -> None:
    async def ask(state: dict[str, Any]) -> None:
        pass

    graph = chain(("ask", ask))
    titles = scenario([says("A title")], task="title_generation")
    seen, _ = await perform(Made(lambda _: serve(graph)), titles, tmp_path / "a")
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert "model=" in error.message
    seen, _ = await perform(Made(lambda model: serve(graph, model=model)), titles, tmp_path / "b")
    assert seen.lines(in_order=True) == ["say A title", "done stop"]


def test_unsuitable_graph_or_option_is_refused() -> None:
    class Counter(TypedDict):
        count: int

    async def count(state: Any) -> None:
        pass

    graph = chain(("count", count))
    with pytest.raises(AgentError, match="checkpointer"):
        serve(graph, history="own")
    with pytest.raises(AgentError, match="messages"):
        serve(chain(("count", count), state=Counter))
    with pytest.raises(AgentError, match=r"no node 'writer'\. Its nodes are: count"):
        serve(graph, answers=("writer",))
    with pytest.raises(AgentError, match="to_langchain_tools"):
        serve(graph, openwebui_tools="attached")


async def test_limit_message_comes_once_after_refused_calls(tmp_path: Path) -> None:
    from langchain.agents.middleware import ToolCallLimitMiddleware

    made = solo(add, middleware=[ToolCallLimitMiddleware(run_limit=1, exit_behavior="end")])
    seen, _ = await perform(made, scenario([calls(ADD), calls(ADD, first=1, before="Once more. ")]), tmp_path)
    assert seen.lines(in_order=True)[2:] == [
        *("say Once more. ", "call 2 add {'a': 2, 'b': 3}", "failed 2 tool_failed"),
        *("say Tool call limit reached: run limit exceeded (2/1 calls).", "done stop"),
    ]


# --- Whose text is the answer ----------------------------------------------------------------------------------------


def said(seen: Performance) -> list[str]:
    """The text that was not taken back, and the end."""
    return [line for line in seen.lines(in_order=True) if line.split()[0] in ("say", "done", "rewind", "error")]


def asking(prompt: str, keep: bool = False) -> Callable[[Any], Any]:
    """A node that sends the model this question. Its answer is a message, or is kept in another field."""

    def with_model(model: Any) -> Any:
        async def node(state: dict[str, Any]) -> dict[str, Any]:
            answer = await model.ainvoke(prompt)
            return {"category": answer.text} if keep else {"messages": [answer]}

        return node

    return with_model


def silent(prompt: str, keep: bool = False) -> Callable[[Any], Any]:
    """The same, with a model whose text LangGraph does not stream."""
    return lambda model: asking(prompt, keep)(model.with_config(tags=["nostream"]))


def returning(*messages: Any) -> Callable[[Any], Any]:
    """A node that returns these messages."""

    def with_model(model: Any) -> Any:
        async def node(state: dict[str, Any]) -> dict[str, Any]:
            return {"messages": [*messages]} if messages else {}

        return node

    return with_model


def asked(body: Body) -> str:
    return str(body["messages"][-1]["content"])


def by_prompt(body: Body) -> Answer:
    return says({"route": "category=math", "greet": "Hello there.", "part": "Good bye."}[asked(body)])


async def seen_of(
    tmp_path: Path, script: Any = by_prompt, *, side_by_side: bool = False, answers: Any = (), **nodes: Any
) -> Performance:
    """The record of a graph with these nodes, in sequence or in parallel."""

    def make(model: Any) -> AgentLike:
        from langgraph.graph import MessagesState

        class State(MessagesState):
            category: str

        made = [(name, node(model)) for name, node in nodes.items()]
        return serve(chain(*made, state=State, side_by_side=side_by_side), answers=answers)

    seen, _ = await perform(Made(make), scenario(script), tmp_path)
    return seen


CODE = "```py\nprint()\n```"


@pytest.mark.parametrize(
    ("nodes", "answers", "left"),
    [
        ({"greet": asking("greet"), "part": asking("part")}, (), "Hello there.\n\nGood bye."),
        ({"part": asking("part"), "greet": asking("greet")}, ("greet",), "Hello there."),
        ({"quiet": returning(), "greet": asking("greet")}, ("quiet",), "Hello there."),
        ({"route": silent("route", keep=True), "greet": silent("greet")}, (), "Hello there."),
        ({"node": returning(("ai", "A tuple."))}, (), "A tuple."),
        ({"node": returning({"type": "ai", "content": CODE})}, (), CODE),
    ],
    ids=[
        "each node starts a paragraph",
        "only the named node",
        "the last message if the named node is silent",
        "complete messages of nostream models",
        *("a tuple", "code alone, once"),
    ],
)
async def test_answer_of_graph_is_shown(
    nodes: dict[str, Any], answers: Sequence[str], left: str, tmp_path: Path
) -> None:
    seen = await seen_of(tmp_path, answers=answers, **nodes)
    assert said(seen) == [f"say {left}", "done stop"]


@pytest.mark.parametrize("side_by_side", [False, True])
async def test_text_of_router_is_taken_back_and_answer_outside_of_messages_is_shown(
    side_by_side: bool, tmp_path: Path
) -> None:
    nodes = {"route": asking("route", keep=True), "greet": asking("greet")}
    seen = await seen_of(tmp_path, side_by_side=side_by_side, **nodes)
    assert seen.left() == "Hello there."
    alone = await seen_of(tmp_path, greet=asking("greet", keep=True))
    assert alone.left() == "Hello there."


async def test_texts_of_parallel_runs_of_one_node_are_sent_one_after_the_other(tmp_path: Path) -> None:
    def make(model: Any) -> AgentLike:
        from langgraph.graph import START, MessagesState, StateGraph
        from langgraph.types import Send

        async def write(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await model.ainvoke(state["messages"])]}

        def spread(state: MessagesState) -> list[Send]:
            return [Send("write", {"messages": word}) for word in ("greet", "part")]

        graph = StateGraph(MessagesState).add_node("write", write).add_conditional_edges(START, spread, ["write"])
        return serve(graph.compile(name="agent"))

    seen, _ = await perform(Made(make), scenario(by_prompt), tmp_path)
    [whole, _] = said(seen)
    assert sorted(whole.removeprefix("say ").split("\n\n")) == ["Good bye.", "Hello there."]


async def test_stream_writer_output_of_tools_and_nodes_is_shown(tmp_path: Path) -> None:
    from langchain_core.tools import tool
    from langgraph.config import get_stream_writer
    from langgraph.prebuilt import ToolRuntime

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

    async def pack(state: dict[str, Any]) -> None:
        get_stream_writer()("Packing")

    both = calls(("travel", '{"place": "Rome"}'), ("drive", '{"place": "Pisa"}'))
    made = Made(lambda model: serve(chain(("pack", pack), ("go", agent_of(model, travel, drive)))))
    seen, _ = await perform(made, scenario([both, says("There.")]), tmp_path)
    lines = seen.lines(in_order=True)
    assert "status 1 processing half way to Rome 50" in lines
    assert "status 2 processing on the road to Pisa" in lines
    assert [event.content for event in seen.events if isinstance(event, Status)] == ["Packing"]


async def test_pictures_files_and_citations_of_a_message_are_shown(tmp_path: Path) -> None:
    cited = {"type": "citation", "url": "https://example.org/owls", "title": "Owls", "cited_text": "They see at night."}
    picture = {"type": "image", "base64": "AAAA", "mime_type": "image/png"}
    paper = {"type": "file", "base64": "AAAA", "mime_type": "application/pdf", "extras": {"filename": "owls.pdf"}}
    content = [{"type": "text", "text": "Owls.", "annotations": [cited]}, picture, paper]
    seen = await seen_of(tmp_path, draw=returning({"type": "ai", "content": content}))
    [source] = [event for event in seen.events if isinstance(event, Source)]
    assert source.source == {"name": "Owls", "url": "https://example.org/owls"}
    assert source.document == ("They see at night.",)
    shown = [file for event in seen.events if isinstance(event, ToolCallComplete) for file in event.files]
    assert [(file["type"], file.get("name")) for file in shown] == [("image", None), ("file", "owls.pdf")]
    assert shown[0]["url"] == "data:image/png;base64,AAAA"
    assert seen.left() == "Owls."


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgoA"}},
        {"type": "image", "data": "iVBORw0KGgoA", "mimeType": "image/png"},
        {"type": "image", "base64": "iVBORw0KGgoA"},
        {"type": "image_url", "image_url": "data:image/png;base64,iVBORw0KGgoA"},
    ],
)
def test_picture_in_the_result_of_a_tool_is_a_file_in_any_form(block: dict[str, Any]) -> None:
    from langchain_core.messages import ToolMessage

    from callboard.frameworks.langgraph.messages import to_files

    shown = to_files(ToolMessage([block], tool_call_id="c"))
    assert shown == [{"type": "image", "url": "data:image/png;base64,iVBORw0KGgoA"}]


# --- Interrupts: questions and approvals -----------------------------------------------------------------------------

ASKED = "ask 1 The agent asks"


def interrupt(value: Any, **options: Any) -> Any:
    from langgraph.types import interrupt as ask

    return ask(value, **options)


async def name_pet(kind: str) -> str:
    """Names a pet."""
    name = interrupt(f"What shall the {kind} be called?")
    return f"{name} the {kind}"


async def plan_trip() -> str:
    """Plans a trip: asks where to, when, and whether to book."""
    place = interrupt({"question": "Where to?"})
    day = interrupt("When?")
    return f"{place} on {day}, booked" if interrupt("Book it?") else f"{place} on {day}"


def loop_with_checkpoints(*tools: Any) -> Framework:
    from langgraph.checkpoint.memory import InMemorySaver

    return Made(lambda model: serve(loop(model, tools, checkpointer=InMemorySaver())))


async def test_interrupts_of_tool_ask_user_even_more_often_than_call_limit(tmp_path: Path) -> None:
    asked = scenario([calls(("plan_trip", "{}")), says("Fine.")], reply="Rome")
    seen, _ = await perform(solo(plan_trip), asked, tmp_path)
    assert seen.lines(in_order=True) == [
        *("call 1 plan_trip {}", ASKED, ASKED, ASKED, "result 1 Rome on Rome, booked", "say Fine.", "done stop"),
    ]
    questions = [(event.kind, event.message) for event in seen.events if isinstance(event, InputRequest)]
    assert questions == [("input", "Where to?"), ("input", "When?"), ("input", "Book it?")]


COLOURS = {"question": "Which colour?", "options": ["red", "blue"]}
SIZES = {"question": "Which size?", "options": [{"label": "Large", "value": {"cm": 30}}, {"label": "Small"}]}
TRIP = {"type": "object", "properties": {"town": {"type": "string"}, "days": {"type": "integer"}}, "required": ["town"]}


@pytest.mark.parametrize(
    ("asked", "reply", "read"),
    [
        ("Well?", "No", False),
        ("Well?", "7", "7"),
        (COLOURS, "2", "blue"),
        (COLOURS, "green", "green"),
        ({"question": "How many?", "options": [5, 10]}, "10", 10),
        ({"question": "Sure?", "options": ["yes", "no"]}, "No", "no"),
        (SIZES, "large", {"cm": 30}),
        ({**COLOURS, "draft": "a red house"}, "1", "red"),
    ],
)
async def test_interrupt_is_asked_with_its_choices_and_answer_is_converted_for_graph(
    asked: Any, reply: str, read: object, tmp_path: Path
) -> None:
    answers: list[object] = []

    async def ask() -> None:
        """Asks."""
        answers.append(interrupt(asked))

    seen, _ = await perform(solo(ask), scenario([calls(("ask", "{}")), says("Fine.")], reply=reply), tmp_path)
    assert answers == [read]
    [question] = [event for event in seen.events if isinstance(event, InputRequest)]
    if asked == "Well?":
        assert question.message == "Well?"
        return
    assert question.message.startswith(next(iter(asked.values())))
    assert asked.get("draft", "") in question.message
    assert ("{" in question.message) == ("draft" in asked)
    options = asked["options"]
    assert question.choices == tuple(one["label"] if isinstance(one, dict) else str(one) for one in options)


@pytest.mark.parametrize(
    ("reply", "read"), [({"town": "Rome", "days": "2"}, {"town": "Rome", "days": 2}), (False, None)]
)
async def test_response_schema_of_an_interrupt_is_a_form(reply: Any, read: object, tmp_path: Path) -> None:
    answers: list[object] = []

    async def ask() -> None:
        """Asks."""
        answers.append(interrupt("Where to?", response_schema=TRIP))

    seen, _ = await perform(solo(ask), scenario([calls(("ask", "{}")), says("Fine.")], reply=reply), tmp_path)
    [question] = [event for event in seen.events if isinstance(event, InputRequest)]
    assert (question.kind, question.message, question.form) == ("form", "Where to?", TRIP)
    assert answers == ([] if read is None else [read])


@pytest.mark.parametrize("confirm_tools", [(), ("wipe",)])
async def test_call_beside_interrupt_runs_once(confirm_tools: Sequence[str], tmp_path: Path) -> None:
    toolbox = Toolbox()
    wanted = calls(("wipe", '{"disk": "C"}'), ("name_pet", '{"kind": "cat"}'))
    asked = scenario([wanted, says("Fine.")], reply=True)
    made = loop_with_checkpoints(toolbox.plain("wipe"), name_pet)
    seen, _ = await perform(made, asked, tmp_path, confirm_tools=confirm_tools)
    assert toolbox.wiped == ["C"]
    lines = seen.lines(in_order=True)
    assert [line for line in lines if line.endswith("Run wipe?")] == ["ask 1 Run wipe?"] * len(confirm_tools)
    assert {"result 1 C is empty", "result 2 True the cat"} < set(lines)
    assert lines[-2:] == ["say Fine.", "done stop"]


async def test_calls_of_one_node_get_their_own_answers(tmp_path: Path) -> None:
    async def pick(kind: str) -> str:
        """Picks."""
        return str(interrupt({"question": f"Which {kind}?", "options": [f"first {kind}"]}))

    wanted = calls(("pick", '{"kind": "cat"}'), ("pick", '{"kind": "dog"}'))
    seen, _ = await perform(loop_with_checkpoints(pick), scenario([wanted, says("Fine.")], reply="1"), tmp_path)
    assert {"result 1 first cat", "result 2 first dog"} < set(seen.lines(in_order=True))


async def test_unanswered_question_ends_turn_and_stops_the_calls_beside_it(tmp_path: Path) -> None:
    toolbox = Toolbox()
    both = calls(("name_pet", '{"kind": "cat"}'), ("wait", "{}"))
    made = loop_with_checkpoints(toolbox.plain("wait"), name_pet)
    seen, _ = await perform(made, scenario([both, says("Never said.")]), tmp_path)
    lines = seen.lines(in_order=True)
    assert {ASKED, "failed 1 not_answered"} < set(lines)
    assert [line.partition(".")[0] for line in lines if line.startswith("say")] == [
        "say I cannot go on without your answer"
    ]
    assert lines[-1] == "done stop"
    assert toolbox.stopped.is_set()


@pytest.mark.parametrize(
    ("reply", "end"), [(True, ["status 1 processing approved", "result 1 5"]), (None, ["failed 1 not_answered"])]
)
async def test_calls_can_be_approved_one_by_one(reply: bool | None, end: Sequence[str], tmp_path: Path) -> None:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import ToolMessage

    class Gate(AgentMiddleware[Any, Any]):
        """Asks about each call when it starts, like LangChain's own middleware in its mode `per_call`."""

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            call = request.tool_call
            decision = interrupt(
                {"type": "tool_approval", "tool_call_id": call["id"], "name": call["name"], "args": call["args"]}
            )
            if decision["type"] == "approve":
                return await handler(request)
            return ToolMessage("rejected: " + decision["message"], tool_call_id=call["id"], status="error")

    asked = scenario([calls(ADD), says("Fine.")], reply=reply)
    seen, _ = await perform(solo(add, middleware=[Gate()]), asked, tmp_path)
    question = ["status 1 pending waiting for approval", "ask 1 Run add?"]
    assert seen.lines(in_order=True) == [ADDED[0], *question, *end, "say Fine.", "done stop"]


async def test_the_calls_of_an_answer_are_approved_at_once_and_the_others_run(tmp_path: Path) -> None:
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    toolbox = Toolbox()
    rules: dict[str, Any] = {"wipe": {"allowed_decisions": ["approve", "reject"]}}
    made = solo(toolbox.plain("wipe"), add, middleware=[HumanInTheLoopMiddleware(rules)])
    wanted = calls(("wipe", '{"disk": "C"}'), ADD, ("wipe", '{"disk": "D"}'), ("wipe", '{"disk": "E'))
    seen, _ = await perform(made, scenario([wanted, says("Gone.")], reply=True), tmp_path)
    assert toolbox.wiped == ["C", "D"]
    lines = seen.lines(in_order=True)
    assert [line.partition("Run ")[2] for line in lines if line.startswith("ask")] == ["wipe?", "wipe?"]
    assert sum(line.endswith("invalid_args") for line in lines) == 1
    assert lines[-2:] == ["say Gone.", "done stop"]


async def test_user_answer_can_replace_tool_result(tmp_path: Path) -> None:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import ToolMessage

    class Clerk(AgentMiddleware[Any, Any]):
        """Lets the user answer instead of a tool, like LangChain's own middleware if only `respond` is allowed."""

        async def aafter_model(self, state: Any, runtime: Any) -> Any:
            calls_made = state["messages"][-1].tool_calls
            if not calls_made:
                return None
            [action] = calls_made
            request = {"name": action["name"], "args": action["args"]}
            rule = {"action_name": action["name"], "allowed_decisions": ["respond"]}
            answer = interrupt({"action_requests": [request], "review_configs": [rule]})
            [decision] = answer["decisions"]
            return {"messages": [ToolMessage(decision["message"], tool_call_id=action["id"])]}

    asked = scenario([calls(ADD), says("Fine.")], reply="five")
    seen, _ = await perform(solo(add, middleware=[Clerk()]), asked, tmp_path)
    assert seen.lines(in_order=True)[:3] == [ADDED[0], ASKED, "result 1 five"]
    assert seen.sent()[-1] == "tool five"


def hand_made(*tools: Any, way: str) -> Framework:
    """A graph whose node asks its model in this way."""

    def make(model: Any) -> AgentLike:
        asking = model.bind_tools([*tools])

        def in_a_thread(state: dict[str, Any]) -> dict[str, Any]:
            return {"messages": [asking.invoke(state["messages"])]}

        async def streams(state: dict[str, Any]) -> dict[str, Any]:
            pieces = [piece async for piece in asking.astream(state["messages"])]
            return {"messages": [sum(pieces[1:], pieces[0])]}

        def streams_in_a_thread(state: dict[str, Any]) -> dict[str, Any]:
            pieces = list(asking.stream(state["messages"]))
            return {"messages": [sum(pieces[1:], pieces[0])]}

        ways = {one.__name__: one for one in (in_a_thread, streams, streams_in_a_thread)}
        return serve(loop(model, tools, ask=ways[way]))

    return Made(make)


def one_by_one(*tools: Any) -> Framework:
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    rules: dict[str, Any] = {"wipe": {"allowed_decisions": ["approve", "reject"]}}
    return solo(*tools, middleware=[HumanInTheLoopMiddleware(rules, interrupt_mode="per_call")])


WAYS: dict[str, Callable[..., Framework]] = {
    "together": lambda *tools: solo(*tools, middleware=[approval()]),
    "one by one": one_by_one,
    "in a subgraph": lambda *tools: Made(
        lambda model: serve(chain(("worker", agent_of(model, *tools, checkpointer=None))))
    ),
    **{way: partial(hand_made, way=way) for way in ("in_a_thread", "streams", "streams_in_a_thread")},
}


@pytest.mark.parametrize(("way", "ends"), [*((way, "parked") for way in WAYS), ("together", "killed")])
async def test_calls_of_every_graph_wait_and_run_once(way: str, ends: str, tmp_path: Path) -> None:
    toolbox = Toolbox()
    wanted = calls(("travel", '{"place": "Rome"}'), ("wipe", '{"disk": "C"}'), before="Well. ")
    settings = {} if way in ("together", "one by one") else {"confirm_tools": ("wipe",)}
    first, second = tmp_path / "first", tmp_path / ("first" if ends == "parked" else "second")
    async with (
        OpenAIServer([wanted, says("Done.")]) as server,
        WAYS[way](toolbox.plain("travel"), toolbox.plain("wipe")).agent(server.base_url, [], toolbox) as agent,
    ):
        async with serving(first, agent, **settings) as service:
            before = await begin(service, is_away if ends == "parked" else partial(kill, first, second))
        async with serving(second, agent, **settings) as service:
            await answer(service, "approve:call_1", True)
            seen = await events_of_run(service)
    check(list(enumerate(seen, 1)))
    assert (ends == "killed") or isinstance(before[-1], Parked)
    assert toolbox.wiped == ["C"]
    starts = [event.tool_name for event in seen if isinstance(event, ToolCallStart)]
    assert starts == ["travel", "wipe"]
    steps = [event.data.message for event in seen if isinstance(event, ToolStatus)]
    assert steps.count("half way to Rome") == 1
    assert "".join(event.content for event in seen if isinstance(event, Message)) == "Well. Done."
    [_, last] = server.requests
    assert [one["content"] for one in last["messages"][-2:]] == ["in Rome", "C is empty"]


async def wait_and_allow(made: Framework, folder: Path, script: Sequence[Answer], name: str = "") -> Sequence[Any]:
    """The events of a run whose questions are answered with a name, while its approvals wait for the next server."""

    async def answer_name(service: Service, question: InputRequest) -> bool:
        if question.kind == "confirmation":
            return await is_away(service, question)
        await answer(service, question.request_id, name)
        return False

    async with OpenAIServer(script) as server, made.agent(server.base_url, [], Toolbox()) as agent:
        for number in range(2):
            async with serving(folder, agent, confirm_tools=("travel",)) as service:
                if number == 0:
                    seen = await begin(service, answer_name)
                    assert isinstance(seen[-1], Parked)
                    [waiting] = seen[-1].tool_call_ids
                else:
                    await answer(service, f"approve:{waiting}", True)
                    seen = await events_of_run(service)
    return seen


async def test_arguments_that_are_others_than_those_of_the_question_ask_again(tmp_path: Path) -> None:
    from langchain.agents.middleware import AgentMiddleware

    class AddsAgain(AgentMiddleware):
        """Changes the arguments in every answer, also in one that it has changed before."""

        def after_model(self, state: Any, runtime: Any) -> Any:
            message = state["messages"][-1]
            for call in message.tool_calls:
                call["args"]["disk"] += "C"
            return {"messages": [message]}

    toolbox = Toolbox()
    made = solo(toolbox.plain("wipe"), middleware=[approval(), AddsAgain()])
    shown: list[Any] = []
    async with (
        OpenAIServer([calls(("wipe", '{"disk": "C"}')), says("Done.")]) as server,
        made.agent(server.base_url, [], toolbox) as agent,
        serving(tmp_path, agent) as service,
    ):
        await begin(service, is_away)
        await answer(service, "approve:call_0", True)
        async with service.client.stream("GET", "/v1/runs/r/events?user_id=ann") as response:
            async for _, event in numbered(response):
                if isinstance(event, InputRequest):
                    shown.append(event.message)
                    if len(shown) == 2:
                        await answer(service, event.request_id, False)
    assert shown == ["disk: CC", f"{CHANGED_SINCE_CONSENT}\n\ndisk: CCC"]
    assert toolbox.wiped == []


async def test_call_that_ran_after_the_decisions_beside_it_runs_at_no_other_server(tmp_path: Path) -> None:
    runs: list[str] = []

    async def pay(to: str) -> str:
        """Pays."""
        runs.append(to)
        if len(runs) == 1:
            await kill(tmp_path / "first", tmp_path / "second")
        return "paid"

    async def agree(service: Service, question: InputRequest) -> bool:
        await answer(service, question.request_id, True)
        return False

    wanted = calls(("pay", '{"to": "Ann"}'), ("wipe", '{"disk": "C"}'))
    made = solo(pay, Toolbox().plain("wipe"), middleware=[approval()])
    async with (
        OpenAIServer([wanted, says("Done."), says("Done.")]) as server,
        made.agent(server.base_url, [], Toolbox()) as agent,
    ):
        async with serving(tmp_path / "first", agent) as service:
            await begin(service, agree)
        async with serving(tmp_path / "second", agent) as service:
            seen = await events_of_run(service)
    assert runs == ["Ann"]
    assert "call_0" in {event.tool_call_id for event in seen if isinstance(event, ToolCallError)}


async def test_result_of_a_call_that_waited_can_be_the_answer(tmp_path: Path) -> None:
    from langchain_core.tools import tool

    made = solo(tool(Toolbox().plain("travel"), return_direct=True))
    seen = await wait_and_allow(made, tmp_path, [calls(("travel", '{"place": "Rome"}'), before="Well. ")])
    assert [event.content for event in seen if isinstance(event, Message)][-1] == "in Rome"


@pytest.mark.parametrize("mode", ["batched", "per_call"])
async def test_question_of_a_tool_is_answered_while_a_call_beside_it_waits(mode: Any, tmp_path: Path) -> None:
    from langchain.agents.middleware import HumanInTheLoopMiddleware

    rules: dict[str, Any] = {"wipe": {"allowed_decisions": ["approve"]}, "add": {"allowed_decisions": ["respond"]}}
    toolbox = Toolbox()
    gate = HumanInTheLoopMiddleware(rules, interrupt_mode=mode)
    wanted = calls(("wipe", '{"disk": "C"}'), *([ADD] if mode == "batched" else [("name_pet", '{"kind": "cat"}')]))
    made = solo(toolbox.plain("wipe"), add, name_pet, middleware=[gate])
    seen = await wait_and_allow(made, tmp_path, [wanted, says("Done.")], "Tom")
    assert toolbox.wiped == ["C"]
    ends = {event.tool_call_id: event.result for event in seen if isinstance(event, ToolCallComplete)}
    assert ends == {"call_0": "C is empty", "call_1": "Tom" if mode == "batched" else "Tom the cat"}
    assert sum(isinstance(event, InputRequest) for event in seen) == 2


async def test_call_that_would_ask_after_a_waiting_call_ends_with_the_run(tmp_path: Path) -> None:
    wanted = calls(("travel", '{"place": "Rome"}'), ("name_pet", '{"kind": "cat"}'))
    made = solo(Toolbox().plain("travel"), name_pet)
    seen = await wait_and_allow(made, tmp_path, [wanted, says("Done.")])
    check(list(enumerate(seen, 1)))
    assert [event.result for event in seen if isinstance(event, ToolCallComplete)] == ["in Rome"]
    assert [event.code for event in seen if isinstance(event, ToolCallError)] == ["interrupted"]


async def test_graph_that_asks_no_model_of_langchain_cannot_go_on_with_its_calls(tmp_path: Path) -> None:
    from langchain_core.messages import AIMessage

    travel = Toolbox().plain("travel")

    answers = [
        AIMessage("", tool_calls=[{"name": "travel", "args": {"place": "Rome"}, "id": "c1"}]),
        AIMessage("Done."),
    ]

    async def ask(_: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [answers.pop(0)]}

    made = Made(lambda model: serve(loop(model, [travel], ask=ask)))
    seen = await wait_and_allow(made, tmp_path, [])
    check(list(enumerate(seen, 1)))
    assert [event.code for event in seen if isinstance(event, ToolCallError)] == ["interrupted"]
    assert isinstance(seen[-1], Error)
    assert "on_owner_loss" in seen[-1].message
