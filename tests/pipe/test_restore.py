"""The pipe's methods for the function for events: restoring answers after a restart, and deleting chats."""

import asyncio
import logging
from typing import Any

import pytest

from callboard.calls.approval import AGREED, ANSWERED
from callboard_protocol import (
    Done,
    Event,
    InputRequest,
    Message,
    Reasoning,
    RunStart,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from tests.pipe.loader import PIPE
from tests.pipe.owui_blocks import streamed_content, tool_blocks
from tests.pipe.scripted_server import ScriptedServer, answer_bytes, answer_json, error_response, frames, stream
from tests.pipe.test_stream import a_pipe, content

START = RunStart(run_id="r", agent="assistant")
CALL = ToolCallStart(tool_call_id="c1", tool_name="draw", tool_args={"what": "a cat"})
RESULT = ToolCallComplete(tool_call_id="c1", tool_name="draw", result="a picture")
METADATA = {"chat_id": "chat", "message_id": "message", "user_id": "u1"}
USER = {"id": "u1", "name": "Ada"}
NO_RUN = error_response(404, "unknown_run", "there is no run 'r'")
NO_CHAT = error_response(404, "unknown_chat", "there is no chat 'chat'")


def row(role: str, message_id: str = "message", run_id: str = "r", **fields: Any) -> dict[str, Any]:
    """A message as the server's route of a chat's messages gives it."""
    names = (
        "content",
        "tool_call_id",
        "tool_name",
        "arguments",
        "tool_output",
        "error_code",
        "round_index",
        "ended_at",
    )
    return dict.fromkeys(names) | {"role": role, "message_id": message_id, "run_id": run_id} | fields


def call_row(call_id: str, **fields: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"tool_name": "draw", "arguments": '{"what": "a cat"}', "round_index": 0, "ended_at": 2.0}
    return row("tool", tool_call_id=call_id, **given | fields)


def keep(server: ScriptedServer, *rows: dict[str, Any]) -> None:
    server.on("GET", "messages", answer_json({"chat_id": "chat", "messages": list(rows)}))


def log_run(server: ScriptedServer, *, listened_to: bool = False) -> None:
    state = {"run_id": "r", "ended": False, "listened_to": listened_to, "answered": ["gone"]}
    server.on("GET", "r", answer_json(state))


async def find(pipe: Any) -> Any:
    return await pipe.find_answer("u1", "chat", "message")


async def never(_: Any) -> object:
    raise AssertionError("nobody is to be asked")


async def restored(pipe: Any, answer: Any, ask: Any = never) -> list[dict[str, Any]]:
    stream = pipe.restore(answer, USER, METADATA, "callboard.assistant", None, ask)
    return [update async for update in stream]


def status_lines(updates: list[dict[str, Any]]) -> list[str]:
    events = [update["event"] for update in updates if "event" in update]
    return [event["data"]["description"] for event in events if event["type"] == "status"]


async def test_an_answer_is_followed_from_its_beginning_and_is_what_it_would_have_been(server: ScriptedServer) -> None:
    events = [START, Message(content="Look: "), CALL, RESULT, Message(content="Done."), Done()]
    server.on("POST", "runs", stream(frames(*events)))
    keep(server, row("user"), row("user", message_id="other", run_id="other"))
    server.on("GET", "events", stream(frames(*events)))
    pipe = a_pipe(server.url, "secret")
    log_run(server, listened_to=True)
    assert (await find(pipe)).is_awaited
    log_run(server)
    answer = await find(pipe)
    assert (answer.run_id, answer.is_logged, answer.is_awaited) == ("r", True, False)
    updates = await restored(pipe, answer)
    assert streamed_content(updates) == await content(pipe)
    [asked] = await server.seen("GET", "events")
    assert (asked.path, asked.query, asked.headers["last-event-id"]) == ("/v1/runs/r/events", "user_id=u1", "0")
    assert asked.headers["authorization"] == "Bearer secret"
    await asyncio.gather(*PIPE.background_tasks)
    assert not [request for request in server.requests if request.path.endswith("cancel")]


async def test_restored_answer_shows_no_durations(server: ScriptedServer) -> None:
    keep(server, row("user"))
    log_run(server)
    server.on("GET", "events", stream(frames(START, Reasoning(content="Hm."), CALL, RESULT, Done())))
    pipe = a_pipe(server.url)
    updates = await restored(pipe, await find(pipe))
    assert '<details type="reasoning" done="true">' in streamed_content(updates)
    assert status_lines(updates)[-1] == "1 call"


async def test_answer_without_events_is_restored_from_stored_messages(server: ScriptedServer) -> None:
    keep(
        server,
        row("user", content="Draw"),
        row("assistant", content="Look: "),
        call_row("c1", tool_output="a picture"),
        call_row("c2", tool_output="Error: no ink", error_code="tool_failed", arguments="{broken"),
        call_row("c3", ended_at=None),
        row("assistant", content="Done."),
    )
    server.on("GET", "r", NO_RUN)
    pipe = a_pipe(server.url)
    updates = await restored(pipe, await find(pipe))
    text = streamed_content(updates)
    assert text.startswith("Look: \n\n<details")
    assert status_lines(updates)[-1] == "3 calls, 2 failed"
    good, bad, lost = tool_blocks(text)
    assert (good.value("result"), good.value("arguments")) == ("a picture", {"what": "a cat"})
    assert (bad.value("result"), bad.value("arguments")) == ("Error: no ink", "{broken")
    assert lost.value("result") == "Error: no result arrived"
    assert text.index("Done.") < text.index("Open WebUI was stopped during this answer")


@pytest.mark.parametrize("given", [NO_CHAT, answer_json({"messages": [row("user", message_id="other")]})])
async def test_unknown_answer_becomes_a_notice_with_advice(server: ScriptedServer, given: Any) -> None:
    server.on("GET", "messages", given)
    pipe = a_pipe(server.url)
    answer = await find(pipe)
    assert answer.rows == []
    updates = await restored(pipe, answer)
    text = streamed_content(updates)
    assert status_lines(updates)[-1] == "failed"
    assert "> **Callboard:** Open WebUI was stopped during this answer" in text
    assert "ask again" in text


@pytest.mark.parametrize(
    "given",
    [
        error_response(401, "unauthorized", "the key is wrong"),
        error_response(404, "not_found", "a server of an older version has no such route"),
        error_response(503, "storage_error", "the disk is full"),
        answer_bytes(b'{"messages": [{}]}'),
    ],
)
async def test_unavailable_server_does_not_count_as_a_lost_answer(server: ScriptedServer, given: Any) -> None:
    server.on("GET", "messages", given)
    assert await find(a_pipe(server.url)) is None


async def test_stop_ends_the_run_of_a_restored_answer(server: ScriptedServer) -> None:
    keep(server, row("user"))
    log_run(server)
    server.on("GET", "events", stream(frames(START, Message(content="Look: "), CALL), end="hang"))
    pipe = a_pipe(server.url)
    updates = pipe.restore(await find(pipe), USER, METADATA, "callboard.assistant", None, never)
    await anext(updates)
    await updates.aclose()
    [cancelled] = await server.seen("POST", "cancel")
    assert cancelled.path == "/v1/runs/r/cancel"


async def test_run_deleted_between_two_requests_becomes_a_notice(server: ScriptedServer) -> None:
    keep(server, row("user"))
    log_run(server)
    server.on("GET", "events", NO_RUN)
    pipe = a_pipe(server.url)
    assert "there is no run" in streamed_content(await restored(pipe, await find(pipe)))


def asked(request_id: str, call_id: str | None = "c1") -> InputRequest:
    return InputRequest(request_id=request_id, kind="input", title=request_id, tool_call_id=call_id)


def reported(message: str) -> ToolStatus:
    return ToolStatus(tool_call_id="c1", data=ToolStatusData(status="processing", message=message))


@pytest.mark.parametrize(
    ("events", "still_open"),
    [
        *(([asked("approve:c1"), reported(agreed)], []) for agreed in AGREED),
        ([asked("q1"), reported("no answer"), asked("q2"), reported(ANSWERED)], []),
        ([asked("q1"), reported(ANSWERED), asked("q2")], ["q2"]),
        # At once: the status does not say which of them was answered.
        ([asked("q1"), asked("q2"), reported(ANSWERED)], ["q1", "q2"]),
        # No status tells of questions of an agent: the server lists those that have an answer.
        ([asked("gone", None), asked("q1", None)], ["q1"]),
        # An answer that did not fit.
        ([asked("q1"), asked("again1:q1")], ["again1:q1"]),
        ([asked("q1"), ToolCallError(tool_call_id="c1", error="denied", code="denied")], []),
        # Sent again by a server that has taken the run over.
        ([asked("q1"), asked("again1:q1"), asked("q1"), asked("again1:q1")], ["again1:q1"]),
    ],
)
async def test_questions_of_a_running_call_are_asked_again_if_they_are_open(
    server: ScriptedServer, events: list[Event], still_open: list[str]
) -> None:
    last = [ToolCallStart(tool_call_id="c2", tool_name="draw"), asked("last", "c2")]
    begun = [START, CALL, *events, *last]
    answered = asyncio.Event()
    keep(server, row("user"))
    log_run(server)
    server.on("GET", "events", stream(frames(*begun), answered, frames(Done(), first=len(begun) + 1)))
    server.on("POST", "input", answer_json({}, 202))
    titles: list[str] = []

    async def ask(dialog: dict[str, Any]) -> object:
        titles.append(dialog["data"]["message"])
        return {"action": "accept", "content": {"answer": "yes"}}

    async def let_go() -> None:
        await server.seen("POST", "input", len(still_open) + 1)
        answered.set()

    pipe = a_pipe(server.url)
    await asyncio.gather(restored(pipe, await find(pipe), ask), let_go())
    assert titles == [*still_open, "last"]
    sent = [(one.json["request_id"], one.json["value"]) for one in await server.seen("POST", "input")]
    assert sent == [(name, "yes") for name in titles]


async def test_deleted_chats_are_forgotten_for_their_user(server: ScriptedServer) -> None:
    server.on("DELETE", "a%2Fchat", answer_bytes(b"", 204))
    server.on("DELETE", "chats", answer_bytes(b"", 204))
    assert await a_pipe(server.url).forget_chat("u1", "a/chat")
    assert await a_pipe(server.url).forget_chats("u1", 1_700_000_000)
    assert [(asked.path, asked.query) for asked in server.requests] == [
        ("/v1/chats/a%2Fchat", "user_id=u1"),
        ("/v1/chats", "user_id=u1&begun_before=1700000000"),
    ]


async def test_a_chat_that_cannot_be_forgotten_is_in_the_log_unless_it_is_not_there(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.on("DELETE", "chat", NO_CHAT, error_response(503, "storage_error", "the disk is full"))
    pipe = a_pipe(server.url)
    with caplog.at_level(logging.WARNING, "callboard.pipe"):
        assert await pipe.forget_chat("u1", "chat")
        assert not caplog.records
        assert not await pipe.forget_chat("u1", "chat")
    assert "the disk is full" in caplog.text
