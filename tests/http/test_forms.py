"""Questions that a tool asks in the middle of its call: forms, choices and addresses, over a real connection."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from callboard.agents import Agent
from callboard.calls import ToolContext, tool
from callboard.models import ModelDelta, ModelRequest, ScriptedModel, TextDelta
from callboard.skills import Skill
from callboard_protocol import Event, InputRequest, ToolCallComplete, ToolCallError, ToolStatus
from tests.loop.conftest import wants
from tests.runs.promises import check
from tests.serving import Service, numbered, request, serving

CABIN = {
    "type": "object",
    "properties": {"cabin": {"type": "string", "enum": ["economy", "business"]}, "bags": {"type": "integer"}},
    "required": ["cabin"],
}


def agent(**question: Any) -> Agent:
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
    found: list[tuple[int, Event]] = []
    left = list(answers)
    body = request(agent="travel", run_id="r", chat_id="c")
    async with service.client.stream("POST", "/v1/runs", json=body) as response:
        async for seq, event in numbered(response):
            found.append((seq, event))
            if isinstance(event, InputRequest) and left:
                sent = {"request_id": event.request_id, **left.pop(0)}
                assert (await service.client.post("/v1/runs/r/input", json=sent)).status_code == 202
    check(found)
    return [event for _, event in found]


def questions(events: list[Event]) -> list[InputRequest]:
    return [event for event in events if isinstance(event, InputRequest)]


def result(events: list[Event]) -> str:
    [end] = [event for event in events if isinstance(event, ToolCallComplete)]
    return end.result


async def test_form_is_sent_with_its_schema_and_its_answer_is_checked(tmp_path: Path) -> None:
    async with serving(tmp_path, agent(schema=CABIN, title="Travel")) as service:
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


@pytest.mark.parametrize(
    ("question", "answer", "given"),
    [
        ({"schema": CABIN}, {"value": False}, "False"),
        ({"schema": CABIN}, {"value": None}, "None"),
        ({"schema": CABIN}, {"value": None, "asked": False}, "None"),
        ({"choices": ("red", "blue")}, {"value": "2"}, "'blue'"),
        ({"url": "https://pay.example/1"}, {"value": True}, "True"),
        ({"url": "https://pay.example/1"}, {"value": False}, "False"),
        ({}, {"value": "anything"}, "'anything'"),
    ],
)
async def test_each_kind_of_question_returns_the_answer(
    tmp_path: Path, question: dict[str, Any], answer: dict[str, Any], given: str
) -> None:
    async with serving(tmp_path, agent(**question)) as service:
        assert result(await play(service, answer)) == given


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "https://a b"])
async def test_address_that_is_no_web_address_is_not_shown(tmp_path: Path, url: str) -> None:
    async with serving(tmp_path, agent(url=url)) as service:
        events = await play(service)
    assert questions(events) == []
    assert [event.code for event in events if isinstance(event, ToolCallError)] == ["tool_failed"]


async def test_time_of_a_question_does_not_count_against_the_time_limit(tmp_path: Path) -> None:
    async with serving(tmp_path, agent(limit=0.2, choices=("a", "b"))) as service:
        body = request(agent="travel", run_id="r", chat_id="c")
        async with service.client.stream("POST", "/v1/runs", json=body) as response:
            async for _, event in numbered(response):
                if isinstance(event, InputRequest):
                    # Longer than the tool may take.
                    await asyncio.sleep(0.5)
                    answer = {"request_id": event.request_id, "value": "a"}
                    assert (await service.client.post("/v1/runs/r/input", json=answer)).status_code == 202
                elif isinstance(event, ToolCallComplete):
                    assert event.result == "'a'"
                    return
    pytest.fail("the call did not complete")


async def test_nobody_is_asked_over_the_openai_routes(tmp_path: Path) -> None:
    async with serving(tmp_path, agent(schema=CABIN)) as service:
        body = {"model": "travel", "messages": [{"role": "user", "content": "Book."}]}
        answer = await service.client.post("/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200
