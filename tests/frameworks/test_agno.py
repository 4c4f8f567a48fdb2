"""Features of Agno only: its own sessions, generator tools, answers in several parts."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from callboard import report_status
from callboard.agents import AgentLike
from callboard_protocol import Error, Usage
from tests.collecting import TESTS_RUN
from tests.frameworks.scenario import ADD, calls, says, scenario
from tests.frameworks.stage import CHAT_ID, perform

if TESTS_RUN:
    from agno.agent import Agent
    from agno.db.in_memory import InMemoryDb
    from agno.exceptions import CheckTrigger, InputCheckError
    from agno.models.openai import OpenAIChat
    from agno.run import RunContext as AgnoRunContext
    from agno.team import Team
    from agno.tools import tool as agno_tool
    from agno.tools.function import Function
    from agno.tools.reasoning import ReasoningTools

    from callboard.frameworks.agno import from_agno
    from tests.frameworks.agno_agents import Made, add, solo


class Weather(BaseModel):
    """The type of a structured answer."""

    city: str


def with_memory(history: str) -> Made:
    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        db = InMemoryDb()  # type: ignore[no-untyped-call] # Agno's has no types
        agent = Agent(id="agent", model=model(), tools=[add], db=db, add_history_to_context=True, telemetry=False)
        return from_agno(agent, history="own" if history == "own" else "callboard")

    return Made(make)


@pytest.mark.parametrize("history", ["own", "callboard"])
async def test_model_gets_chat_once_with_either_history(history: str, tmp_path: Path) -> None:
    turns = scenario([calls(ADD), says("It is 5."), says("It was 5.")], turns=("go", "what was it?"))
    seen, _ = await perform(with_memory(history), turns, tmp_path)
    assert seen.sent() == [
        *("user go", "assistant calls add {'a': 2, 'b': 3}", "tool 5", "assistant It is 5."),
        "user what was it?",
    ]


async def test_draft_for_parser_model_is_taken_back(tmp_path: Path) -> None:
    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        agent = Agent(id="agent", model=model(), parser_model=model(), output_schema=Weather, telemetry=False)
        return from_agno(agent)

    seen, _ = await perform(Made(make), scenario([says("It is Rome, of course."), says('{"city":"Rome"}')]), tmp_path)
    assert seen.left() == '{"city":"Rome"}'


async def test_generator_tool_reports_status_and_ends_with_its_last_item(tmp_path: Path) -> None:
    async def crawl(site: str) -> AsyncIterator[str]:
        """Crawls."""
        report_status("processing", f"reading {site}", 10)
        yield "page 1, "
        yield "page 2"

    def walk(site: str) -> Any:
        """Walks."""
        report_status("processing", f"walking {site}", 20)
        yield "step"

    wanted = calls(("crawl", '{"site": "x"}'), ("walk", '{"site": "y"}'))
    seen, _ = await perform(solo(crawl, walk), scenario([wanted, says("Done.")]), tmp_path)
    assert seen.lines(in_order=False) == [
        *("call 1 crawl {'site': 'x'}", "call 2 walk {'site': 'y'}"),
        *("status 1 processing reading x 10", "status 2 processing walking y 20"),
        *("result 1 page 1, page 2", "result 2 step", "say Done.", "done stop"),
    ]


async def test_generator_tool_keeps_its_thread_and_its_context(tmp_path: Path) -> None:
    place: ContextVar[str] = ContextVar("place", default="lost")

    def walk() -> Iterator[str]:
        """Walks."""
        place.set("found")
        with closing(sqlite3.connect(":memory:")) as database:
            for (number,) in database.execute("SELECT 1 UNION SELECT 2"):
                yield f"{place.get()} {number};"

    seen, _ = await perform(solo(walk), scenario([calls(("walk", "{}")), says("Done.")]), tmp_path)
    assert "result 1 found 1;found 2;" in seen.lines(in_order=True)


async def test_the_model_is_sent_no_fields_that_only_agno_knows(tmp_path: Path) -> None:
    def wipe(disk: str) -> str:
        """Wipes."""
        return disk

    tools = [
        agno_tool(requires_confirmation=True, strict=False)(wipe),
        Function(name="far", description="Far.", external_execution=True, approval_type="required"),
        {"type": "function", "function": {"name": "own", "parameters": {"type": "object"}}, "cache": True},
    ]
    seen, _ = await perform(solo(*tools), scenario([says("Done.")]), tmp_path)
    sent = seen.requests[0]["tools"]
    assert {tool["function"]["name"] for tool in sent} == {"wipe", "far", "own"}
    assert {name for tool in sent for name in tool["function"]} <= {"name", "description", "parameters", "strict"}
    assert tools[2] in sent


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("name", ["fail", "fail_in_thread", "fail_later", "fail_later_in_thread"])
async def test_tool_that_raises_system_exit_fails_without_ending_process(
    raised: type[BaseException], name: str, tmp_path: Path
) -> None:
    async def fail() -> str:
        """Fails."""
        raise raised("enough")

    def fail_in_thread() -> str:
        """Fails."""
        raise raised("enough")

    async def fail_later() -> AsyncIterator[str]:
        """Fails."""
        yield "first"
        raise raised("enough")

    def fail_later_in_thread() -> Iterator[str]:
        """Fails."""
        yield "first"
        raise raised("enough")

    tools = {tool.__name__: tool for tool in (fail, fail_in_thread, fail_later, fail_later_in_thread)}
    seen, _ = await perform(solo(tools[name]), scenario([calls((name, "{}")), says("It failed.")]), tmp_path)
    assert seen.lines(in_order=True) == [f"call 1 {name} {{}}", "failed 1 tool_failed", "say It failed.", "done stop"]
    assert seen.sent()[-1].startswith(f"tool Error: {raised.__name__}")


async def test_generator_tool_has_timeout(tmp_path: Path) -> None:
    async def hang() -> AsyncIterator[str]:
        """Hangs."""
        yield "first"
        await asyncio.Event().wait()

    script = scenario([calls(("hang", "{}")), says("It hangs.")])
    seen, _ = await perform(solo(hang), script, tmp_path, tool_timeout_seconds=0.5)
    assert seen.lines(in_order=True) == ["call 1 hang {}", "failed 1 timeout", "say It hangs.", "done stop"]
    assert seen.sent()[-1].startswith("tool Error: hang did not end within 0.5 s")


async def test_stopping_the_run_stops_its_generator_tools(tmp_path: Path) -> None:
    stopped = asyncio.Event()

    async def hang() -> AsyncIterator[str]:
        """Hangs."""
        yield "first"
        report_status("processing", "hanging")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    await perform(solo(hang), scenario([calls(("hang", "{}"))], stop_at="call"), tmp_path)
    assert stopped.is_set()


async def test_a_structured_answer_is_shown_once(tmp_path: Path) -> None:
    seen, _ = await perform(solo(output_schema=Weather), scenario([says('{"city": "Rome"}')]), tmp_path)
    assert seen.lines(in_order=True) == ['say {"city":"Rome"}', "done stop"]


async def test_a_draft_for_the_output_model_is_shown_as_a_thought(tmp_path: Path) -> None:
    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        return from_agno(Agent(id="agent", model=model(), output_model=model(), telemetry=False))

    seen, _ = await perform(Made(make), scenario([says("A draft."), says("An answer.")]), tmp_path)
    assert seen.lines(in_order=True) == ["think A draft.", "say An answer.", "done stop"]
    assert len(seen.asked) == 2
    assert seen.asked == seen.received
    assert [event.total_tokens for event in seen.events if isinstance(event, Usage)] == [30]


async def test_a_thinking_tool_is_shown_as_a_thought_once(tmp_path: Path) -> None:
    thoughts = [
        calls(("think", '{"title": "One", "thought": "first"}')),
        calls(("think", '{"title": "Two", "thought": "second"}')),
        says("Thought."),
    ]
    seen, _ = await perform(solo(ReasoningTools()), scenario(thoughts), tmp_path)
    lines = [line.split("\n")[0] for line in seen.lines(in_order=True) if line.startswith("think")]
    assert lines == ["think ## One", "think ## Two"]


async def test_agnos_own_limit_on_calls_is_shown(tmp_path: Path) -> None:
    two = calls(ADD, ("add", '{"a": 5, "b": 5}'))
    seen, _ = await perform(solo(add, tool_call_limit=1), scenario([two, says("Only one.")]), tmp_path)
    assert seen.lines(in_order=True) == [
        *("call 1 add {'a': 5, 'b': 5}", "failed 1 limit", "call 2 add {'a': 2, 'b': 3}", "result 2 5"),
        *("say Only one.", "done stop"),
    ]


async def test_run_cancelled_through_agno_is_cancelled(tmp_path: Path) -> None:
    async def give_up(run_context: AgnoRunContext) -> str:
        """Gives up."""
        await Agent.acancel_run(run_context.run_id)
        return "given up"

    seen, _ = await perform(solo(give_up), scenario([calls(("give_up", "{}")), says("Never said.")]), tmp_path)
    assert seen.lines(in_order=True)[-1] == "done cancelled"
    assert len(seen.requests) == 1


async def test_invalid_json_arguments_are_replayed_as_empty_object(tmp_path: Path) -> None:
    seen, _ = await perform(solo(add), scenario([calls(("add", '{"a": oops')), says("No.")]), tmp_path)
    assert seen.sent()[1] == "assistant calls add {}"
    assert "decoding function arguments" in seen.sent()[2]


async def test_refusal_by_agno_ends_run_with_reason(tmp_path: Path) -> None:
    def forbid(run_input: Any) -> None:
        raise InputCheckError("not today", check_trigger=CheckTrigger.INPUT_NOT_ALLOWED)

    seen, _ = await perform(solo(pre_hooks=[forbid]), scenario([]), tmp_path)
    error = seen.events[-1]
    assert isinstance(error, Error)
    assert error.code == "agent_error"
    assert "not today" in error.message


@pytest.mark.parametrize("team", [False, True])
async def test_tools_find_the_user_and_the_chat_among_their_dependencies_beside_the_agents_own(
    team: bool, tmp_path: Path
) -> None:
    found: list[dict[str, Any]] = []

    def look(run_context: AgnoRunContext) -> str:
        """Looks who asks."""
        found.append(dict(run_context.dependencies or {}))
        return "seen"

    def make(model: Callable[[], OpenAIChat]) -> AgentLike:
        fields: dict[str, Any] = {
            "id": "agent", "model": model(), "tools": [look], "dependencies": {"shop": "north"}, "telemetry": False
        }  # fmt: skip
        return from_agno(Team(members=[], **fields) if team else Agent(**fields))

    await perform(Made(make), scenario([calls(("look", "{}")), says("Seen.")]), tmp_path)
    [given] = found
    assert {key: given[key] for key in ("shop", "user_id", "chat_id")} == {
        "shop": "north",
        "user_id": "u1",
        "chat_id": CHAT_ID,
    }
