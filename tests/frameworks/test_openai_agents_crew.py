"""Agents of the OpenAI Agents SDK among others: handoffs, agents that are tools, contexts, sessions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import AgentLike, RunContext
from callboard_protocol import Error, Status, ToolCallArgsDelta
from tests.collecting import TESTS_RUN
from tests.fakes.openai_server import Answer, Body
from tests.frameworks.scenario import scenario
from tests.frameworks.scenarios import ADD, ADDED, calls, says
from tests.frameworks.stage import perform
from tests.frameworks.toolbox import Toolbox

if TESTS_RUN:
    from agents import Agent, Model, RunContextWrapper, RunHooks, Runner, SQLiteSession, Tool, function_tool, handoff

    from callboard.frameworks.openai_agents import from_openai_agents
    from tests.frameworks.openai_agents_stage import UNTRACED, Made, add, offered

    @function_tool
    async def greet(context: RunContextWrapper[Shop]) -> str:
        """Greets."""
        return f"Hello {context.context.customer}"


def served(agent: Agent[Any], **options: Any) -> AgentLike:
    return from_openai_agents(agent, agent_id="agent", run_config=UNTRACED, **options)


def desk(*tools: Any, as_handoff: Callable[[Agent[Any]], Any] = lambda agent: agent) -> Made:
    """An agent that hands off to an agent with these tools."""

    def make(model: Model) -> AgentLike:
        clerk = Agent("Clerk", model=model, tools=[*tools], instructions="You are the clerk.")
        return served(Agent("Desk", model=model, handoffs=[as_handoff(clerk)], instructions="You are the desk."))

    return Made(make)


async def test_a_handoff_is_a_status_and_the_next_agents_calls_are_shown(tmp_path: Path) -> None:
    passed_on = [calls(("transfer_to_clerk", "{}"), before="One moment."), calls(ADD), says("It is 5.")]
    seen, _ = await perform(desk(add), scenario(passed_on), tmp_path)
    assert seen.lines(in_order=True) == ["say One moment.", *ADDED, "say It is 5.", "done stop"]
    assert [event.content for event in seen.events if isinstance(event, Status)] == ["Desk hands off to Clerk"]
    assert [body["messages"][0]["content"] for body in seen.requests] == [
        "You are the desk.",
        "You are the clerk.",
        "You are the clerk.",
    ]
    assert seen.asked == seen.received


async def test_calls_after_handoff_are_not_replayed_to_first_agent(tmp_path: Path) -> None:
    passed_on = [calls(("transfer_to_clerk", "{}")), calls(ADD), says("It is 5."), says("As I said.")]
    seen, _ = await perform(desk(add), scenario(passed_on, turns=("go", "once more")), tmp_path)
    assert seen.sent() == ["user go", "assistant It is 5.", "user once more"]


async def test_custom_handoff_function_is_supported(tmp_path: Path) -> None:
    told: list[str] = []

    async def note(_: RunContextWrapper[Any]) -> None:
        told.append("handed over")

    made = desk(add, as_handoff=lambda clerk: handoff(clerk, on_handoff=note, tool_name_override="to_clerk"))
    passed_on = [calls(("to_clerk", "{}")), calls(ADD), says("It is 5.")]
    seen, _ = await perform(made, scenario(passed_on), tmp_path)
    assert seen.lines(in_order=True) == [*ADDED, "say It is 5.", "done stop"]
    assert told == ["handed over"]


async def test_endless_handoffs_are_stopped(tmp_path: Path) -> None:
    def make(model: Model) -> AgentLike:
        ping = Agent[Any]("Ping", model=model)
        ping.handoffs = [Agent("Pong", model=model, handoffs=[ping])]
        return served(ping)

    def hand_over(body: Body) -> Answer:
        return calls((offered(body)[0], "{}"), first=len(body["messages"]))

    seen, _ = await perform(Made(make), scenario(hand_over), tmp_path)
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert error.code == "agent_error"
    assert "hand off to each other without end" in error.message
    assert len(seen.requests) == 4


def asks_expert(call: tuple[str, str]) -> Callable[[Body], Answer]:
    """A leader that calls its expert once, and an expert that calls its tool once."""

    def script(body: Body) -> Answer:
        ended = body["messages"][-1]["role"] == "tool"
        if "ask_expert" in offered(body):
            return says("The expert says so.") if ended else calls(("ask_expert", '{"input": "Do it"}'))
        return says("It is done.") if ended else calls(call)

    return script


Ask = Callable[["Agent[Any]"], "Tool"]
"""Makes a tool that asks the expert."""


def consultation(ask: Ask, *tools: Any) -> Made:
    """A leader with a tool that asks an expert, who has these tools."""

    def make(model: Model) -> AgentLike:
        expert = Agent("Expert", model=model, tools=[*tools])
        return served(Agent("Leader", model=model, tools=[ask(expert)]))

    return Made(make)


def as_tool(expert: Agent[Any], **options: Any) -> Tool:
    return expert.as_tool("ask_expert", "Asks the expert.", **options)


def streamed(expert: Agent[Any]) -> Tool:
    """The same, and the author's code listens to the expert's events."""
    return as_tool(expert, on_stream=lambda _: None)


def by_hand(expert: Agent[Any]) -> Tool:
    async def ask_expert(input: str) -> str:  # noqa: A002 - as the SDK names it
        """Asks the expert."""
        return str((await Runner.run(expert, input, run_config=UNTRACED)).final_output)

    return function_tool(ask_expert)


def in_a_thread(expert: Agent[Any]) -> Tool:
    def ask_expert(input: str) -> str:  # noqa: A002 - as the SDK names it
        """Asks the expert."""
        return str(Runner.run_sync(expert, input, run_config=UNTRACED).final_output)

    return function_tool(ask_expert)


EVERY_ASK = pytest.mark.parametrize("ask", [as_tool, streamed, by_hand, in_a_thread])


@EVERY_ASK
async def test_calls_of_an_agent_that_is_a_tool_are_shown_below_it(ask: Ask, tmp_path: Path) -> None:
    seen, _ = await perform(consultation(ask, add), scenario(asks_expert(ADD)), tmp_path)
    assert seen.lines(in_order=True) == [
        *("call 1 ask_expert {'input': 'Do it'}", "call 2 in 1 add {'a': 2, 'b': 3}"),
        *("result 2 5", "result 1 It is done."),
        *("say The expert says so.", "done stop"),
    ]
    assert "add" not in {event.tool_name for event in seen.events if isinstance(event, ToolCallArgsDelta)}
    assert len(seen.asked) == 4
    assert seen.asked == seen.received


@EVERY_ASK
async def test_calls_of_an_agent_that_is_a_tool_are_counted(ask: Ask, tmp_path: Path) -> None:
    def script(body: Body) -> Answer:
        results = sum(message["role"] == "tool" for message in body["messages"])
        if "add" in offered(body):
            return calls(("add", f'{{"a": {results}, "b": 1}}'), first=results)
        return calls(("ask_expert", '{"input": "Do it"}')) if offered(body) else says("Enough.")

    seen, _ = await perform(consultation(ask, add), scenario(script), tmp_path)
    assert seen.lines(in_order=True)[-4:] == ["failed 4 limit", "result 1 Enough.", "say Enough.", "done max_turns"]


@EVERY_ASK
async def test_confirm_setting_applies_to_calls_of_agent_that_is_tool(ask: Ask, tmp_path: Path) -> None:
    toolbox = Toolbox()
    wipe = function_tool(toolbox.plain("wipe"))
    asked = scenario(asks_expert(("wipe", '{"disk": "C"}')), reply=False)
    seen, _ = await perform(consultation(ask, wipe), asked, tmp_path, confirm_tools=("wipe",))
    assert toolbox.wiped == []
    assert "ask 2 Run wipe?" in seen.lines(in_order=True)
    assert "failed 2 denied" in seen.lines(in_order=True)


async def test_hooks_of_an_agent_that_is_a_tool_are_called(tmp_path: Path) -> None:
    heard: list[object] = []

    class Listening(RunHooks[Any]):
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
            heard.append(result)

    seen, _ = await perform(
        consultation(partial(as_tool, hooks=Listening()), add), scenario(asks_expert(ADD)), tmp_path
    )
    assert heard == [5]
    assert "result 2 5" in seen.lines(in_order=True)


async def test_nested_agents_are_all_shown(tmp_path: Path) -> None:
    def make(model: Model) -> AgentLike:
        adder = Agent("Adder", model=model, tools=[add])
        expert = Agent("Expert", model=model, tools=[adder.as_tool("ask_adder", "Adds.")])
        return served(Agent("Leader", model=model, tools=[expert.as_tool("ask_expert", "Asks.")]))

    def script(body: Body) -> Answer:
        if body["messages"][-1]["role"] == "tool":
            return says("5.")
        [tool] = offered(body)
        return calls(ADD if tool == "add" else (tool, '{"input": "2 + 3"}'))

    seen, _ = await perform(Made(make), scenario(script), tmp_path)
    assert seen.lines(in_order=True) == [
        *("call 1 ask_expert {'input': '2 + 3'}", "call 2 in 1 ask_adder {'input': '2 + 3'}"),
        *("call 3 in 2 add {'a': 2, 'b': 3}", "result 3 5", "result 2 5.", "result 1 5.", "say 5.", "done stop"),
    ]


@pytest.mark.parametrize(
    ("reply", "end"), [(True, "result 2 C is empty"), (False, "failed 2 denied"), (None, "failed 2 not_answered")]
)
@pytest.mark.parametrize("ask", [as_tool, streamed])
async def test_a_tool_of_an_agent_that_is_a_tool_can_need_approval(
    ask: Ask, reply: bool | None, end: str, tmp_path: Path
) -> None:
    wiped = ["C"] if reply else []
    toolbox = Toolbox()
    wipe = function_tool(toolbox.plain("wipe"), needs_approval=True)
    asked = scenario(asks_expert(("wipe", '{"disk": "C"}')), reply=reply)
    seen, _ = await perform(consultation(ask, wipe), asked, tmp_path)
    assert toolbox.wiped == wiped
    seen_lines = seen.lines(in_order=True)
    assert seen_lines[:4] == [
        *("call 1 ask_expert {'input': 'Do it'}", "call 2 in 1 wipe {'disk': 'C'}"),
        *("status 2 pending waiting for approval", "ask 2 Run wipe?"),
    ]
    assert end in seen_lines
    assert seen_lines[-3:] == ["result 1 It is done.", "say The expert says so.", "done stop"]
    told = [message["content"] for body in seen.requests for message in body["messages"] if message["role"] == "tool"]
    assert ("C is empty" in told) == bool(wiped)
    assert any("Not run" in text for text in told) != bool(wiped)


async def test_an_agent_that_is_a_tool_can_ask_again_and_again(tmp_path: Path) -> None:
    def script(body: Body) -> Answer:
        results = sum(message["role"] == "tool" for message in body["messages"])
        if "ask_expert" in offered(body):
            return says("All gone.") if results else calls(("ask_expert", '{"input": "Wipe all"}'))
        if results == len("CD"):
            return says("Wiped.")
        return calls(("wipe", f'{{"disk": "{"CD"[results]}"}}'), first=results)

    toolbox = Toolbox()
    wipe = function_tool(toolbox.plain("wipe"), needs_approval=True)
    seen, _ = await perform(consultation(as_tool, wipe), scenario(script, reply=True), tmp_path)
    assert toolbox.wiped == ["C", "D"]
    assert seen.lines(in_order=True)[-3:] == ["result 1 Wiped.", "say All gone.", "done stop"]


@dataclass
class Shop:
    """The context of the tools."""

    customer: str


@pytest.mark.parametrize("is_async", [False, True])
async def test_tools_get_context_of_run(is_async: bool, tmp_path: Path) -> None:
    def shop(context: RunContext) -> Shop:
        assert context.user is not None
        return Shop(context.user.id)

    async def shop_later(context: RunContext) -> Shop:
        return shop(context)

    made = Made(
        lambda model: served(Agent("Shop", model=model, tools=[greet]), context=shop_later if is_async else shop)
    )
    seen, _ = await perform(made, scenario([calls(("greet", "{}")), says("There.")]), tmp_path)
    assert seen.lines(in_order=True)[1:] == ["result 1 Hello u1", "say There.", "done stop"]


@pytest.mark.parametrize("has_session", [False, True])
async def test_model_gets_chat_once_with_either_history(has_session: bool, tmp_path: Path) -> None:
    def session(context: RunContext) -> SQLiteSession:
        return SQLiteSession(context.chat_id or context.run_id, tmp_path / "sessions.db")

    options = {"session": session} if has_session else {}
    made = Made(lambda model: served(Agent("Adder", model=model, tools=[add]), **options))
    turns = scenario([calls(ADD), says("It is 5."), says("It was 5.")], turns=("go", "what was it?"))
    seen, _ = await perform(made, turns, tmp_path)
    assert seen.sent() == [
        *("user go", "assistant calls add {'a': 2, 'b': 3}", "tool 5", "assistant It is 5."),
        "user what was it?",
    ]
