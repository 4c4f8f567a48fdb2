"""What only Agno has: its sessions, generator tools, answers in several parts, questions, teams."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from callboard import report_status
from callboard.agents import AgentLike
from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    Parked,
    Rewind,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallError,
    Usage,
)
from tests.fakes.openai_server import Answer, Body, OpenAIServer
from tests.frameworks import stage
from tests.frameworks.agno_agents import Made, add, asks_another, crew, solo
from tests.frameworks.openai_agents_stage import offered
from tests.frameworks.scenario import ADD, calls, says, scenario
from tests.frameworks.stage import perform
from tests.frameworks.toolbox import Toolbox
from tests.serving import Service, numbered, request, serving


class Weather(BaseModel):
    """The type of a structured answer."""

    city: str


async def test_the_model_is_sent_no_fields_that_only_agno_knows(tmp_path: Path) -> None:
    from agno.tools import tool
    from agno.tools.function import Function

    def wipe(disk: str) -> str:
        """Wipes."""
        return disk

    tools = [
        tool(requires_confirmation=True, strict=False)(wipe),
        Function(name="far", description="Far.", external_execution=True, approval_type="required"),
        {"type": "function", "function": {"name": "own", "parameters": {"type": "object"}}, "cache": True},
    ]
    seen, _ = await perform(solo(*tools), scenario([says("Done.")]), tmp_path)
    sent = seen.requests[0]["tools"]
    assert {tool["function"]["name"] for tool in sent} == {"wipe", "far", "own"}
    assert {name for tool in sent for name in tool["function"]} <= {"name", "description", "parameters", "strict"}
    assert tools[2] in sent


async def test_agnos_own_limit_on_calls_is_shown(tmp_path: Path) -> None:
    two = calls(ADD, ("add", '{"a": 5, "b": 5}'))
    seen, _ = await perform(solo(add, tool_call_limit=1), scenario([two, says("Only one.")]), tmp_path)
    assert seen.lines(in_order=True) == [
        *("call 1 add {'a': 5, 'b': 5}", "failed 1 limit", "call 2 add {'a': 2, 'b': 3}", "result 2 5"),
        *("say Only one.", "done stop"),
    ]


async def test_run_cancelled_through_agno_is_cancelled(tmp_path: Path) -> None:
    from agno.agent import Agent
    from agno.run import RunContext

    async def give_up(run_context: RunContext) -> str:
        """Gives up."""
        await Agent.acancel_run(run_context.run_id)
        return "given up"

    seen, _ = await perform(solo(give_up), scenario([calls(("give_up", "{}")), says("Never said.")]), tmp_path)
    assert seen.lines(in_order=True)[-1] == "done cancelled"
    assert len(seen.requests) == 1


@pytest.mark.parametrize("kind", ["agent", "team"])
async def test_input_is_the_users_words_for_hooks_guards_knowledge_and_dependencies(kind: str, tmp_path: Path) -> None:
    from agno.guardrails import PIIDetectionGuardrail

    def shout(run_input: Any) -> None:
        run_input.input_content = run_input.input_content.upper()

    def look_up(query: str, **_: Any) -> list[dict[str, str]]:
        return [{"content": f"on {query}"}]

    features: list[tuple[dict[str, Any], str]] = [
        ({"pre_hooks": [PIIDetectionGuardrail()]}, "user mail it"),
        ({"pre_hooks": [PIIDetectionGuardrail(mask_pii=True)]}, "user mail it to *******"),
        ({"pre_hooks": [shout]}, "user MAIL IT"),
        ({"dependencies": {"shop": "north"}, "add_dependencies_to_context": True}, '"shop": "north"'),
    ]
    if kind == "agent":
        features.append(({"knowledge_retriever": look_up, "add_knowledge_to_context": True}, '"on mail it"'))
    for number, (fields, told) in enumerate(features):
        made = solo(**fields) if kind == "agent" else crew(add, **fields)
        words = "mail it to a@b.com" if "*" in told else "mail it"
        asked = scenario([says("Hello."), says("Done.")], turns=("hello", words))
        (folder := tmp_path / str(number)).mkdir()
        seen, _ = await perform(made, asked, folder)
        assert [line for line in seen.lines(in_order=True) if line.startswith("done")] == ["done stop"] * 2
        assert "assistant Hello." in seen.sent()
        assert told in seen.sent()[-1]


async def test_question_that_a_guard_refuses_is_not_shown_to_the_model_later(tmp_path: Path) -> None:
    from agno.guardrails import PIIDetectionGuardrail

    from callboard.frameworks.agno.stream import REFUSED_QUESTION

    asked = scenario([says("Hello.")], turns=("mail it to a@b.com", "hello"))
    seen, _ = await perform(solo(pre_hooks=[PIIDetectionGuardrail()]), asked, tmp_path)
    assert seen.lines(in_order=True) == ["error agent_error", "say Hello.", "done stop"]
    [body] = seen.requests
    assert [message["content"] for message in body["messages"]] == [f"{REFUSED_QUESTION}\n\nhello"]


async def test_reason_of_a_tool_that_stops_the_run_is_the_answer(tmp_path: Path) -> None:
    from agno.exceptions import StopAgentRun

    def book() -> str:
        """Books."""
        raise StopAgentRun("All sold out.")

    seen, _ = await perform(solo(book), scenario([calls(("book", "{}"), before="I try.")]), tmp_path)
    lines = ["say I try.", "call 1 book {}", "failed 1 tool_failed", "say All sold out.", "done stop"]
    assert seen.lines(in_order=True) == lines


# --- Answers in several parts ----------------------------------------------------------------------------------------


async def test_a_structured_answer_is_shown_once(tmp_path: Path) -> None:
    seen, _ = await perform(solo(output_schema=Weather), scenario([says('{"city": "Rome"}')]), tmp_path)
    assert seen.lines(in_order=True) == ['say {"city":"Rome"}', "done stop"]


async def test_draft_for_parser_model_is_taken_back(tmp_path: Path) -> None:
    made = Made(lambda model: solo(parser_model=model(), output_schema=Weather).make(model))
    seen, _ = await perform(made, scenario([says("It is Rome, of course."), says('{"city":"Rome"}')]), tmp_path)
    assert seen.left() == '{"city":"Rome"}'


async def test_a_draft_for_the_output_model_is_shown_as_a_thought(tmp_path: Path) -> None:
    made = Made(lambda model: solo(output_model=model()).make(model))
    seen, _ = await perform(made, scenario([says("A draft."), says("An answer.")]), tmp_path)
    assert seen.lines(in_order=True) == ["think A draft.", "say An answer.", "done stop"]
    assert len(seen.asked) == 2
    assert seen.asked == seen.received
    assert [event.total_tokens for event in seen.events if isinstance(event, Usage)] == [30]


async def test_a_thinking_tool_is_shown_as_a_thought_once(tmp_path: Path) -> None:
    from agno.tools.reasoning import ReasoningTools

    thoughts = [
        calls(("think", '{"title": "One", "thought": "first"}')),
        calls(("think", '{"title": "Two", "thought": "second"}')),
        says("Thought."),
    ]
    seen, _ = await perform(solo(ReasoningTools()), scenario(thoughts), tmp_path)
    lines = [line.split("\n")[0] for line in seen.lines(in_order=True) if line.startswith("think")]
    assert lines == ["think ## One", "think ## Two"]


# --- Generator tools -------------------------------------------------------------------------------------------------


async def test_generator_tools_report_status_and_own_events_and_end_with_their_items(tmp_path: Path) -> None:
    from agno.run.agent import CustomEvent

    @dataclass
    class Progress(CustomEvent):
        message: str | None = None
        progress: int | None = None
        step: str | None = None

    async def crawl(site: str) -> AsyncIterator[Any]:
        """Crawls."""
        report_status("processing", f"reading {site}", 10)
        yield "page 1, "
        yield Progress(message="half way", progress=50)
        yield Progress(step="nearly there")
        yield "page 2"

    script = scenario([calls(("crawl", '{"site": "x"}')), says("Done.")])
    seen, _ = await perform(solo(crawl), script, tmp_path)
    assert seen.lines(in_order=True) == [
        "call 1 crawl {'site': 'x'}",
        *(f"status 1 processing {line}" for line in ("reading x 10", "half way 50", '{"step":"nearly there"}')),
        *("result 1 page 1, page 2", "say Done.", "done stop"),
    ]
    assert seen.sent()[-1] == "tool page 1, page 2"


async def test_generator_tool_keeps_its_thread_and_its_context(tmp_path: Path) -> None:
    place: ContextVar[str] = ContextVar("place", default="lost")

    def walk() -> Iterator[str]:
        """Walks."""
        report_status("processing", "walking", 20)
        place.set("found")
        with closing(sqlite3.connect(":memory:")) as database:
            for (number,) in database.execute("SELECT 1 UNION SELECT 2"):
                yield f"{place.get()} {number};"

    seen, _ = await perform(solo(walk), scenario([calls(("walk", "{}")), says("Done.")]), tmp_path)
    assert {"status 1 processing walking 20", "result 1 found 1;found 2;"} < set(seen.lines(in_order=True))


@pytest.mark.parametrize("in_thread", [False, True])
async def test_generator_tool_that_raises_generator_exit_fails_without_ending_process(
    in_thread: bool, tmp_path: Path
) -> None:
    async def fail() -> AsyncIterator[str]:
        """Fails."""
        yield "first"
        raise GeneratorExit("enough")

    def fail_in_thread() -> Iterator[str]:
        """Fails."""
        yield "first"
        raise GeneratorExit("enough")

    fail_in_thread.__name__ = "fail"
    made = solo(fail_in_thread if in_thread else fail)
    seen, _ = await perform(made, scenario([calls(("fail", "{}")), says("It failed.")]), tmp_path)
    assert seen.lines(in_order=True) == ["call 1 fail {}", "failed 1 tool_failed", "say It failed.", "done stop"]
    assert seen.sent()[-1].startswith("tool Error: GeneratorExit")


@pytest.mark.parametrize("end", ["failed 1 timeout", "failed 1 cancelled"])
async def test_generator_tool_is_stopped_after_its_time_or_with_its_run(end: str, tmp_path: Path) -> None:
    stopped = asyncio.Event()

    async def hang() -> AsyncIterator[str]:
        """Hangs."""
        yield "first"
        report_status("processing", "hanging")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    is_late = end == "failed 1 timeout"
    script = scenario([calls(("hang", "{}")), says("It hangs.")], stop_at=None if is_late else "call")
    seen, _ = await perform(solo(hang), script, tmp_path, tool_timeout_seconds=0.5 if is_late else 60)
    assert end in seen.lines(in_order=True)
    assert stopped.is_set()


# --- Questions -------------------------------------------------------------------------------------------------------


async def test_agno_questions_reach_user_and_answers_reach_model(tmp_path: Path) -> None:
    from agno.tools.user_control_flow import UserControlFlowTools

    fields = '{"user_input_fields": [{"field_name": "age", "field_type": "int", "field_description": "Your age?"}]}'
    asked = scenario([calls(("get_user_input", fields)), says("So old!")], reply={"age": "42"})
    seen, _ = await perform(solo(UserControlFlowTools()), asked, tmp_path)
    assert seen.lines(in_order=True)[1:] == ["ask 1 ", 'result 1 {"age":42}', "say So old!", "done stop"]
    assert '"value": 42' in seen.sent()[-1]


@pytest.mark.parametrize(
    ("is_multiple", "reply", "chosen"),
    [
        (True, {"chosen": "2, 1"}, ["blue", "red"]),
        (True, {"chosen": ["blue"], "other": "green"}, ["blue", "green"]),
        (False, "green", ["green"]),
    ],
)
async def test_options_are_choices_and_answer_is_passed_on(
    tmp_path: Path, is_multiple: bool, reply: Any, chosen: list[str]
) -> None:
    from agno.tools.user_feedback import UserFeedbackTools

    options = [{"label": "red", "description": "as blood"}, {"label": "blue"}]
    asking = {"question": "Which?", "header": "Colour", "multi_select": is_multiple, "options": options}
    asked = scenario([calls(("ask_user", json.dumps({"questions": [asking]}))), says("Fine.")], reply=reply)
    seen, _ = await perform(solo(UserFeedbackTools()), asked, tmp_path)
    [question] = [event for event in seen.events if isinstance(event, InputRequest)]
    assert "red: as blood" in question.message
    told = json.dumps({"Which?": chosen}, separators=(",", ":"))
    assert f"result 1 {told}" in seen.lines(in_order=True)
    assert f'"selected": {json.dumps(chosen)}' in seen.sent()[-1]


INPUT = {"requires_user_input": True, "user_input_fields": ["b"]}


@pytest.mark.parametrize(
    ("declared", "reply", "told"),
    [
        (INPUT, {"b": "3"}, "5"),
        (INPUT, None, "no answer came in time"),
        ({"external_execution": True}, None, "to be run outside"),
    ],
)
async def test_paused_tool_gets_answer_or_model_gets_reason(
    declared: dict[str, Any], reply: Any, told: str, tmp_path: Path
) -> None:
    from agno.tools import tool

    waiting = tool(**declared)(Toolbox().plain("add"))
    asked = scenario([calls(("add", '{"a": 2}')), says("So be it.")], reply=reply)
    seen, _ = await perform(solo(waiting), asked, tmp_path)
    assert told in seen.sent()[-1]
    assert seen.lines(in_order=True)[-2:] == ["say So be it.", "done stop"]
    failed = [event for event in seen.events if isinstance(event, ToolCallError)]
    assert bool(failed) == (told != "5")


async def test_text_of_two_rounds_after_an_approval_is_shown_once(tmp_path: Path) -> None:
    from agno.tools import tool

    asking = tool(requires_confirmation=True)(add)
    travel = calls(("travel", '{"place": "Rome"}'), before="Then. ", first=1)
    script = [calls(ADD, before="First. "), travel, says("Done.")]
    seen, _ = await perform(solo(asking, Toolbox().plain("travel")), scenario(script, reply=True), tmp_path)
    assert (text_of(seen.events), Rewind() in seen.events) == ("First. Then. Done.", False)


# --- A call that waits while its run has ended -----------------------------------------------------------------------


async def allow_later(
    made: stage.Made, script: Any, tmp_path: Path, *, confirm_tools: list[str]
) -> tuple[list[Event], list[Body]]:
    """The events and requests of a run whose questions are not asked; another server gets the answer *Allow*.

    The run ends at the first server if no call waits.
    """
    toolbox = Toolbox()
    seen: list[Event] = []

    async def answer(service: Service, value: Any, **more: Any) -> None:
        asked = [event.request_id for event in seen if isinstance(event, InputRequest)]
        given = {"request_id": asked[-1], "value": value, **more}
        assert (await service.client.post("/v1/runs/r/input?user_id=ann", json=given)).status_code == 202

    async with OpenAIServer(script) as model:
        async with (
            made.agent(model.base_url, (), toolbox) as agent,
            serving(tmp_path, agent, confirm_tools=confirm_tools) as service,
        ):
            ids = {"agent": "agent", "run_id": "r", "chat_id": "c", "message_id": "m", "user": {"id": "ann"}}
            body = request(**ids, approvals_wait=True)
            async with service.client.stream("POST", "/v1/runs", json=body) as response:
                async for _, event in numbered(response):
                    seen.append(event)
                    if isinstance(event, InputRequest):
                        await answer(service, None, asked=False)
        if not isinstance(seen[-1], Parked):
            return seen, model.requests
        async with (
            made.agent(model.base_url, (), toolbox) as agent,
            serving(tmp_path, agent, confirm_tools=confirm_tools) as service,
        ):
            await answer(service, True)
            async with service.client.stream("GET", "/v1/runs/r/events?user_id=ann") as response:
                seen.clear()
                async for _, event in numbered(response):
                    seen.append(event)
                    if isinstance(event, InputRequest) and event.kind == "form":
                        await answer(service, {"b": 3})
    return seen, model.requests


def results_of(events: list[Event]) -> list[str]:
    return [event.result for event in events if isinstance(event, ToolCallComplete)]


def text_of(events: list[Event]) -> str:
    return "".join(event.content for event in events if isinstance(event, Message))


async def test_generator_beside_a_waiting_call_runs_once_before_it(tmp_path: Path) -> None:
    crawled: list[str] = []

    async def crawl(site: str) -> AsyncIterator[str]:
        """Crawls."""
        crawled.append(site)
        yield "page 1"

    script = [calls(("travel", '{"place": "Rome"}'), ("crawl", '{"site": "x"}')), says("Done.")]
    made = solo(crawl, Toolbox().plain("travel"))
    seen, requests = await allow_later(made, script, tmp_path, confirm_tools=["travel"])
    assert isinstance(seen[-1], Done)
    assert results_of(seen) == ["page 1", "in Rome"]
    assert crawled == ["x"]
    assert sorted(one["content"] for one in requests[1]["messages"] if one["role"] == "tool") == ["in Rome", "page 1"]


async def test_question_beside_a_waiting_call_is_asked_after_its_approval(tmp_path: Path) -> None:
    from agno.tools import tool

    asks = tool(**INPUT)(Toolbox().plain("add"))
    script = [calls(("add", '{"a": 2}'), ("travel", '{"place": "Rome"}')), says("Done.")]
    made = solo(asks, Toolbox().plain("travel"))
    seen, requests = await allow_later(made, script, tmp_path, confirm_tools=["travel"])
    assert (sorted(results_of(seen)), text_of(seen)) == (["5", "in Rome"], "Done.")
    assert sorted(one["content"] for one in requests[1]["messages"] if one["role"] == "tool") == ["5", "in Rome"]


async def test_reason_of_a_waiting_tool_that_stops_the_run_is_the_answer(tmp_path: Path) -> None:
    from agno.exceptions import StopAgentRun

    def book() -> str:
        """Books."""
        raise StopAgentRun("All sold out.")

    script = [calls(("book", "{}"), before="I try. ")]
    seen, _ = await allow_later(solo(book), script, tmp_path, confirm_tools=["book"])
    assert (text_of(seen), seen[-1]) == ("I try. All sold out.", Done())


@pytest.mark.parametrize("fields", [{"output_schema": Weather}, {"tool_call_limit": 1}])
async def test_call_waits_with_an_answer_that_is_not_streamed_and_below_agnos_limit(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    script = [calls(("travel", '{"place": "Rome"}'), ("travel", '{"place": "Oslo"}')), says('{"city": "Rome"}')]
    if "output_schema" in fields:
        script[0] = calls(("travel", '{"place": "Rome"}'))
    made = solo(Toolbox().plain("travel"), **fields)
    seen, _ = await allow_later(made, script, tmp_path, confirm_tools=["travel"])
    assert results_of(seen) == ["in Rome"]
    assert json.loads(text_of(seen)) == {"city": "Rome"}


async def test_hook_that_asks_the_agents_model_is_not_given_the_answer_with_the_waiting_call(tmp_path: Path) -> None:
    from agno.models.message import Message as Asked

    judged: list[Any] = []

    async def judge(run_input: Any, agent: Any) -> None:
        judged.append((await agent.model.aresponse(messages=[Asked(role="user", content="Rude?")])).content)

    travel = calls(("travel", '{"place": "Rome"}'))
    script = {"Rude?": says("No."), "hi": travel, "in Rome": says("Done.")}
    made = solo(Toolbox().plain("travel"), pre_hooks=[judge])
    seen, _ = await allow_later(
        made, lambda body: script[body["messages"][-1]["content"]], tmp_path, confirm_tools=["travel"]
    )
    assert (judged, results_of(seen), text_of(seen)) == (["No.", "No."], ["in Rome"], "Done.")


@pytest.mark.parametrize("confirm_tools", [[], ["travel"]])
async def test_leaders_call_waits_beside_a_delegation(confirm_tools: list[str], tmp_path: Path) -> None:
    from agno.tools import tool

    toolbox = Toolbox()
    travel = tool(requires_confirmation=not confirm_tools)(toolbox.plain("travel"))
    where = '{"place": "Rome"}'
    delegation = ("delegate_task_to_member", '{"member_id": "adder", "task": "2 + 3"}')

    def leader_asks(body: Body) -> Answer:
        answer = asks_member(ADD)(body)
        is_first = body["messages"][-1]["role"] != "tool" and "travel" in offered(body)
        return calls(("travel", where), delegation) if is_first else answer

    seen, requests = await allow_later(crew(add, tools=[travel]), leader_asks, tmp_path, confirm_tools=confirm_tools)
    assert results_of(seen) == ["5", "I say 5.", "in Rome"]
    assert (text_of(seen), len(requests)) == ("The crew says 5.", 4)


@pytest.mark.parametrize("is_beside_waiting", [False, True])
async def test_members_call_does_not_wait(is_beside_waiting: bool, tmp_path: Path) -> None:
    from agno.tools import tool

    toolbox = Toolbox()
    wipe, travel = (tool(requires_confirmation=True)(toolbox.plain(name)) for name in ("wipe", "travel"))
    asks = asks_member(("wipe", '{"disk": "C"}'))
    delegation = ("delegate_task_to_member", '{"member_id": "adder", "task": "wipe"}')

    def asks_both(body: Body) -> Answer:
        is_first = body["messages"][-1]["role"] != "tool" and "travel" in offered(body)
        return calls(("travel", '{"place": "Rome"}'), delegation) if is_first else asks(body)

    made = crew(wipe, tools=[travel] if is_beside_waiting else [])
    seen, _ = await allow_later(made, asks_both, tmp_path, confirm_tools=[])
    [error] = [event for event in seen if isinstance(event, ToolCallError)]
    assert (error.tool_name, toolbox.wiped) == ("wipe", [])
    assert results_of(seen) == ["I say 5.", *["in Rome"] * is_beside_waiting]
    assert text_of(seen) == "The crew says 5."


@pytest.mark.parametrize("way", ["awaits", "passes_events_on", "in_a_thread_streamed"])
async def test_approved_call_of_an_agent_in_a_tool_runs_also_if_its_run_is_streamed(way: str, tmp_path: Path) -> None:
    from agno.tools import tool

    toolbox = Toolbox()
    wipe = tool(requires_confirmation=True)(toolbox.plain("wipe"))

    def script(body: Body) -> Answer:
        ended = body["messages"][-1]["role"] == "tool"
        if "wipe" in offered(body):
            return says("Wiped.") if ended else calls(("wipe", '{"disk": "C"}'))
        return says("Done.") if ended else calls(("ask_other", '{"task": "wipe"}'))

    seen, _ = await perform(asks_another(wipe, way=way), scenario(script, reply=True), tmp_path)
    assert toolbox.wiped == ["C"]
    assert {"ask 2 Run wipe?", "result 2 C is empty", "result 1 Wiped."} < set(seen.lines(in_order=True))


# --- Teams: the members' calls among the leader's --------------------------------------------------------------------


def asks_member(member_tool: tuple[str, str]) -> Callable[[Body], Answer]:
    """A leader that delegates once, and a member that calls its tool once."""

    def script(body: Body) -> Answer:
        ended = body["messages"][-1]["role"] == "tool"
        if "delegate_task_to_member" in offered(body):
            delegation = ("delegate_task_to_member", '{"member_id": "adder", "task": "2 + 3"}')
            return says("The crew says 5.") if ended else calls(delegation)
        return says("I say 5.") if ended else calls(member_tool)

    return script


async def test_member_calls_are_shown_below_leader_call_without_member_text(tmp_path: Path) -> None:
    seen, _ = await perform(crew(add), scenario(asks_member(ADD)), tmp_path)
    assert seen.lines(in_order=True) == [
        "call 1 delegate_task_to_member {'member_id': 'adder', 'task': '2 + 3'}",
        *("call 2 in 1 add {'a': 2, 'b': 3}", "result 2 5"),
        *("result 1 I say 5.", "say The crew says 5.", "done stop"),
    ]
    assert "add" not in {event.tool_name for event in seen.events if isinstance(event, ToolCallArgsDelta)}
    assert len(seen.asked) == 4
    assert seen.asked == seen.received


async def test_a_members_tool_may_pass_on_the_events_of_a_workflow(tmp_path: Path) -> None:
    def make(model: Any) -> AgentLike:
        from agno.agent import Agent
        from agno.workflow import Step, Workflow

        worker = Agent(id="worker", name="Worker", model=model(), telemetry=False)
        flow = Workflow(name="flow", steps=[Step(name="work", agent=worker)], telemetry=False)

        async def run_flow(task: str) -> AsyncIterator[Any]:
            """Runs the flow."""
            async for event in flow.arun(task, stream=True, stream_events=True):
                yield event

        return crew(run_flow).make(model)

    def script(body: Body) -> Answer:
        return asks_member(("run_flow", '{"task": "x"}'))(body) if body.get("tools") else says("Worked.")

    seen, _ = await perform(Made(make), scenario(script), tmp_path)
    lines = seen.lines(in_order=True)
    assert "result 2 Worked." in lines
    assert lines[-2:] == ["say The crew says 5.", "done stop"]
    assert seen.left() == "The crew says 5."


async def test_delegation_has_no_timeout(tmp_path: Path) -> None:
    # The delegation has begun before the member's tool, so the same limit would end it first.
    made = crew(Toolbox().plain("wait"))
    seen, _ = await perform(made, scenario(asks_member(("wait", "{}"))), tmp_path, tool_timeout_seconds=0.5)
    assert seen.lines(in_order=True)[3:] == [
        *("failed 2 timeout", "result 1 I say 5.", "say The crew says 5.", "done stop"),
    ]


async def test_leader_gets_additional_input_before_whole_chat(tmp_path: Path) -> None:
    from agno.models.message import Message

    examples = [Message(role="user", content="1 + 1"), Message(role="assistant", content="It is 2.")]
    script = [says("Hello."), says("Again.")]
    seen, _ = await perform(crew(add, additional_input=examples), scenario(script, turns=("go", "once more")), tmp_path)
    assert seen.sent() == ["user 1 + 1", "assistant It is 2.", "user go", "assistant Hello.", "user once more"]


async def test_a_members_tool_can_need_approval(tmp_path: Path) -> None:
    from agno.tools import tool

    toolbox = Toolbox()
    wipe = tool(requires_confirmation=True)(toolbox.plain("wipe"))
    seen, _ = await perform(crew(wipe), scenario(asks_member(("wipe", '{"disk": "C"}')), reply=True), tmp_path)
    assert toolbox.wiped == ["C"]
    lines = seen.lines(in_order=True)
    assert {"ask 2 Run wipe?", "result 2 C is empty"} < set(lines)
    assert lines[-2:] == ["say The crew says 5.", "done stop"]


async def test_direct_answer_of_member_is_shown_once(tmp_path: Path) -> None:
    seen, _ = await perform(crew(add, respond_directly=True), scenario(asks_member(ADD)), tmp_path)
    said = [line for line in seen.lines(in_order=True) if line.startswith("say")]
    assert said == ["say I say 5."]
