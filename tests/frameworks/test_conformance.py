"""Every scenario runs through the built-in loop and every adapter, and a listener sees the same events."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callboard._endpoint_rules import NO_ANSWER
from callboard.agents import AgentLike, RunContext
from callboard.calls.approval import REFUSED, TOOL_CHANGED
from callboard.models import ChatDict, ScriptedModel, TokenUsage
from callboard.models.messages import content_text
from callboard.observers import ModelAnswered, ModelAsked, RunPrepared
from callboard_protocol import (
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    Parked,
    RunStart,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolRequest,
    ToolStatus,
    Usage,
    UserMessage,
)
from tests.fakes.openai_server import Body, OpenAIServer, call, chunks, finish, text
from tests.frameworks import agno_agents, langgraph_agents, openai_agents_stage
from tests.frameworks.columns import FRAMEWORKS, Column
from tests.frameworks.scenario import ADD, INSTRUCTIONS, calls, says, scenario
from tests.frameworks.scenarios import SCENARIOS, Scenario
from tests.frameworks.stage import Framework, Performance, is_system, perform
from tests.frameworks.toolbox import Toolbox
from tests.frameworks.waiting import answer, begin, events_of_run, is_away, kill
from tests.runs.promises import check
from tests.serving import Service, numbered, request, serving

every_framework = pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.name)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name.replace(" ", "_"))
@every_framework
async def test_events_equal_those_of_scenario(framework: Column, scenario: Scenario, tmp_path: Path) -> None:
    tasks = asyncio.all_tasks()
    seen, toolbox = await perform(
        framework,
        scenario,
        tmp_path,
        confirm_tools=scenario.confirm_tools,
        tool_timeout_seconds=scenario.tool_timeout_seconds,
    )
    assert asyncio.all_tasks() == tasks
    deviation = framework.deviations.get(scenario.name)
    expected = list((deviation and deviation.expected) or scenario.expected)
    assert seen.lines(in_order=scenario.in_order) == expected
    if (sent := (deviation and deviation.sent) or scenario.sent) is not None:
        assert [
            f"{wanted[:-1]}…" if wanted.endswith("…") and told.startswith(wanted[:-1]) else told
            for told, wanted in zip(seen.sent(), sent, strict=True)
        ] == list(sent)
    said = " ".join(
        event.error if isinstance(event, ToolCallError) else event.message
        for event in seen.events
        if isinstance(event, ToolCallError | Error)
    )
    assert all(words in said for words in scenario.errors_say)
    assert toolbox.wiped == (["C"] if scenario.reply is True else [])
    assert toolbox.stopped.is_set() == ("wait" in scenario.tools)
    for asked in seen.requests:
        assert_instructed(asked, scenario)
    told = [
        [call["id"] for message in asked["messages"] for call in message.get("tool_calls") or ()]
        for asked in seen.requests
    ]
    has_own_ids = any(ids != seen.started[: len(ids)] for ids in told)
    assert has_own_ids == bool(deviation and deviation.own_ids)
    assert_observed(seen, scenario)


def assert_instructed(request: Body, scenario: Scenario) -> None:
    """The agent's instructions come before the client's; a background task has no instructions and no tools."""
    system = "".join(message["content"] for message in request["messages"] if is_system(message))
    if scenario.task:
        assert (system, request.get("tools")) == ("", None)
        return
    wanted = [INSTRUCTIONS, *(message["content"] for message in scenario.before if is_system(message))]
    places = [system.find(words) for words in wanted]
    assert places[0] >= 0
    assert places == sorted(places)


def assert_observed(seen: Performance, scenario: Scenario) -> None:
    """Observers get every request with its answer or its error, and what the answers cost is what the turns cost."""
    assert seen.asked == seen.received
    answers = [what for what in seen.observed if isinstance(what, ModelAnswered)]
    assert [one.error for one in answers[:-1]] == [None] * (len(seen.received) - 1)
    assert all(one.first_seconds is None or 0 < one.first_seconds <= one.seconds for one in answers)
    end = seen.events[-1]
    if isinstance(end, Error) and end.code == "model_unauthorized":
        assert (answers[-1].error, answers[-1].first_seconds) == ("ModelUnauthorized", None)
    elif isinstance(end, Error) or scenario.stop_at == "text":
        assert answers[-1].error
    elif scenario.stop_at is None:
        assert answers[-1].error in (None, "CallLimitIgnored")
        cost = sum(event.total_tokens or 0 for event in seen.events if isinstance(event, Usage))
        assert cost == sum(one.usage.total_tokens or 0 for one in answers if one.usage)


@every_framework
async def test_observers_get_requests_among_the_events_with_usage_and_reason(framework: Column, tmp_path: Path) -> None:
    counted = {
        "prompt_tokens": 40,
        "completion_tokens": 20,
        "total_tokens": 60,
        "prompt_tokens_details": {"cached_tokens": 30},
        "completion_tokens_details": {"reasoning_tokens": 15},
    }
    cost = {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": counted}
    script = [calls(ADD), chunks(text("It is "), text("5."), finish("stop"), cost)]
    seen, _ = await perform(framework, scenario(script, tools=["add"]), tmp_path)
    told = [what for what in seen.observed if not isinstance(what, Message | ToolCallArgsDelta | Usage)]
    assert [type(what) for what in told] == [
        *(RunStart, RunPrepared, ModelAsked, ModelAnswered, ToolCallStart, ToolCallComplete),
        *(ModelAsked, ModelAnswered, Done),
    ]
    first, last = [what for what in told if isinstance(what, ModelAnswered)]
    assert (first.model, first.usage) == ("m", TokenUsage(10, 5, 15))
    # Agno and the SDK do not pass on why a model's answer ended.
    knows = framework.name not in ("Agno", "OpenAI Agents")
    assert (first.finish_reason, last.finish_reason) == (("tool_calls", "stop") if knows else (None, None))
    [usage] = [event for event in seen.events if isinstance(event, Usage)]
    assert usage == Usage(input_tokens=50, output_tokens=25, total_tokens=75, cached_tokens=30, reasoning_tokens=15)


@every_framework
async def test_tool_that_is_always_allowed_asks_again_when_it_has_changed(framework: Column, tmp_path: Path) -> None:
    class NextRelease:
        def agent(
            self, base_url: str, tools: Sequence[str], toolbox: Toolbox
        ) -> AbstractAsyncContextManager[AgentLike]:
            toolbox.plain("wipe").__doc__ = "Wipes a disk, and its copies."
            return framework.agent(base_url, tools, toolbox)

    wipe = scenario([calls(("wipe", '{"disk": "C"}')), says("Done.")], tools=["wipe"], reply="always")
    asked: list[str] = []
    for release in (framework, framework, NextRelease()):
        seen, toolbox = await perform(release, wipe, tmp_path)
        asked += [event.message for event in seen.events if isinstance(event, InputRequest)]
        assert toolbox.wiped == ["C"]
    assert asked == ["disk: C", f"{TOOL_CHANGED}\n\ndisk: C"]


# --- A run that another server continues -----------------------------------------------------------------------------


def round_of(*calls: tuple[str, str, str], said: str | None = None) -> list[ChatDict]:
    """A round of calls of `add`, each an id, its arguments and its result."""
    made = [
        {"id": call_id, "type": "function", "function": {"name": "add", "arguments": arguments}}
        for call_id, arguments, _ in calls
    ]
    results: list[ChatDict] = [
        {"role": "tool", "tool_call_id": call_id, "content": result} for call_id, _, result in calls
    ]
    return [{"role": "assistant", "content": said, "tool_calls": made}, *results]


STARTED: list[ChatDict] = [
    {"role": "user", "content": "hi"},
    *round_of(("call_0", '{"a": 1, "b": 1}', "2")),
    {"role": "assistant", "content": "It is 2."},
    {"role": "user", "content": "go"},
    *round_of(("call_1", '{"a": 2, "b": 3}', "5"), said="Let me add. "),
    *round_of(("call_2", '{"a": 5, "b": 5}', "Error: the server stopped"), ("call_3", '{"a": 5, "b": 5}', "10")),
]


@pytest.mark.parametrize(
    "framework",
    [*FRAMEWORKS, agno_agents.crew(agno_agents.add)],
    ids=lambda framework: getattr(framework, "name", "Agno's teams"),
)
async def test_continued_run_sends_ended_calls_with_results_and_runs_none(framework: Framework) -> None:
    async with (
        OpenAIServer([chunks(text("Well."), finish("stop"))]) as server,
        framework.agent(server.base_url, ["add"], Toolbox()) as agent,
    ):
        context = RunContext("run", STARTED, str, ScriptedModel(), chat_id="chat")
        events = [event async for event in agent.run(context) if event.type not in ("usage", "tool_call_args_delta")]
    assert [sent(body["messages"]) for body in server.requests] == [sent(STARTED)]
    assert events == [Message(content="Well."), Done()]


def sent(messages: Sequence[ChatDict]) -> list[Any]:
    """Roles, texts and calls, and for each result the call that it belongs to."""
    ids = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    return [
        (
            message["role"],
            message.get("content") or "",
            [call["function"]["arguments"].replace(" ", "") for call in message.get("tool_calls") or ()],
            ids.index(message["tool_call_id"]) if message["role"] == "tool" else None,
        )
        for message in messages
        if message["role"] not in ("system", "developer")
    ]


# --- A call that waits while its run has ended -----------------------------------------------------------------------

ADDS = call("add", ADD[1], index=0, call_id="c0")


def places(tool: str, argument: str) -> list[Any]:
    numbered = enumerate("CD", 1)
    return [call(tool, f'{{"{argument}": "{at}"}}', index=number, call_id=f"c{number}") for number, at in numbered]


def places_of(events: Sequence[Event], toolbox: Toolbox) -> list[str]:
    """The places that the tools of the calls were run for."""
    steps = [event.data.message for event in events if isinstance(event, ToolStatus)]
    return [*toolbox.wiped, *(step[-1] for step in steps if step.startswith("half way to "))]


@pytest.mark.parametrize(
    ("tool", "argument", "settings"),
    [("wipe", "disk", {}), ("travel", "place", {"confirm_tools": ("travel",)})],
    ids=["the framework asks", "the server asks"],
)
@every_framework
async def test_call_waits_over_restarts_and_runs_once_when_it_is_allowed(
    framework: Column, tool: str, argument: str, settings: Mapping[str, Any], tmp_path: Path
) -> None:
    toolbox = Toolbox()
    script = [chunks(text("I do it. "), ADDS, *places(tool, argument), finish("tool_calls")), says("Done.")]

    async with OpenAIServer(script) as model:
        for number, (request_id, allowed) in enumerate([("", None), ("approve:c1", True), ("approve:c2", False)]):
            async with (
                framework.agent(model.base_url, ["add", tool], toolbox) as agent,
                serving(tmp_path, agent, **settings) as service,
            ):
                if number == 0:
                    seen = await begin(service, is_away)
                else:
                    await answer(service, request_id, allowed)
                    seen = await events_of_run(service)
                assert isinstance(seen[-1], Done if number == 2 else Parked)
                # A framework that asks about its calls together runs them after the last answer.
                assert number == 1 or places_of(seen, toolbox) == ["C"] * (number == 2)
    assert [event.tool_call_id for event in seen if isinstance(event, ToolCallStart)] == ["c0", "c1", "c2"]
    assert "".join(event.content for event in seen if isinstance(event, Message)) == "I do it. Done."
    [_, last] = model.requests
    # LangChain's middleware puts its refusals before the results, and Agno tells the model other ids.
    told = {one["tool_call_id"]: content_text(one["content"]) for one in last["messages"] if one["role"] == "tool"}
    results = [told[made["id"]] for one in last["messages"] for made in one.get("tool_calls") or ()]
    assert results[:2] == ["5", "C is empty" if tool == "wipe" else "in C"]
    assert REFUSED in results[2]


@every_framework
async def test_question_of_second_round_can_be_answered_after_its_server_was_killed(
    framework: Column, tmp_path: Path
) -> None:
    toolbox = Toolbox()
    script = [
        chunks(text("First. "), ADDS, finish("tool_calls")),
        chunks(text("Second. "), call("wipe", '{"disk": "C"}', index=0, call_id="c1"), finish("tool_calls")),
        says("Done."),
    ]

    async with OpenAIServer(script) as model, framework.agent(model.base_url, ["add", "wipe"], toolbox) as agent:
        async with serving(tmp_path / "killed", agent) as service:
            before = await begin(service, partial(kill, tmp_path / "killed", tmp_path / "next"))
        async with serving(tmp_path / "next", agent) as service:
            await answer(service, "approve:c1", True)
            seen = await events_of_run(service)
    assert seen[: len(before)] == before
    assert isinstance(seen[-1], Done)
    assert toolbox.wiped == ["C"]
    assert [event.tool_call_id for event in seen if isinstance(event, ToolCallStart)] == ["c0", "c1"]
    assert "".join(event.content for event in seen if isinstance(event, Message)) == "First. Second. Done."
    assert sent(model.requests[2]["messages"])[-4:] == [
        *(("assistant", "First. ", [ADD[1].replace(" ", "")], None), ("tool", "5", [], 0)),
        *(("assistant", "Second. ", ['{"disk":"C"}'], None), ("tool", "C is empty", [], 1)),
    ]


@every_framework
async def test_later_call_with_the_id_of_a_call_that_waited_asks_and_runs_itself(
    framework: Column, tmp_path: Path
) -> None:
    toolbox = Toolbox()
    script = [calls(("wipe", f'{{"disk": "{disk}"}}')) for disk in "CD"]

    async with (
        OpenAIServer([*script, says("Done.")]) as model,
        framework.agent(model.base_url, ["wipe"], toolbox) as agent,
        serving(tmp_path, agent) as service,
    ):
        await begin(service, is_away)
        await answer(service, "approve:call_0", True)
        asked: list[InputRequest] = []
        async with service.client.stream("GET", "/v1/runs/r/events?user_id=ann") as response:
            async for _, event in numbered(response):
                asked += [event] if isinstance(event, InputRequest) else []
                if isinstance(event, InputRequest) and event.request_id != "approve:call_0":
                    await answer(service, event.request_id, False)
    assert toolbox.wiped == ["C"]
    assert [one.arguments for one in asked] == [{"disk": "C"}, {"disk": "D"}]


@every_framework
async def test_always_answers_the_other_waiting_calls_of_the_tool(framework: Column, tmp_path: Path) -> None:
    toolbox = Toolbox()
    wipes = [call("wipe", f'{{"disk": "{disk}"}}', index=at, call_id=f"c{at}") for at, disk in enumerate("CD")]
    script = [chunks(*wipes, finish("tool_calls")), says("Done.")]
    async with (
        OpenAIServer(script) as model,
        framework.agent(model.base_url, ["wipe"], toolbox) as agent,
        serving(tmp_path, agent) as service,
    ):
        await begin(service, is_away)
        await answer(service, "approve:c1", "always")
        # The run may wait once more, and begin again.
        while not isinstance((await events_of_run(service))[-1], Done):
            pass
    assert sorted(toolbox.wiped) == ["C", "D"]


# --- Messages that the user sends to a running agent -----------------------------------------------------------------


async def say(service: Service, *texts: str) -> None:
    for words in texts:
        sent = await service.client.post("/v1/runs/r/messages?user_id=ann", json={"content": words})
        assert sent.status_code == 202, sent.text


def outline(body: Body) -> list[str]:
    """The texts and results of a request, without what stands only between a result and a message of the user."""
    lines: list[str] = []
    for message in body["messages"]:
        words = content_text(message.get("content"))
        match message["role"]:
            case "assistant" | "tool" if words and words != NO_ANSWER:
                lines.append(words)
            case "user":
                lines += [f"user: {line}" for line in words.split("\n") if line]
    return lines


def asked(**fields: Any) -> dict[str, Any]:
    return request(agent="agent", run_id="r", chat_id="c", message_id="m", user={"id": "ann"}, **fields)


@pytest.mark.parametrize("tool", ["held", "wipe"])
@every_framework
async def test_two_messages_to_a_run_are_read_after_its_round_and_replayed_there(
    framework: Column, tool: str, tmp_path: Path
) -> None:
    toolbox = Toolbox()
    made = call(tool, '{"disk": "C"}' if tool == "wipe" else "{}", index=1, call_id="c1")
    script = [
        chunks(text("I do it. "), ADDS, made, finish("tool_calls")),
        calls(ADD, first=2),
        says("Done."),
        says("Yes."),
    ]
    seen: list[Event] = []
    async with (
        OpenAIServer(script) as model,
        framework.agent(model.base_url, ["add", tool], toolbox) as agent,
        serving(tmp_path, agent) as service,
    ):
        async with service.client.stream("POST", "/v1/runs", json=asked()) as response:
            async for _, event in numbered(response):
                seen.append(event)
                if isinstance(event, InputRequest):
                    await say(service, "Also B.", "And C.")
                    await answer(service, event.request_id, True)
                elif isinstance(event, ToolCallStart) and event.tool_name == "held":
                    await say(service, "Also B.", "And C.")
                    toolbox.gate.set()
        check(list(enumerate(seen, 1)))
        said = [{"role": "user", "content": "hi"}, {"role": "assistant", "id": "m", "content": "I do it. Done."}]
        again = {"messages": [*said, {"role": "user", "content": "Really?"}], "run_id": "s", "message_id": "n"}
        await service.events({**asked(), **again})
    result = "C is empty" if tool == "wipe" else "let go"
    first = ["user: hi", "I do it. ", "5", result, "user: Also B.", "user: And C."]
    assert [outline(body) for body in model.requests[1:3]] == [first, [*first, "5"]]
    later = [line for line in first if line != "I do it. "]
    assert outline(model.requests[3]) == [*later, "5", "I do it. Done.", "user: Really?"]
    kinds = [
        event.type for event in seen if isinstance(event, ToolCallStart | ToolCallComplete | UserMessage | Message)
    ]
    places = [place for place, kind in enumerate(kinds) if kind == "user_message"]
    assert kinds.index("tool_call_start", places[1]) == places[1] + 1 == places[0] + 2
    assert [event.content for event in seen if isinstance(event, UserMessage)] == ["Also B.", "And C."]


@every_framework
async def test_messages_during_the_last_text_are_answered_in_the_same_run(framework: Column, tmp_path: Path) -> None:
    script = [calls(ADD, before="I add. "), says("It is 5."), calls(ADD, first=1), says("Both are 5."), says("Yes.")]
    seen: list[Event] = []
    async with (
        OpenAIServer(script) as model,
        framework.agent(model.base_url, ["add"], Toolbox()) as agent,
        serving(tmp_path, agent) as service,
    ):
        async with service.client.stream("POST", "/v1/runs", json=asked()) as response:
            async for _, event in numbered(response):
                seen.append(event)
                if isinstance(event, ToolCallStart) and len(model.requests) == 1:
                    model.may_answer.clear()
                if isinstance(event, ToolCallComplete) and not model.may_answer.is_set():
                    await model.until_asked(2)
                    await say(service, "Once more.", "Quickly.")
                    model.may_answer.set()
        check(list(enumerate(seen, 1)))
        said = [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "id": "m", "content": "I add. It is 5.Both are 5."},
        ]
        again = {"messages": [*said, {"role": "user", "content": "Really?"}], "run_id": "s", "message_id": "n"}
        await service.events({**asked(), **again})
        late = await service.client.post("/v1/runs/r/messages?user_id=ann", json={"content": "Late."})
    first = ["user: hi", "I add. ", "5", "It is 5.", "user: Once more.", "user: Quickly."]
    assert [outline(body) for body in model.requests[2:4]] == [first, [*first, "5"]]
    # The client's message has the whole text.
    said_first = ["user: hi", "5", "user: Once more.", "user: Quickly.", "5"]
    assert outline(model.requests[4]) == [*said_first, "I add. It is 5.Both are 5.", "user: Really?"]
    assert isinstance(seen[-1], Done)
    assert late.status_code == 409


@every_framework
async def test_messages_survive_the_kill_of_their_server_and_are_read_once(framework: Column, tmp_path: Path) -> None:
    toolbox = Toolbox()
    wipes = [chunks(call("wipe", f'{{"disk": "{at}"}}', call_id=f"c{at}"), finish("tool_calls")) for at in "CD"]

    async def when_asked(service: Service, question: InputRequest) -> bool:
        if question.tool_call_id == "cC":
            await say(service, "Also D.")
            await answer(service, question.request_id, True)
            return False
        await say(service, "And E.")
        return await kill(tmp_path / "killed", tmp_path / "next")

    async with (
        OpenAIServer([*wipes, says("Done."), says("F too.")]) as model,
        framework.agent(model.base_url, ["wipe"], toolbox) as agent,
    ):
        async with serving(tmp_path / "killed", agent) as service:
            await begin(service, when_asked)
        async with serving(tmp_path / "next", agent) as service:
            model.may_answer.clear()
            await answer(service, "approve:cD", True)
            await model.until_asked(3)
            await say(service, "And F.")
            model.may_answer.set()
            seen = await events_of_run(service)
    second = ["user: hi", "C is empty", "user: Also D."]
    third = [*second, "D is empty", "user: And E."]
    assert [outline(body) for body in model.requests[1:]] == [second, third, [*third, "Done.", "user: And F."]]
    assert [event.content for event in seen if isinstance(event, UserMessage)] == ["Also D.", "And E.", "And F."]


def agno_with_hook(check: Callable[[str], None], *tools: Any) -> Framework:
    def read(run_input: Any) -> None:
        check(run_input.input_content)

    return agno_agents.solo(*tools, pre_hooks=[read])


def graph_with_middleware(check: Callable[[str], None], *tools: Any) -> Framework:
    from langchain.agents.middleware import before_agent

    @before_agent
    def read(state: Any, runtime: Any) -> None:
        check(state["messages"][-1].text)

    return langgraph_agents.solo(*tools, middleware=[read])


def agents_with_guardrail(check: Callable[[str], None], *tools: Any) -> Framework:
    from agents import GuardrailFunctionOutput, input_guardrail

    @input_guardrail(run_in_parallel=False)
    async def read(context: Any, agent: Any, given: Any) -> Any:
        check(given[-1]["content"])
        return GuardrailFunctionOutput(None, tripwire_triggered=False)

    return openai_agents_stage.solo(*map(openai_agents_stage.tool_of, tools), input_guardrails=[read])


@pytest.mark.parametrize("make", [agno_with_hook, graph_with_middleware, agents_with_guardrail])
async def test_agent_that_checks_what_the_user_says_first_checks_messages_too(make: Any, tmp_path: Path) -> None:
    checked: list[str] = []
    toolbox = Toolbox()
    made: Framework = make(checked.append, toolbox.plain("held"))
    async with (
        OpenAIServer([calls(("held", "{}")), says("Done."), says("Yes.")]) as model,
        made.agent(model.base_url, ["held"], toolbox) as agent,
        serving(tmp_path, agent) as service,
        service.client.stream("POST", "/v1/runs", json=asked()) as response,
    ):
        async for _, event in numbered(response):
            if isinstance(event, ToolCallStart):
                await say(service, "Also B.", "And C.")
                toolbox.gate.set()
    assert checked == ["hi", "Also B.\n\nAnd C."]
    first = ["user: hi", "let go"]
    assert [outline(body) for body in model.requests[1:]] == [first, [*first, "Done.", "user: Also B.", "user: And C."]]


def guarded_agent(tool: Any) -> Framework:
    from agno.guardrails import PIIDetectionGuardrail

    return agno_agents.solo(tool, pre_hooks=[PIIDetectionGuardrail()])


def masking_graph(tool: Any) -> Framework:
    from langchain.agents.middleware import PIIMiddleware

    return langgraph_agents.solo(tool, middleware=[PIIMiddleware("email")])


@pytest.mark.parametrize("make", [guarded_agent, masking_graph])
async def test_message_that_a_filter_refuses_or_changes_is_not_shown_to_the_model_later(
    make: Any, tmp_path: Path
) -> None:
    toolbox = Toolbox()
    made: Framework = make(toolbox.plain("held"))
    async with (
        OpenAIServer([calls(("held", "{}")), says("Done."), says("Yes.")]) as model,
        made.agent(model.base_url, ["held"], toolbox) as agent,
        serving(tmp_path, agent) as service,
    ):
        async with service.client.stream("POST", "/v1/runs", json=asked()) as response:
            async for _, event in numbered(response):
                if isinstance(event, ToolCallStart):
                    await say(service, "Also B.", "And mail a@b.com.")
                    toolbox.gate.set()
        said = [{"role": "user", "content": "hi"}, {"role": "assistant", "id": "m", "content": "Done."}]
        again = {"messages": [*said, {"role": "user", "content": "Really?"}], "run_id": "s", "message_id": "n"}
        await service.events({**asked(), **again})
    shown = [line for body in model.requests for line in outline(body) if line.startswith("user: ")]
    assert "user: Really?" in shown
    assert [line for line in shown if "@" in line] == []
    assert ("user: And mail [REDACTED_EMAIL]." in shown) == (make is masking_graph)


# --- Open WebUI's tools, which the test runs as its client -----------------------------------------------------------

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
WEATHER = {"name": "weather", "description": "Tells the weather.", "parameters": PARAMETERS}
OTHER_ADD = {"name": "add", "description": "Open WebUI's own sum.", "parameters": PARAMETERS}


class PerRunGraphs:
    """LangGraph: a function makes the graph with the tools of its run."""

    name = "LangGraph"

    @asynccontextmanager
    async def agent(self, base_url: str, tools: Sequence[str], toolbox: Toolbox) -> AsyncIterator[AgentLike]:
        from callboard.frameworks.langgraph import to_langchain_tools

        async with langgraph_agents.chat_model(base_url) as model:

            def make(context: RunContext) -> Any:
                own = [toolbox.plain(name) for name in tools]
                return langgraph_agents.agent_of(model, *own, *to_langchain_tools(context, own))

            yield langgraph_agents.serve(make, agent_id="agent", openwebui_tools="attached")


WITH_CLIENTS_TOOLS: list[Any] = [
    *(PerRunGraphs() if one.name == "LangGraph" else one for one in FRAMEWORKS),
    agno_agents.crew(),
]
every_one_with_clients_tools = pytest.mark.parametrize(
    "framework", WITH_CLIENTS_TOOLS, ids=lambda framework: getattr(framework, "name", "Agno's teams")
)


async def serve_client(
    framework: Framework, folder: Path, value: Any, *, name: str = "weather", agrees: bool | None = None, **tool: Any
) -> tuple[list[Any], list[Body]]:
    """The events and the model's requests of a turn that calls `name`, whose run at the client returns `value`."""
    found: list[tuple[int, Event]] = []
    async with (
        OpenAIServer([calls((name, ADD[1])), says("Done.")]) as model,
        framework.agent(model.base_url, ["add"], Toolbox()) as agent,
        serving(folder, agent) as service,
    ):
        body = request(agent="agent", run_id="r", chat_id="c", openwebui_tools=[{**WEATHER, **tool}, OTHER_ADD])
        async with service.client.stream("POST", "/v1/runs", json=body) as response:
            async for seq, event in numbered(response):
                found.append((seq, event))
                if isinstance(event, ToolRequest | InputRequest):
                    given = value if isinstance(event, ToolRequest) else agrees
                    answer = {"request_id": event.request_id, "value": given}
                    assert (await service.client.post("/v1/runs/r/input", json=answer)).status_code == 202
    check(found)
    return [event for _, event in found], model.requests


@every_one_with_clients_tools
async def test_approved_call_of_clients_tool_runs_at_client(framework: Framework, tmp_path: Path) -> None:
    file = {"type": "image", "url": "/api/v1/files/1/content"}
    source = {"source": {"name": "almanac"}, "document": ["Sunny."], "metadata": [{"source": "almanac"}]}
    value = {"text": "Sunny.", "files": [file], "sources": [source]}
    events, requests = await serve_client(framework, tmp_path, value, agrees=True, asks_first=True)
    assert [event.type for event in events].count("input_request") == 1
    [asked] = [event for event in events if isinstance(event, ToolRequest)]
    assert (asked.name, asked.arguments) == ("weather", {"a": 2, "b": 3})
    ends = [event for event in events if isinstance(event, ToolCallComplete)]
    assert (ends[-1].tool_call_id, ends[-1].result) == (asked.tool_call_id, "Sunny.")
    assert [dict(file) for end in ends for file in end.files] == [file]
    assert [event.type for event in events].count("source") == 1
    assert requests[-1]["messages"][-1]["content"] == "Sunny."
    [weather] = [one["function"] for one in requests[0]["tools"] if one["function"]["name"] == "weather"]
    assert weather["parameters"]["properties"].keys() == {"a", "b"}


@every_one_with_clients_tools
@pytest.mark.parametrize(("agrees", "told"), [(True, "no rain today"), (False, "Not run: the user refused it")])
async def test_failed_or_refused_call_of_clients_tool_is_an_error_for_model(
    framework: Framework, agrees: bool, told: str, tmp_path: Path
) -> None:
    value = {"error": "no rain today"}
    events, requests = await serve_client(framework, tmp_path, value, agrees=agrees, asks_first=True)
    [end] = [event for event in events if isinstance(event, ToolCallError)]
    assert ("no rain today" in end.error) == agrees
    assert told in requests[-1]["messages"][-1]["content"]
    assert sum(isinstance(event, ToolRequest) for event in events) == agrees


@pytest.mark.parametrize("framework", WITH_CLIENTS_TOOLS[:-1], ids=lambda framework: framework.name)
async def test_own_tool_wins_over_clients_tool_of_the_same_name(framework: Framework, tmp_path: Path) -> None:
    events, requests = await serve_client(framework, tmp_path, {"text": "7"}, name="add")
    assert [event.result for event in events if isinstance(event, ToolCallComplete)] == ["5"]
    offered = {tool["function"]["name"]: tool["function"]["description"] for tool in requests[0]["tools"]}
    assert (sorted(offered), offered["add"]) == (["add", "weather"], "Adds two numbers.")
