"""Agents of other servers over AG-UI: released frameworks as processes of their own, and hand-written answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callboard.frameworks.agui import from_agui
from callboard.frameworks.questions import UNANSWERED
from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    Parked,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
)
from tests.fakes.openai_server import Chunks, OpenAIServer, Script, call, finish, text
from tests.frameworks.agui.installed import HERE, python_of
from tests.frameworks.waiting import answer, begin, events_of_run, is_away, kill
from tests.serving import request, serving

FRAMEWORKS = {"langgraph": "agent", "agent_framework": "agent", "llamaindex": "agent/run"}


@asynccontextmanager
async def running(framework: str, folder: Path, script: Script) -> AsyncIterator[tuple[str, OpenAIServer]]:
    """A framework's server; its address, and its model."""
    python = python_of(framework)
    async with OpenAIServer(script) as model:
        program = (str(python), str(HERE / f"{framework}_server.py"), model.base_url)
        server = await asyncio.create_subprocess_exec(*program, cwd=folder, stdout=asyncio.subprocess.PIPE)
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(await server.stdout.readline())}", model
        finally:
            server.kill()
            await server.wait()


def said(*chunks: Any) -> Chunks:
    """An answer of the model. Agent Framework needs the time in each chunk."""
    return Chunks([{**chunk, "created": 1} for chunk in chunks])


def asked(words: str, before: Sequence[dict[str, Any]] = (), **more: Any) -> dict[str, Any]:
    messages = [*before, {"role": "user", "content": words}]
    return request(agent="agent", chat_id="c", user={"id": "ann"}, messages=messages, **more)


def of(events: list[Event], *kinds: type[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kinds)]


def text_of(events: list[Event]) -> str:
    return "".join(event.content for event in of(events, Message))


def wanted(tool: str, arguments: str) -> Chunks:
    return said(text("I look. "), call(tool, arguments, call_id="call_a"), finish("tool_calls"))


WIPE = [wanted("wipe", '{"disk": "sda"}'), said(text("It is done."), finish("stop"))]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.needs("downloads")
async def test_text_and_calls_are_shown_and_the_next_turn_gets_them(framework: str, tmp_path: Path) -> None:
    arguments = '{"city": "Rome"}'
    script = [
        wanted("weather", arguments),
        said(text("It rains."), finish("stop")),
        said(text("As I said."), finish("stop")),
    ]
    async with running(framework, tmp_path, script) as (url, model):
        agent = from_agui(f"{url}/{FRAMEWORKS[framework]}", agent_id="agent")
        async with serving(tmp_path, agent, confirm_tools=("*",)) as service:
            events = await service.events(asked("How is Rome?"))
            [start] = of(events, ToolCallStart)
            assert (start.tool_name, start.tool_args, start.stoppable) == ("weather", {"city": "Rome"}, False)
            assert [status.data.message for status in of(events, ToolStatus)] == [f"runs at {url[7:]}"]
            [end] = of(events, ToolCallComplete)
            assert end.result == "Rain in Rome"
            assert (text_of(events), events[-1]) == ("I look. It rains.", Done())
            made = {"id": "call_a", "type": "function", "function": {"name": "weather", "arguments": arguments}}
            before = [
                {"role": "user", "content": "How is Rome?"},
                {"role": "assistant", "content": "I look. ", "tool_calls": [made]},
                {"role": "tool", "tool_call_id": "call_a", "content": "shortened by the client"},
                {"role": "assistant", "content": "It rains."},
            ]
            await service.events(asked("Sure?", before))
    # LlamaIndex writes the calls and results of earlier turns as text.
    sent = [json.dumps(one) for one in model.requests[-1]["messages"] if one["role"] != "system"]
    parts = ("How is Rome?", json.dumps(arguments)[1:-1], "Rain in Rome", "It rains.", "Sure?")
    assert all(part in one for part, one in zip(parts, sent, strict=True))


ASKS = {"langgraph": "agent", "langgraph/outcome": "outcome", "agent_framework": "agent"}


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("kind", ASKS)
@pytest.mark.needs("downloads")
async def test_call_that_the_agents_server_asks_about_waits_and_runs_once_if_allowed(
    kind: str, allowed: bool, tmp_path: Path
) -> None:
    framework = kind.partition("/")[0]
    (tmp_path / "agent").mkdir()
    wiped = tmp_path / "agent" / "wiped"
    async with running(framework, tmp_path / "agent", WIPE) as (url, _):
        agent = partial(from_agui, f"{url}/{ASKS[kind]}", agent_id="agent")
        async with serving(tmp_path / "first", agent()) as first:
            # The first server is killed while the question is open: the next one has a copy of its database.
            if allowed:
                asked_events = await begin(first, partial(kill, tmp_path / "first", tmp_path / "next"))
            else:
                asked_events = await begin(first, is_away)
                assert isinstance(asked_events[-1], Parked)
                await kill(tmp_path / "first", tmp_path / "next")
            [question] = of(asked_events, InputRequest)
            assert (question.arguments, question.remember) == ({"disk": "sda"}, False)
            async with serving(tmp_path / "next", agent()) as second:
                await answer(second, question.request_id, allowed)
                events = await events_of_run(second)
    assert (text_of(events), events[-1]) == ("I look. It is done.", Done())
    if allowed:
        assert wiped.read_text() == "sda\n"
        assert [end.result for end in of(events, ToolCallComplete)] == ["wiped sda"]
    else:
        assert not wiped.exists()
        assert [end.code for end in of(events, ToolCallError)] == ["denied"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("four", "4 seats in Rome"),
        ("1", "'2' seats in Rome"),
        ("none at all", "'none at all' seats in Rome"),
        (None, None),
    ],
)
@pytest.mark.needs("downloads")
async def test_question_of_a_tool_is_asked_with_its_options(
    value: str | None, told: str | None, tmp_path: Path
) -> None:
    script = [wanted("book", '{"city": "Rome"}'), said(text("Booked."), finish("stop"))]
    async with running("langgraph", tmp_path, script) as (url, _):
        async with serving(tmp_path, from_agui(f"{url}/agent", agent_id="agent")) as service:
            events = await service.events_with_answer(asked("Book", run_id="r"), value)
    [question] = of(events, InputRequest)
    assert (question.message, question.choices, question.other) == ("How many seats?", ("2", "four"), True)
    if told:
        assert [end.result for end in of(events, ToolCallComplete)] == [told]
        assert text_of(events) == "I look. Booked."
    else:
        assert text_of(events).endswith(UNANSWERED)


@pytest.mark.needs("downloads")
async def test_agent_with_a_memory_of_its_own_gets_the_last_message_and_no_user_gets_another_ones_thread(
    tmp_path: Path,
) -> None:
    async with running("langgraph", tmp_path, lambda _: said(text("Yes."), finish("stop"))) as (url, model):
        agent = from_agui(f"{url}/agent", agent_id="agent", history="own")
        async with serving(tmp_path, agent) as service:
            for number, user in enumerate(["ann", "ann", "bob"]):
                await service.events({**asked(f"{user} {number}"), "user": {"id": user}})
    sent = [[message["content"] for message in request["messages"]] for request in model.requests]
    assert sent == [["ann 0"], ["ann 0", "Yes.", "ann 1"], ["bob 2"]]
