"""What only the OpenAI Agents SDK has: policies of tools, handoffs, the Responses API, tools at OpenAI, MCP servers."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel

from callboard import register, report_status
from callboard.agents import AgentLike, RunContext
from callboard.errors import AgentError
from callboard.models import ChatDict, ScriptedModel, TokenUsage
from callboard.observers import ModelAnswered, ModelAsked
from callboard_protocol import (
    Done,
    Error,
    Event,
    Message,
    Parked,
    Source,
    Status,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolRequest,
    ToolStatus,
    Usage,
)
from tests.fakes.openai_server import Answer, Body, OpenAIServer, chunks
from tests.frameworks import stage
from tests.frameworks.openai_agents_responses import addition, answer, play, speech
from tests.frameworks.openai_agents_stage import Made, add, offered, serve, solo, tool_of
from tests.frameworks.scenario import ADD, ADDED, calls, says, scenario, slowly
from tests.frameworks.stage import Framework, openai_client, perform
from tests.frameworks.toolbox import PICTURE_URL, Toolbox
from tests.frameworks.waiting import answer as reply
from tests.frameworks.waiting import begin, events_of_run, is_away
from tests.serving import Service, request, serving

# --- Function tools --------------------------------------------------------------------------------------------------

KABOOM = ("kaboom", '{"reason": "no fuel"}')
FAILING = {
    "none": "Error: ValueError: kaboom: no fuel",
    "its own": "Sorry: ValueError",
    "made by hand": 'Error: ValueError: no {"reason": "no fuel"}',
}


def failing(kind: str) -> Any:
    from agents import FunctionTool

    async def raise_at_once(_: Any, arguments: str) -> str:
        raise ValueError(f"no {arguments}")

    def explain(_: Any, error: Exception) -> str:
        return f"Sorry: {type(error).__name__}"

    if kind == "made by hand":
        return FunctionTool("kaboom", "Fails.", {}, raise_at_once, strict_json_schema=False)
    own: dict[str, Any] = {"none": {"failure_error_function": None}, "its own": {"failure_error_function": explain}}
    return tool_of(Toolbox().plain("kaboom"), **own.get(kind, {}))


@pytest.mark.parametrize("kind", FAILING)
async def test_failing_tool_does_not_end_run_and_error_function_writes_message(kind: str, tmp_path: Path) -> None:
    seen, _ = await perform(solo(failing(kind)), scenario([calls(KABOOM), says("It failed.")]), tmp_path)
    assert seen.lines(in_order=True)[1:] == ["failed 1 tool_failed", "say It failed.", "done stop"]
    assert seen.sent()[-1] == f"tool {FAILING[kind]}"
    [error] = [event.error for event in seen.events if isinstance(event, ToolCallError)]
    assert error == FAILING[kind].removeprefix("Error: ")


async def test_timeout_of_tool_itself_applies(tmp_path: Path) -> None:
    toolbox = Toolbox()
    made = solo(tool_of(toolbox.plain("wait"), timeout=0.05))
    seen, _ = await perform(made, scenario([calls(("wait", "{}")), says("Too long.")]), tmp_path)
    assert seen.lines(in_order=True)[2:] == ["failed 1 timeout", "say Too long.", "done stop"]
    assert seen.sent()[-1] == "tool Error: wait did not end within 0.05 s and was stopped."
    assert toolbox.stopped.is_set()


async def test_stopped_tool_has_ended_when_run_ends() -> None:
    ended = asyncio.Event()

    async def tidy() -> None:
        """Tidies up after itself."""
        report_status("processing", "tidying")
        try:
            await asyncio.Event().wait()
        finally:
            # Takes many iterations of the event loop, as closing a connection does.
            for _ in range(20):
                await asyncio.sleep(0)
            ended.set()

    context = RunContext("run_1", [{"role": "user", "content": "go"}], str, ScriptedModel())
    async with OpenAIServer([calls(("tidy", "{}"))]) as server:
        async with solo(tool_of(tidy)).agent(server.base_url, (), Toolbox()) as agent:
            events = agent.run(context)
            assert isinstance(events, AsyncGenerator)
            while not isinstance(await anext(events), ToolStatus):
                pass
            await events.aclose()
        assert ended.is_set()


class Weather(BaseModel):
    """The type of a structured answer."""

    city: str


async def test_structured_answer_or_tool_result_as_answer_is_shown_once(tmp_path: Path) -> None:
    seen, _ = await perform(solo(output_type=Weather), scenario([says('{"city": "Rome"}')]), tmp_path)
    assert seen.lines(in_order=True) == ['say {"city": "Rome"}', "done stop"]
    seen, _ = await perform(solo(add(), tool_use_behavior="stop_on_first_tool"), scenario([calls(ADD)]), tmp_path)
    assert seen.lines(in_order=True) == [*ADDED, "say 5", "done stop"]


async def test_file_in_tool_result_is_shown(tmp_path: Path) -> None:
    from agents import ToolOutputFileContent

    async def report() -> ToolOutputFileContent:
        """Reports."""
        return ToolOutputFileContent(file_data="eA==", filename="report.pdf")

    seen, _ = await perform(solo(tool_of(report)), scenario([calls(("report", "{}")), says("Here.")]), tmp_path)
    [ended] = [event for event in seen.events if isinstance(event, ToolCallComplete)]
    assert [(file["type"], file["name"]) for file in ended.files] == [("file", "report.pdf")]


async def test_guardrails_of_tool_refuse_its_call_or_replace_its_result(tmp_path: Path) -> None:
    from agents import ToolGuardrailFunctionOutput, tool_input_guardrail, tool_output_guardrail

    @tool_input_guardrail
    def forbid(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("not today")

    @tool_output_guardrail
    def hide(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("a secret")

    toolbox = Toolbox()
    guarded = solo(
        tool_of(toolbox.plain("wipe"), tool_input_guardrails=[forbid]),
        tool_of(toolbox.plain("add"), tool_output_guardrails=[hide]),
    )
    seen, _ = await perform(guarded, scenario([calls(("wipe", '{"disk": "C"}'), ADD), says("No.")]), tmp_path)
    assert {"failed 1 tool_failed", "result 2 a secret"} < set(seen.lines(in_order=True))
    assert [event.error for event in seen.events if isinstance(event, ToolCallError)] == ["not today"]
    assert toolbox.wiped == []


async def test_required_tool_choice_is_dropped_where_it_would_never_end(tmp_path: Path) -> None:
    from agents import ModelSettings

    must = solo(add(), model_settings=ModelSettings(tool_choice="required"), reset_tool_choice=False)
    rounds = [calls(("add", f'{{"a": {n}, "b": 1}}'), first=n) for n in range(4)]
    task = scenario([says("Enough.")], task="title_generation")
    for script, end in ((scenario([*rounds, says("Enough.")]), "done max_turns"), (task, "done stop")):
        seen, _ = await perform(must, script, tmp_path)
        assert seen.lines(in_order=True)[-2:] == ["say Enough.", end]
        assert not offered(seen.requests[-1])
        assert "tool_choice" not in seen.requests[-1]


async def test_required_tool_is_not_required_again_in_continued_run() -> None:
    from agents import ModelSettings

    forced = solo(add(), model_settings=ModelSettings(tool_choice="add"))
    go: ChatDict = {"role": "user", "content": "go"}
    function = {"name": "add", "arguments": ADD[1]}
    made = {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    added: list[ChatDict] = [made, {"role": "tool", "tool_call_id": "call_1", "content": "5"}]
    chosen: list[Any] = []
    for messages in ([go], [go, *added], [go, *added, {"role": "assistant", "content": "5"}, go]):
        async with (
            OpenAIServer([says("Well.")]) as server,
            forced.agent(server.base_url, (), Toolbox()) as agent,
        ):
            async for _ in agent.run(RunContext("run", messages, str, ScriptedModel(), chat_id="chat")):
                pass
        chosen += [body.get("tool_choice") for body in server.requests]
    first, again, next_turn = chosen
    assert first
    assert (again, next_turn) == (None, first)


# --- Approvals -------------------------------------------------------------------------------------------------------


async def test_a_policy_decides_which_calls_need_approval_and_several_are_asked_for_at_once(tmp_path: Path) -> None:
    async def is_kept(_: Any, arguments: dict[str, Any], call_id: str) -> bool:
        return bool(arguments["disk"] != "A")

    toolbox = Toolbox()
    wipe = tool_of(toolbox.plain("wipe"), needs_approval=is_kept)
    wanted = calls(*(("wipe", f'{{"disk": {disk}') for disk in ('"C"}', "E", '"D"}', '"A"}')))
    asked = scenario([wanted, says("Done.")], reply=True, asked_at_once=2)
    seen, _ = await perform(solo(wipe), asked, tmp_path)
    assert sorted(toolbox.wiped) == ["A", "C", "D"]
    lines = seen.lines(in_order=True)
    assert sum(line.startswith("ask") for line in lines) == 2
    assert [line.split()[2] for line in lines if line.startswith("failed")] == ["invalid_args"]


async def park(made: Framework, folder: Path, base_url: str, **settings: Any) -> list[Event]:
    """The events of a run whose questions nobody is shown."""
    async with made.agent(base_url, [], Toolbox()) as agent, serving(folder, agent, **settings) as service:
        return await begin(service, is_away)


async def allow(made: Framework, folder: Path, base_url: str, *waiting: str, **settings: Any) -> list[Event]:
    """All events of the run after the calls that wait have been allowed at another server."""
    async with made.agent(base_url, [], Toolbox()) as agent, serving(folder, agent, **settings) as service:
        for call_id in waiting:
            await reply(service, f"approve:{call_id}", True)
            seen = await events_of_run(service)
        return seen


def wiping(toolbox: Toolbox, *tools: Any, **fields: Any) -> Framework:
    return solo(tool_of(toolbox.plain("wipe"), needs_approval=True), *tools, **fields)


async def test_calls_wait_beside_calls_that_end_in_another_way(tmp_path: Path) -> None:
    """Of a tool that is unknown, refused by a guardrail, or of a tool that the next server does not have."""
    from agents import ToolGuardrailFunctionOutput, tool_input_guardrail

    @tool_input_guardrail
    def forbid(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("not today")

    toolbox = Toolbox()
    others = [tool_of(toolbox.plain("travel")), tool_of(toolbox.plain("kaboom"), tool_input_guardrails=[forbid])]
    wanted = [("travel", '{"place": "Rome"}'), ("wipe", '{"disk": "C"}'), ("nothing", "{}"), ("wipe", '{"disk": "D"}')]
    settings = {"confirm_tools": ["travel"]}
    async with OpenAIServer([calls(*wanted, ("kaboom", '{"reason": "x"}'), ADD), says("Done.")]) as model:
        parked = await park(wiping(toolbox, *others, add()), tmp_path, model.base_url, **settings)
        assert isinstance(parked[-1], Parked)
        assert parked[-1].tool_call_ids == ("call_0", "call_1", "call_3")
        seen = await allow(wiping(toolbox, *others), tmp_path, model.base_url, "call_1", "call_0", "call_3", **settings)
    assert isinstance(seen[-1], Done)
    assert sorted(toolbox.wiped) == ["C", "D"]
    [_, last] = model.requests
    [asked] = [message for message in last["messages"] if message.get("tool_calls")]
    assert [one["id"] for one in asked["tool_calls"]] == [f"call_{n}" for n in range(6)]
    told = {message["tool_call_id"]: message["content"] for message in last["messages"] if message["role"] == "tool"}
    ends = ["in Rome", "C is empty", "Error: There is no tool 'nothing'", "D is empty", "not today", "5"]
    assert all(end in told[f"call_{n}"] for n, end in enumerate(ends))


@pytest.mark.parametrize(
    ("behavior", "choices", "said"),
    [("run_llm_again", ["required", None], "Done."), ("stop_on_first_tool", ["required"], "C is empty")],
)
async def test_call_waits_in_an_agent_that_must_call_tools(
    behavior: str, choices: list[str | None], said: str, tmp_path: Path
) -> None:
    from agents import ModelSettings

    toolbox = Toolbox()
    made = wiping(toolbox, model_settings=ModelSettings(tool_choice="required"), tool_use_behavior=behavior)
    async with OpenAIServer([calls(("wipe", '{"disk": "C"}')), says("Done.")]) as model:
        await park(made, tmp_path, model.base_url)
        seen = await allow(made, tmp_path, model.base_url, "call_0")
    assert isinstance(seen[-1], Done)
    assert toolbox.wiped == ["C"]
    assert "".join(event.content for event in seen if isinstance(event, Message)) == said
    assert [body.get("tool_choice") for body in model.requests] == choices


async def test_call_beside_a_handoff_waits_and_the_agent_hands_off_after_it(tmp_path: Path) -> None:
    def make(model: Any) -> AgentLike:
        from agents import Agent

        wipe = tool_of(toolbox.plain("wipe"), needs_approval=True)
        return serve(Agent("Desk", model=model, tools=[wipe], handoffs=[Agent("Clerk", model=model)]))

    toolbox = Toolbox()
    over = ("transfer_to_clerk", "{}")
    script = [calls(("wipe", '{"disk": "C"}'), over), calls(over, first=1), says("Done.")]
    async with OpenAIServer(script) as model:
        await park(Made(make), tmp_path, model.base_url)
        seen = await allow(Made(make), tmp_path, model.base_url, "call_0")
    assert toolbox.wiped == ["C"]
    assert [type(event) for event in seen if isinstance(event, ToolCallStart | Status)] == [ToolCallStart, Status]
    assert "".join(event.content for event in seen if isinstance(event, Message)) == "Done."


async def test_call_waits_beside_a_call_of_an_agent_that_is_a_tool(tmp_path: Path) -> None:
    def make(model: Any) -> AgentLike:
        from agents import Agent

        wipe = tool_of(toolbox.plain("wipe"), needs_approval=True)
        expert = Agent("Expert", model=model, tools=[wipe]).as_tool("ask_expert", "Asks.", on_stream=lambda _: None)
        return serve(Agent("Leader", model=model, tools=[wipe, expert]))

    toolbox = Toolbox()
    both = calls(("ask_expert", '{"input": "Do it"}'), ("wipe", '{"disk": "C"}'))
    script = [both, calls(("wipe", '{"disk": "D"}'), first=2), says("I cannot."), says("Done.")]
    async with OpenAIServer(script) as model:
        parked = await park(Made(make), tmp_path, model.base_url)
        assert isinstance(parked[-1], Parked)
        assert parked[-1].tool_call_ids == ("call_1",)
        seen = await allow(Made(make), tmp_path, model.base_url, "call_1")
    assert isinstance(seen[-1], Done)
    assert toolbox.wiped == ["C"]
    assert len(model.requests) == 4


# --- Handoffs, agents that are tools, contexts -------------------------------------------------------------


def desk(*tools: Any, as_handoff: Callable[[Any], Any] = lambda agent: agent) -> Framework:
    """An agent that hands off to an agent with these tools."""

    def make(model: Any) -> AgentLike:
        from agents import Agent

        clerk = Agent("Clerk", model=model, tools=[*tools], instructions="You are the clerk.")
        return serve(Agent("Desk", model=model, handoffs=[as_handoff(clerk)], instructions="You are the desk."))

    return Made(make)


async def test_a_handoff_is_a_status_and_the_next_agents_calls_are_shown_but_not_replayed_to_the_first(
    tmp_path: Path,
) -> None:
    from agents import handoff

    told: list[str] = []

    async def note(_: Any) -> None:
        told.append("handed over")

    made = desk(add(), as_handoff=lambda clerk: handoff(clerk, on_handoff=note, tool_name_override="to_clerk"))
    passed_on = [calls(("to_clerk", "{}"), before="One moment."), calls(ADD), says("It is 5."), says("As I said.")]
    seen, _ = await perform(made, scenario(passed_on, turns=("go", "once more")), tmp_path)
    assert seen.lines(in_order=True) == [
        *("say One moment.", *ADDED, "say It is 5.", "done stop", "say As I said.", "done stop")
    ]
    assert told == ["handed over"]
    assert [event.content for event in seen.events if isinstance(event, Status)] == ["Desk hands off to Clerk"]
    asked = [body["messages"][0]["content"] for body in seen.requests]
    assert asked == ["You are the desk.", "You are the clerk.", "You are the clerk.", "You are the desk."]
    assert seen.asked == seen.received
    assert [line for line in seen.sent() if "calls" in line or line.startswith("tool")] == []


async def test_endless_handoffs_are_stopped(tmp_path: Path) -> None:
    def make(model: Any) -> AgentLike:
        from agents import Agent

        ping = Agent[Any]("Ping", model=model)
        ping.handoffs = [Agent("Pong", model=model, handoffs=[ping])]
        return serve(ping)

    def hand_over(body: Body) -> Answer:
        return calls((offered(body)[0], "{}"), first=len(body["messages"]))

    seen, _ = await perform(Made(make), scenario(hand_over), tmp_path)
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert (error.code, "hand off to each other without end" in error.message) == ("agent_error", True)
    assert len(seen.requests) == 4


def leader(*tools: Any, fields: Any = MappingProxyType({}), **options: Any) -> stage.Made:
    """An agent with a tool that is an expert, who has these tools and fields."""

    def make(model: Any) -> AgentLike:
        from agents import Agent

        expert = Agent("Expert", model=model, tools=[*tools], **fields)
        return solo(expert.as_tool("ask_expert", "Asks the expert.", **options)).make(model)

    return Made(make)


def asks_expert(*wanted: tuple[str, str]) -> Callable[[Body], Answer]:
    """A leader that calls its expert once, and an expert that makes these calls one after the other."""

    def script(body: Body) -> Answer:
        results = sum(message["role"] == "tool" for message in body["messages"])
        if "ask_expert" in offered(body):
            return says("The expert says so.") if results else calls(("ask_expert", '{"input": "Do it"}'))
        return says("It is done.") if results == len(wanted) else calls(wanted[results], first=results)

    return script


async def test_hooks_of_agents_and_runs_are_called_and_tool_is_unchanged(tmp_path: Path) -> None:
    from agents import AgentHooks, RunHooks

    heard: list[tuple[str, object]] = []

    class Listening:
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
            heard.append((type(self).__name__, result))

    class OfRun(Listening, RunHooks[Any]):
        """Hooks of the expert's run."""

    class OfAgent(Listening, AgentHooks[Any]):
        """The expert's own hooks."""

    tool = add()
    made = leader(tool, hooks=OfRun(), fields={"hooks": OfAgent()})
    seen, _ = await perform(made, scenario(asks_expert(ADD)), tmp_path)
    assert sorted(heard, key=str) == [("OfAgent", 5), ("OfRun", 5)]
    assert "result 2 5" in seen.lines(in_order=True)
    assert tool.timeout_seconds is None
    assert tool.__wrapped__.__name__ == "add"


@pytest.mark.parametrize(("streamed", "reply", "end"), [(False, True, ""), (True, True, ""), (True, False, "denied")])
async def test_a_tool_of_an_agent_that_is_a_tool_can_need_approval_again_and_again(
    streamed: bool, reply: bool, end: str, tmp_path: Path
) -> None:
    toolbox = Toolbox()
    wipe = tool_of(toolbox.plain("wipe"), needs_approval=True)
    asked = scenario(asks_expert(("wipe", '{"disk": "C"}'), ("wipe", '{"disk": "D"}')), reply=reply)
    made = leader(wipe, **({"on_stream": lambda _: None} if streamed else {}))
    seen, _ = await perform(made, asked, tmp_path)
    assert toolbox.wiped == (["C", "D"] if reply else [])
    lines = seen.lines(in_order=True)
    assert lines[:4] == [
        *("call 1 ask_expert {'input': 'Do it'}", "call 2 in 1 wipe {'disk': 'C'}"),
        *("status 2 pending waiting for approval", "ask 2 Run wipe?"),
    ]
    ends = [f"failed {n} {end}" if end else f"result {n} {disk} is empty" for n, disk in ((2, "C"), (3, "D"))]
    assert [line for line in lines if line in ends] == ends
    assert lines[-3:] == ["result 1 It is done.", "say The expert says so.", "done stop"]
    told = [message["content"] for body in seen.requests for message in body["messages"] if message["role"] == "tool"]
    assert ("C is empty" in told) == reply
    assert any("Not run" in text for text in told) != reply


# --- The Responses API, the SDK's default, and tools that OpenAI runs while it answers -------------------------------


def with_search() -> list[Any]:
    from agents import WebSearchTool

    return [add(), WebSearchTool()]


async def test_text_reasoning_calls_and_usage_are_shown(tmp_path: Path) -> None:
    seen, requests = await play([slowly(addition("call_0")), speech("It is 5.")], tmp_path, *with_search())
    assert seen.lines(in_order=True) == ["think Sums.", *ADDED, "say It is 5.", "done stop"]
    written = [event.delta for event in seen.events if isinstance(event, ToolCallArgsDelta)]
    assert "".join(written) == '{"a": 2, "b": 3}'
    assert [event.total_tokens for event in seen.events if isinstance(event, Usage)] == [30]
    assert [item["type"] for item in requests[1]["input"][1:]] == ["reasoning", "function_call", "function_call_output"]
    assert seen.asked == [ModelAsked("m", 1, 2), ModelAsked("m", 3, 2)]
    answers = [what for what in seen.observed if isinstance(what, ModelAnswered)]
    assert [answered.usage for answered in answers] == [TokenUsage(10, 5, 15)] * 2


async def test_the_second_turn_sends_the_calls_of_the_first_under_the_ids_that_the_store_has(tmp_path: Path) -> None:
    said = [addition("call_0"), addition("call_0"), speech("5 and 5."), speech("It was 5.")]
    seen, requests = await play(said, tmp_path, add(), turns=("go", "what was it?"))
    started = [event.tool_call_id for event in seen.events if isinstance(event, ToolCallStart)]
    sent = requests[-1]["input"]
    assert [item["call_id"] for item in sent if item.get("type") == "function_call_output"] == started
    assert len(set(started)) == 2
    spoken = [item for item in sent if item.get("role") == "assistant"]
    assert [item["content"][0]["text"] for item in spoken] == ["5 and 5."]
    assert all("id" not in item for item in spoken)


def item(kind: str, status: str = "completed", **fields: Any) -> Body:
    return {"id": "item_1", "type": kind, "status": status, **fields}


SEARCH = {"type": "search", "query": "Rome"}


@pytest.mark.parametrize(
    ("items", "call", "end"),
    [
        ([item("web_search_call", action=SEARCH)], "web_search {'type': 'search', 'query': 'Rome'}", "searched"),
        (
            [item("file_search_call", queries=["Rome"], results=[{"filename": "rome.txt", "text": "A city."}])],
            "file_search {'queries': ['Rome']}",
            "rome.txt: A city.",
        ),
        (
            [item("code_interpreter_call", code="1 + 1", container_id="c", outputs=[{"type": "logs", "logs": "2"}])],
            "code_interpreter {'code': '1 + 1'}",
            "2",
        ),
        (
            [item("image_generation_call", result=PICTURE_URL.partition(",")[2])],
            "image_generation {}",
            "drawn\nfiles 1 image",
        ),
        ([item("image_generation_call", status="failed")], "image_generation {}", None),
    ],
    ids=["web", "files", "python", "picture", "failed"],
)
async def test_tools_run_by_openai_are_shown(items: list[Body], call: str, end: str | None, tmp_path: Path) -> None:
    seen, _ = await play([speech("There.", *items)], tmp_path, *with_search())
    ended = "failed 1 tool_failed" if end is None else f"result 1 {end}"
    assert "\n".join(seen.lines(in_order=True)) == f"call 1 {call}\n{ended}\nsay There.\ndone stop"


async def test_citation_becomes_source(tmp_path: Path) -> None:
    cited = {"type": "url_citation", "url": "https://rome.example", "title": "Rome", "start_index": 0, "end_index": 4}
    seen, _ = await play([speech("Rome it is.", annotations=[cited, cited])], tmp_path, *with_search())
    [source] = [event.source for event in seen.events if isinstance(event, Source)]
    assert source == {"name": "Rome", "url": "https://rome.example"}


@pytest.mark.parametrize(
    ("half", "why"),
    [
        (answer(end="response.failed", error={"code": "server_error", "message": "out of memory"}), "out of memory"),
        (answer(end="response.incomplete", incomplete_details={"reason": "max_output_tokens"}), "max_output_tokens"),
        (chunks({"type": "response.created", "response": {"id": "resp_1", "output": []}}), ""),
    ],
    ids=["failed", "incomplete", "cut off"],
)
async def test_failed_answer_ends_run(half: Answer, why: str, tmp_path: Path) -> None:
    seen, _ = await play([half], tmp_path, *with_search())
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert (error.code, why in error.message) == ("model_error", True)


def kinds(request: Body) -> list[str]:
    return [tool["type"] for tool in request.get("tools") or ()]


async def test_hosted_tools_that_need_approval_are_left_out(tmp_path: Path) -> None:
    from agents import CodeInterpreterTool, WebSearchTool

    python = CodeInterpreterTool({"type": "code_interpreter", "container": {"type": "auto"}})
    tools = (WebSearchTool(), python)
    seen, requests = await play([speech("Without.")], tmp_path, *tools, confirm_tools=("web*", "code*"))
    assert kinds(requests[0]) == []
    told = [event.content.partition(": ")[0] for event in seen.events if isinstance(event, Status)]
    assert told == ["web_search is left out", "code_interpreter is left out"]


async def test_calls_of_hosted_tools_are_counted(tmp_path: Path) -> None:
    # The same call again and again: hosted calls have already run when they are counted.
    searches = [{**item("web_search_call", action={"type": "search"}), "id": f"ws_{n}"} for n in range(4)]
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_0", "name": "add", "arguments": ADD[1]}
    seen, requests = await play([answer(*searches, call), speech("Enough.")], tmp_path, *with_search())
    assert kinds(requests[0])
    assert kinds(requests[1]) == []
    assert seen.lines(in_order=True)[-3:] == ["failed 5 limit", "say Enough.", "done max_turns"]


# --- Each kind of the SDK's tools and agents is supported or refused -------------------------------------------------


def screen() -> Any:
    from agents import AsyncComputer, ComputerTool

    # A computer that does nothing; the class has a dozen abstract methods.
    kind: Any = type("Screen", (AsyncComputer,), dict.fromkeys(AsyncComputer.__abstractmethods__))
    return ComputerTool(kind())


def local(kind: str) -> Any:
    """A shell or an editor that would run on the server."""
    import agents

    return getattr(agents, kind)(lambda _: "done")


def hosted_server() -> Any:
    from agents import HostedMCPTool

    return clerk(HostedMCPTool({"type": "mcp", "server_label": "disks", "server_url": "https://disks.example"}))


class Unheard:
    """A tool class that Callboard does not know."""

    name = "unheard"


def sandbox() -> Any:
    from agents.sandbox import SandboxAgent

    return SandboxAgent("Clerk")


def clerk(*tools: Any, **fields: Any) -> Any:
    from agents import Agent

    return Agent[Any]("Clerk", tools=[*tools], **fields)


UNHEARD: Any = Unheard()
REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "a computer": (lambda: clerk(screen()), r"'computer_use_preview' \(ComputerTool\) of the agent 'Clerk'"),
    "a shell": (lambda: clerk(local("ShellTool")), r"'shell' \(ShellTool\)"),
    "a hosted server": (hosted_server, r"'hosted_mcp' \(HostedMCPTool\)"),
    "a local shell": (lambda: clerk(local("LocalShellTool")), r"'local_shell' \(LocalShellTool\)"),
    "patches": (lambda: clerk(local("ApplyPatchTool")), r"'apply_patch' \(ApplyPatchTool\)"),
    "an unknown class": (lambda: clerk(UNHEARD), r"'unheard' \(Unheard\)"),
    "an agent in a sandbox": (sandbox, r"'Clerk' \(SandboxAgent\)"),
    "behind a handoff": (lambda: clerk(handoffs=[clerk(screen())]), "of the agent 'Clerk'"),
    "as a tool": (lambda: clerk(clerk(screen()).as_tool("ask", "Asks.")), "of the agent 'Clerk'"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_unsupported_tool_is_refused_at_registration(what: str) -> None:
    make, named = REFUSALS[what]
    with pytest.raises(AgentError, match=rf"{named}.* cannot be served: "):
        register(serve(make()))


async def test_unsupported_agent_of_factory_is_refused_in_run(tmp_path: Path) -> None:
    made = Made(lambda model: serve(lambda _: clerk(screen(), model=model)))
    seen, _ = await perform(made, scenario([says("Hello.")]), tmp_path)
    [error] = seen.events[1:]
    assert isinstance(error, Error)
    assert error.code == "agent_error"
    assert "'computer_use_preview' (ComputerTool)" in error.message
    assert seen.requests == []


def test_mutual_handoffs_are_checked_once() -> None:
    ping = clerk(add())
    ping.handoffs = [clerk(handoffs=[ping])]
    assert register(serve(ping)).agent_id == "agent"


# --- MCP servers: one process for each, for as long as Callboard runs ------------------------------------------------

SOURCE = """
import asyncio, os
from mcp.server.mcpserver import MCPServer

def pid() -> str:
    return str(os.getpid())

async def wait() -> str:
    await asyncio.Event().wait()

def fail() -> str:
    raise ValueError("too small")

server = MCPServer("processes")
for tool in (pid, wait, fail):
    server.tool()(tool)
server.run("stdio")
"""


def processes(**fields: Any) -> Any:
    """A server whose tool `pid` returns the id of its process."""
    from agents.mcp import MCPServerStdio

    # A busy machine starts it slowly.
    return MCPServerStdio(
        {"command": sys.executable, "args": ["-c", SOURCE]}, client_session_timeout_seconds=60, **fields
    )


@dataclass
class Desk:
    """A Callboard server with one agent, which calls the tool that the user names."""

    service: Service

    def request(self, tool: str, **fields: Any) -> Body:
        return request(agent="agent", messages=[{"role": "user", "content": tool}], **fields)

    async def events(self, tool: str, **fields: Any) -> list[Any]:
        return [*await self.service.events(self.request(tool, **fields))]

    async def pid(self, **fields: Any) -> int:
        """The id of the process that answers a run's call."""
        events = await self.events("pid", **fields)
        assert [event for event in events if isinstance(event, ToolRequest)] == []
        [result] = [event.result for event in events if isinstance(event, ToolCallComplete)]
        return int(result)


@asynccontextmanager
async def serving_desk(folder: Path, *servers: Any, made_anew: Any = None, **values: Any) -> AsyncIterator[Desk]:
    """A desk with these servers, or with one that `made_anew` makes for each run."""
    from agents import OpenAIChatCompletionsModel

    def script(body: Body) -> Answer:
        last = body["messages"][-1]
        if not offered(body):
            return says("A title.")
        return says("There.") if last["role"] == "tool" else calls((str(last["content"]), "{}"))

    async with OpenAIServer(script) as endpoint, openai_client(endpoint.base_url) as client:
        model = OpenAIChatCompletionsModel("m", client)
        agent = serve(lambda _: clerk(model=model, mcp_servers=[made_anew()])) if made_anew else None
        async with serving(folder, agent or serve(clerk(model=model, mcp_servers=[*servers])), **values) as service:
            yield Desk(service)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("made_for_each_run", [False, True])
async def test_runs_share_mcp_process_which_survives_calls_is_restarted_and_ends_with_server(
    made_for_each_run: bool, tmp_path: Path
) -> None:
    servers = () if made_for_each_run else (processes(),)
    async with serving_desk(tmp_path, *servers, made_anew=processes if made_for_each_run else None) as desk:
        pids = await asyncio.gather(*(desk.pid() for _ in range(3)))
        # Its tool wins over Open WebUI's of the same name.
        pids.append(await desk.pid(chat_id="c", openwebui_tools=[{"name": "pid"}]))
        assert [event.code for event in await desk.events("fail") if isinstance(event, ToolCallError)] == [
            "tool_failed"
        ]
        async with desk.service.client.stream("POST", "/v1/runs", json=desk.request("wait")) as stream:
            async for line in stream.aiter_lines():
                if "tool_call_start" in line:
                    await desk.service.client.post(f"/v1/runs/{stream.headers['X-Callboard-Run']}/cancel")
        pids.append(await desk.pid())
        assert len(set(pids)) == 1
        os.kill(pids[0], signal.SIGKILL)
        second = await desk.pid()
        assert second != pids[0]
        assert is_alive(second)
    assert not is_alive(second)


async def test_mcp_server_connected_by_author_is_not_closed(tmp_path: Path) -> None:
    async with processes() as server:
        async with serving_desk(tmp_path, server) as desk:
            pid = await desk.pid()
        assert is_alive(pid)


async def test_mcp_servers_of_different_configuration_are_different(tmp_path: Path) -> None:
    names = iter(("one", "two"))
    async with serving_desk(tmp_path, made_anew=lambda: processes(name=next(names))) as desk:
        pids = [await desk.pid() for _ in range(2)]
        assert len(set(pids)) == 2
    assert not any(is_alive(pid) for pid in pids)


async def test_mcp_server_that_cannot_start_is_named(tmp_path: Path) -> None:
    from agents.mcp import MCPServerStdio

    server = MCPServerStdio({"command": "/no/such/program", "args": []}, name="broken")
    async with serving_desk(tmp_path, server) as desk:
        error = (await desk.events("pid"))[-1]
    assert isinstance(error, Error)
    assert error.code == "agent_error"
    assert "Cannot connect to the MCP server 'broken'" in error.message


async def test_late_call_of_mcp_tool_has_timeout(tmp_path: Path) -> None:
    async with serving_desk(tmp_path, processes(), tool_timeout_seconds=0.3) as desk:
        events = await desk.events("wait")
    assert [event.code for event in events if isinstance(event, ToolCallError)] == ["timeout"]
