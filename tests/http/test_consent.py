"""Calls that need the user's consent, and questions of agents, over a real connection."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from callboard.agents import Agent, RunContext
from callboard.calls import ToolContext, tool
from callboard.calls.forms import MAX_TRIES, UNFIT
from callboard.errors import ToolError
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.skills import Skill
from callboard_protocol import Done, Event, InputRequest, Message, ToolCallComplete, ToolCallError, ToolStatus
from callboard_protocol.endings import find_ending
from tests.loop.conftest import wants
from tests.runs.promises import check
from tests.serving import ScriptedAgent, Service, numbered, request, serving


class Shop:
    """An agent with one tool that spends money, and what it bought."""

    def __init__(self, **agent_fields: Any) -> None:
        self.bought: list[tuple[str, int]] = []
        self.told: list[str] = []
        self.asked: list[ModelRequest] = []

        @tool(title="Buy things", requires_confirmation=lambda arguments: arguments["euros"] > 10)
        async def buy(thing: str, euros: int) -> str:
            """Buys something."""
            if thing == "sold out":
                raise ToolError(f"{thing} is sold out")
            self.bought.append((thing, euros))
            return f"bought {thing}"

        def script(request: ModelRequest) -> list[ModelDelta]:
            self.asked.append(request)
            results = [message["content"] for message in request.messages if message["role"] == "tool"]
            self.told += results
            if results:
                return [TextDelta("Done.")]
            return [
                wants("buy", {"thing": "a <b>piano</b>", "euros": "900"}, index=0, call_id="big"),
                wants("buy", {"thing": "a pen", "euros": 1}, index=1, call_id="small"),
            ]

        skill = Skill("shop", "Buys.", tools=(buy,))
        self.agent = Agent("shop", skills=(skill,), model=ScriptedModel(script), **agent_fields)


async def answered(service: Service, answer: Callable[[], dict[str, Any]], **fields: Any) -> list[Event]:
    """The events of a run whose every question gets what `answer` returns then."""
    found: list[tuple[int, Event]] = []
    body = {**request(agent="shop", run_id="r", chat_id="c"), **fields}
    async with service.client.stream("POST", "/v1/runs", json=body) as response:
        async for seq, event in numbered(response):
            found.append((seq, event))
            if isinstance(event, InputRequest):
                sent = {"request_id": event.request_id, **answer()}
                assert (await service.client.post("/v1/runs/r/input", json=sent)).status_code == 202
    check(found)
    return [event for _, event in found]


async def test_an_approved_call_runs_with_the_arguments_that_were_shown(tmp_path: Path) -> None:
    shop = Shop()
    async with serving(tmp_path, shop.agent) as service:
        events = await answered(service, lambda: {"value": True})
        state = (await service.client.get("/v1/runs/r")).json()
    assert state["answered"] == state["approved"] == ["approve:big"]
    [asked] = [event for event in events if isinstance(event, InputRequest)]
    assert (asked.kind, asked.title, asked.tool_call_id) == ("confirmation", "Buy things?", "big")
    assert asked.message == "thing: a <b>piano</b>\neuros: 900"
    assert asked.timeout_seconds == 120
    assert sorted(shop.bought) == [("a <b>piano</b>", 900), ("a pen", 1)]
    steps = [event.data.message for event in events if isinstance(event, ToolStatus) and event.tool_call_id == "big"]
    assert steps[-2:] == ["waiting for approval", "approved"]


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        ({"value": False}, "denied", "the user refused it"),
        ({"value": {"words": "Ask <b>Ada</b> first"}}, "denied", "instead:\n\nAsk <b>Ada</b> first"),
        ({"value": {"words": "No.", "arguments": {"thing": "x", "euros": 1}}}, "denied", "instead:\n\nNo."),
        ({"value": {"words": " "}}, "denied", "the user refused it. Do not try again"),
        ({"value": None}, "not_answered", "no answer came in time"),
        ({"value": None, "asked": False}, "not_asked", "the user could not be asked"),
        ({"value": 1}, "not_answered", "neither yes nor no"),
        ({"value": {"words": 5}}, "not_answered", "neither yes nor no"),
    ],
)
async def test_only_true_approves_and_only_false_or_words_refuse(
    tmp_path: Path, answer: dict[str, Any], code: str, told: str
) -> None:
    shop = Shop()
    async with serving(tmp_path, shop.agent) as service:
        events = await answered(service, lambda: answer)
        assert (await service.client.get("/v1/runs/r")).json()["approved"] == []
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
    assert ("refused it" in shop.told[0].replace("not refused it", "")) == (code == "denied")
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
            events = await answered(service, lambda: {"value": False})
        assert {event.tool_call_id for event in events if isinstance(event, InputRequest)} == {"big", "small"}
        assert shop.bought == []


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


CHANGED = {"thing": "a guitar", "euros": 90}


async def test_user_changes_the_arguments_before_the_call_runs(tmp_path: Path) -> None:
    shop = Shop()
    with capture_logs() as lines:
        async with serving(tmp_path, shop.agent) as service:
            events = await answered(service, lambda: {"value": {"arguments": {"thing": "a guitar", "euros": "90"}}})
            stored = (await service.client.get("/v1/tool-calls/big?chat_id=c")).json()
            page = (await service.client.get("/inspect/call?id=big&chat=c")).text
    [asked] = [event for event in events if isinstance(event, InputRequest)]
    defaults = {name: field["default"] for name, field in asked.form["properties"].items()}
    assert defaults == {"thing": "a <b>piano</b>", "euros": 900}
    assert sorted(shop.bought) == [("a guitar", 90), ("a pen", 1)]
    [step] = [event.data for event in events if isinstance(event, ToolStatus) and event.data.status == "changed"]
    assert (step.message, step.arguments) == ("arguments changed by the user", CHANGED)
    assert json.loads(stored["arguments"]) == CHANGED
    note, result = stored["result"].split("\n\n")
    assert (note.split("{")[0], result) == (
        "The user changed the arguments of this call before they allowed it. It ran with ",
        "bought a guitar",
    )
    assert shop.told[0] == stored["result"]
    [call, _] = next(message["tool_calls"] for message in shop.asked[1].messages if message.get("tool_calls"))
    assert json.loads(call["function"]["arguments"]) == CHANGED
    assert "arguments changed by the user" in page
    logged = [line for line in lines if line.get("logger") == "audit" and line["tool_call_id"] == "big"]
    assert [line.get("decision") for line in logged] == [None, "changed", "allowed"]
    assert [json.loads(line["arguments"]) for line in logged[:2]] == [
        {"thing": "a <b>piano</b>", "euros": 900},
        CHANGED,
    ]


async def test_model_is_not_told_a_secret_that_the_user_has_written_into_the_arguments(tmp_path: Path) -> None:
    shop = Shop()
    async with serving(tmp_path, shop.agent, api_key="shop-key-1234") as service:
        service.client.headers["Authorization"] = "Bearer shop-key-1234"
        await answered(service, lambda: {"value": {"arguments": CHANGED | {"thing": "shop-key-1234"}}})
    assert ("shop-key-1234", 90) in shop.bought
    assert "shop-key-1234" not in str(shop.asked[1].messages)


async def test_changes_that_never_fit_do_not_count_as_no_answer(tmp_path: Path) -> None:
    shop = Shop()
    async with serving(tmp_path, shop.agent) as service:
        events = await answered(service, lambda: {"value": {"arguments": {}}})
    [denied] = [event for event in events if isinstance(event, ToolCallError)]
    assert denied.code == "not_answered"
    assert denied.error.startswith(f"{UNFIT}: ")
    assert shop.bought == [("a pen", 1)]


# ---------------------------------------------------------------- questions that a tool asks in the middle of its call

CABIN = {
    "type": "object",
    "properties": {"cabin": {"type": "string", "enum": ["economy", "business"]}, "bags": {"type": "integer"}},
    "required": ["cabin"],
}


def travel(**question: Any) -> Agent:
    """An agent whose only tool asks the question, and returns the answer."""

    @tool(timeout_seconds=question.pop("limit", None))
    async def book(context: ToolContext) -> str:
        """Books a flight."""
        return repr(await context.ask("Which flight?", **question))

    def script(asked: ModelRequest) -> list[ModelDelta]:
        if any(message["role"] == "tool" for message in asked.messages):
            return [TextDelta("Done.")]
        return [wants("book", {}, call_id="c1")]

    return Agent("travel", skills=(Skill("travel", "Travels.", tools=(book,)),), model=ScriptedModel(script))


async def play(service: Service, *answers: dict[str, Any]) -> list[Event]:
    """Return the events of a run whose questions get these answers in turn."""
    left = iter(answers)
    return await answered(service, lambda: next(left), agent="travel")


def questions(events: list[Event]) -> list[InputRequest]:
    return [event for event in events if isinstance(event, InputRequest)]


def result(events: list[Event]) -> str:
    [end] = [event for event in events if isinstance(event, ToolCallComplete)]
    return end.result


async def test_form_is_sent_with_its_schema_and_its_answer_is_checked(tmp_path: Path) -> None:
    async with serving(tmp_path, travel(schema=CABIN, title="Travel")) as service:
        events = await play(service, {"value": {"cabin": "first"}}, {"value": {"cabin": "business", "bags": "2"}})
        stored = await service.client.get("/v1/tool-calls/c1?chat_id=c")
    first, second = questions(events)
    assert (first.kind, first.title, first.message, first.tool_call_id) == ("form", "Travel", "Which flight?", "c1")
    assert first.model_dump()["schema"]["properties"]["bags"] == {"type": "integer"}
    assert second.message == "The answer does not fit: cabin: it is not one of the choices\n\nWhich flight?"
    assert result(events) == "{'cabin': 'business', 'bags': 2}"
    steps = [(event.data.status, event.data.message) for event in events if isinstance(event, ToolStatus)]
    assert steps == [("asking", "Travel"), ("asking", "Travel"), ("processing", "answered")]
    assert stored.json()["status"] == "complete"


async def test_a_tool_whose_question_gets_no_fitting_answer_fails_with_the_reason(tmp_path: Path) -> None:
    async with serving(tmp_path, travel(schema=CABIN)) as service:
        events = await play(service, *[{"value": {"cabin": "first"}}] * MAX_TRIES)
    [failed] = [event for event in events if isinstance(event, ToolCallError)]
    # Not `not_answered`, which says that the tool has not run.
    assert failed.code == "tool_failed"
    assert failed.error.startswith(f"{UNFIT}: cabin: it is not one of the choices")
    # A tool may catch the error and go on.
    last = [event.data for event in events if isinstance(event, ToolStatus)][-1]
    assert (last.status, last.message) == ("processing", "no answer")


@pytest.mark.parametrize("url", ["javascript:alert(1)", "https://a b"])
async def test_address_that_is_no_web_address_is_not_shown(tmp_path: Path, url: str) -> None:
    async with serving(tmp_path, travel(url=url)) as service:
        events = await play(service)
    assert questions(events) == []
    assert [event.code for event in events if isinstance(event, ToolCallError)] == ["tool_failed"]


async def test_nobody_is_asked_over_the_openai_routes(tmp_path: Path) -> None:
    async with serving(tmp_path, travel(schema=CABIN)) as service:
        answer = await service.client.post("/v1/responses", json={"model": "travel", "input": "Book."})
    assert answer.json()["output"][0]["output"] == "None"
