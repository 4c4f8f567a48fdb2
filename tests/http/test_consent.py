"""Calls that need the user's consent, and questions of agents, over a real connection."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from callboard._agents import Agent, RunContext
from callboard.calls import tool
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.skills import Skill
from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    find_ending,
)
from tests.loop.conftest import wants
from tests.runs.promises import check
from tests.serving import ScriptedAgent, Service, numbered, request, serving


class Shop:
    """An agent with one tool that spends money, and what it bought."""

    def __init__(self, **agent_fields: Any) -> None:
        self.bought: list[tuple[str, int]] = []
        self.told: list[str] = []

        @tool(title="Buy things", requires_confirmation=lambda arguments: arguments["euros"] > 10)
        async def buy(thing: str, euros: int) -> str:
            """Buys something."""
            self.bought.append((thing, euros))
            return f"bought {thing}"

        def script(asked: ModelRequest) -> list[ModelDelta]:
            results = [message["content"] for message in asked.messages if message["role"] == "tool"]
            self.told += results
            if results:
                return [TextDelta("Done.")]
            return [
                wants("buy", {"thing": "a <b>piano</b>", "euros": "900"}, index=0, call_id="big"),
                wants("buy", {"thing": "a pen", "euros": 1}, index=1, call_id="small"),
            ]

        skill = Skill("shop", "Buys.", tools=(buy,))
        self.agent = Agent("shop", skills=(skill,), model=ScriptedModel(script), **agent_fields)


async def answered(service: Service, value: object, *, asked: bool = True, **fields: Any) -> list[Event]:
    """The events of a run whose every question gets `value`, once what need not wait has ended."""
    found: list[tuple[int, Event]] = []
    body = request(agent="shop", run_id="r", chat_id="c", **fields)
    async with service.client.stream("POST", "/v1/runs", json=body) as response:
        async for seq, event in numbered(response):
            found.append((seq, event))
            if isinstance(event, InputRequest):
                sent = {"request_id": event.request_id, "value": value, "asked": asked}
                assert (await service.client.post("/v1/runs/r/input", json=sent)).status_code == 202
    check(found)
    return [event for _, event in found]


async def test_an_approved_call_runs_with_the_arguments_that_were_shown(tmp_path: Path) -> None:
    shop = Shop()
    async with serving(tmp_path, shop.agent) as service:
        events = await answered(service, True)
    [asked] = [event for event in events if isinstance(event, InputRequest)]
    assert (asked.kind, asked.title, asked.tool_call_id) == ("confirmation", "Run Buy things (buy)?", "big")
    assert asked.message == "thing: a <b>piano</b>\neuros: 900"
    assert asked.timeout_seconds == 120
    assert sorted(shop.bought) == [("a <b>piano</b>", 900), ("a pen", 1)]
    steps = [event.data.message for event in events if isinstance(event, ToolStatus) and event.tool_call_id == "big"]
    assert steps[-2:] == ["waiting for approval", "approved"]


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        ({"value": False}, "denied", "the user refused it"),
        ({"value": None}, "not_answered", "no answer came in time"),
        ({"value": None, "asked": False}, "not_asked", "nobody could be asked"),
        ({"value": "yes"}, "not_answered", "neither yes nor no"),
        ({"value": 1}, "not_answered", "neither yes nor no"),
        ({"value": {"approved": True}}, "not_answered", "neither yes nor no"),
    ],
)
async def test_only_true_approves_and_only_false_refuses(
    tmp_path: Path, answer: dict[str, Any], code: str, told: str
) -> None:
    shop = Shop()
    async with serving(tmp_path, shop.agent) as service:
        events = await answered(service, **answer)
        stored = (await service.client.get("/v1/tool-calls/big?chat_id=c")).json()
        state = find_ending(code).state
        found = (await service.client.get(f"/v1/tool-calls?status={state}")).json()["tool_calls"]
        failed = (await service.client.get("/v1/tool-calls?status=error")).json()["tool_calls"]
        metrics = (await service.client.get("/metrics")).text
        pages = [
            (await service.client.get(f"/inspect/{page}")).text for page in ("tools", "calls", "call?id=big&chat=c")
        ]
    [denied] = [event for event in events if isinstance(event, ToolCallError)]
    assert (denied.tool_call_id, denied.code, denied.duration_ms) == ("big", code, None)
    assert shop.bought == [("a pen", 1)]
    assert told in shop.told[0]
    assert ("refused it" in shop.told[0].replace("nobody refused it", "")) == (code == "denied")
    assert (stored["error_code"], stored["status"], stored["duration_ms"]) == (code, state, None)
    assert [call["tool_call_id"] for call in found] == ["big"]
    assert failed == []
    assert "%)" not in pages[0], "it is no error of its tool"
    for page in pages[1:]:
        assert find_ending(code).label in page
        assert find_ending(code).words in page
        assert "failed</span>" not in page
    assert "Do not try again" not in pages[1], "that is meant for the model"
    assert f'callboard_tool_calls_total{{outcome="{code}",tool="buy"}} 1.0' in metrics
    assert 'callboard_tool_call_seconds_count{tool="buy"} 1.0' in metrics
    assert events[-1] == Done()


async def test_without_an_answer_in_time_nothing_runs(tmp_path: Path) -> None:
    shop = Shop()
    async with serving(tmp_path, shop.agent, input_timeout_seconds=0.05) as service:
        events = await service.events(request(agent="shop"))
    [denied] = [event for event in events if isinstance(event, ToolCallError)]
    assert denied.code == "not_answered"
    assert shop.bought == [("a pen", 1)]


async def test_the_time_of_a_call_leaves_out_the_time_in_which_its_user_is_asked(tmp_path: Path) -> None:
    """Two calls of an agent's own ask at once: nobody answers the first, and the run is stopped when it has ended."""
    waited_seconds = 0.5

    async def script(context: RunContext) -> AsyncIterator[Event]:
        def ask(call_id: str, seconds: float) -> InputRequest:
            return InputRequest(
                request_id=call_id, kind="input", title="When?", tool_call_id=call_id, timeout_seconds=seconds
            )

        questions = [ask("ends", waited_seconds), ask("is stopped", 60)]
        for question in questions:
            yield ToolCallStart(tool_call_id=question.request_id, tool_name="book")
        answers = [asyncio.create_task(context.ask(question)) for question in questions]
        assert await answers[0] is None
        yield ToolCallComplete(tool_call_id="ends", result="no answer")
        await answers[1]

    ends = []
    async with (
        serving(tmp_path, ScriptedAgent(script)) as service,
        service.client.stream("POST", "/v1/runs", json=request(run_id="r")) as response,
    ):
        async for _, event in numbered(response):
            if isinstance(event, ToolCallComplete | ToolCallError):
                ends.append(event)
            if isinstance(event, ToolCallComplete):
                await service.client.post("/v1/runs/r/cancel")
    assert [getattr(event, "code", "") for event in ends] == ["", "cancelled"]
    assert all((event.duration_ms or 0) < waited_seconds * 1000 / 2 for event in ends)


async def test_a_parallel_call_ends_while_the_other_waits_for_its_user(tmp_path: Path) -> None:
    shop = Shop()
    async with serving(tmp_path, shop.agent) as service:
        async with service.client.stream("POST", "/v1/runs", json=request(agent="shop", run_id="r")) as response:
            async for _, event in numbered(response):
                if isinstance(event, ToolCallComplete):
                    assert event.tool_call_id == "small"
                    await service.client.post("/v1/runs/r/cancel")
    assert shop.bought == [("a pen", 1)]


async def test_a_pattern_of_the_server_or_of_the_agent_makes_any_tool_ask(tmp_path: Path) -> None:
    for number, (fields, settings) in enumerate([({"confirm": ("b*",)}, {}), ({}, {"confirm_tools": ("buy",)})]):
        shop = Shop(**fields)
        async with serving(tmp_path / str(number), shop.agent, **settings) as service:
            events = await answered(service, False)
        assert {event.tool_call_id for event in events if isinstance(event, InputRequest)} == {"big", "small"}
        assert shop.bought == []


async def test_arguments_too_long_to_be_read_are_not_approved_by_anybody(tmp_path: Path) -> None:
    @tool(requires_confirmation=True)
    async def post(text: str) -> str:
        """Posts a text."""
        raise AssertionError("it ran")

    said: list[list[ModelDelta]] = [[wants("post", {"text": "x" * 9000}, call_id="long")], [TextDelta("I see.")]]
    answers = iter(said)
    skill = Skill("posts", "Posts.", tools=(post,))
    agent = Agent("poster", skills=(skill,), model=ScriptedModel(lambda _: next(answers)))
    async with serving(tmp_path, agent) as service:
        events = await service.events(request(agent="poster"))
    [denied] = [event for event in events if isinstance(event, ToolCallError)]
    assert "too long to be approved" in denied.error
    assert denied.code == "not_asked"
    assert not any(isinstance(event, InputRequest) for event in events)


async def test_a_call_with_the_longest_id_that_a_model_may_give_it_can_be_agreed_to(tmp_path: Path) -> None:
    posted: list[str] = []

    @tool(requires_confirmation=True)
    async def post(text: str) -> str:
        """Posts a text."""
        posted.append(text)
        return "posted"

    said: list[list[ModelDelta]] = [[wants("post", {"text": "hi"}, call_id="c" * 512)], [TextDelta("I see.")]]
    answers = iter(said)
    skill = Skill("posts", "Posts.", tools=(post,))
    agent = Agent("poster", skills=(skill,), model=ScriptedModel(lambda _: next(answers)))
    async with (
        serving(tmp_path, agent) as service,
        service.client.stream("POST", "/v1/runs", json=request(agent="poster", run_id="r")) as response,
    ):
        async for _, event in numbered(response):
            if isinstance(event, InputRequest):
                sent = {"request_id": event.request_id, "value": True}
                assert (await service.client.post("/v1/runs/r/input", json=sent)).status_code == 202
    assert posted == ["hi"]


async def test_an_agent_asks_for_a_text_and_an_answer_counts_once(tmp_path: Path) -> None:
    async def script(context: RunContext) -> AsyncIterator[Event]:
        question = InputRequest(request_id="q", kind="input", title="Your name?", timeout_seconds=30)
        yield Message(content=f"Hello {await context.ask(question)}.")

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        statuses = []
        events = []
        async with service.client.stream("POST", "/v1/runs", json=request(run_id="r")) as response:
            async for _, event in numbered(response):
                events.append(event)
                if isinstance(event, InputRequest):
                    for value in ("Ada", "Bob"):
                        sent = {"request_id": "q", "value": value}
                        statuses.append((await service.client.post("/v1/runs/r/input", json=sent)).status_code)
        unknown = await service.client.post("/v1/runs/r/input", json={"request_id": "never", "value": 1})
        gone = await service.client.post("/v1/runs/other/input", json={"request_id": "q", "value": 1})
    assert Message(content="Hello Ada.") in events
    assert statuses == [202, 404]
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_input")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "unknown_run")


async def test_cancel_ends_a_run_that_waits_for_approval(tmp_path: Path) -> None:
    shop = Shop(confirm=("*",))
    async with serving(tmp_path, shop.agent) as service:
        async with service.client.stream("POST", "/v1/runs", json=request(agent="shop", run_id="r")) as response:
            events = []
            async for _, event in numbered(response):
                events.append(event)
                if isinstance(event, InputRequest):
                    await service.client.post("/v1/runs/r/cancel")
        late = await service.client.post("/v1/runs/r/input", json={"request_id": "x", "value": True})
    assert events[-1] == Done(finish_reason="cancelled")
    assert shop.bought == []
    assert late.status_code == 404
