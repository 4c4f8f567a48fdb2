"""Runs over a real connection: streaming, resuming, cancelling, the grace period, and access by user."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from callboard.agents import RunContext
from callboard.http import sse
from callboard.runs import run as run_module
from callboard_protocol import (
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    Status,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from tests.runs.promises import check, read
from tests.serving import Script, ScriptedAgent, Service, numbered, request, serving

PICTURE = f"data:image/png;base64,{'A' * 400_000}"


async def waiting_in_a_call(context: RunContext) -> AsyncIterator[Event]:
    yield ToolCallStart(tool_call_id="a", tool_name="slow")
    await asyncio.Event().wait()


async def sixty_events(context: RunContext) -> AsyncIterator[Event]:
    """With `run_start` and `done`, exactly sixty."""
    yield Status(content="Looking")
    yield Message(content="Let me see.")
    for number in range(14):
        call_id = f"call_{number}"
        yield ToolCallStart(tool_call_id=call_id, tool_name="step", tool_args={"number": number})
        yield ToolStatus(tool_call_id=call_id, data=ToolStatusData(status="processing", progress=50))
        yield ToolCallComplete(tool_call_id=call_id, result=f"result {number} \u2028 ä")
        yield Message(content=f"Step {number} is done. ")


async def test_resuming_after_each_event_yields_exactly_the_rest(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(sixty_events)) as service:
        whole = (await service.client.post("/v1/runs", json=request(run_id="r"))).content
        frames = [frame + b"\n\n" for frame in whole.split(b"\n\n")[:-1]]
        assert len(frames) == 60
        for after in range(len(frames) + 1):
            rest = b"".join(frames[after:])
            assert (await service.client.get(f"/v1/runs/r/events?after={after}")).content == rest
        resumed = await service.client.get("/v1/runs/r/events", headers={"Last-Event-ID": "7"})
        assert resumed.content == b"".join(frames[7:])


@pytest.mark.parametrize("chat_id", ["c", None])
async def test_the_same_run_id_attaches_instead_of_starting_again(tmp_path: Path, chat_id: str | None) -> None:
    started = []
    go_on = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        started.append(context.run_id)
        await go_on.wait()
        yield Message(content="once")

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        both = [asyncio.create_task(service.events(request(run_id="r", chat_id=chat_id))) for _ in range(2)]
        async with service.client.stream("POST", "/v1/runs", json=request(run_id="r", chat_id=chat_id)) as response:
            await anext(numbered(response))
            go_on.set()
        one, other = await asyncio.gather(*both)
        assert one == other
        assert started == ["r"]


async def test_a_run_id_of_another_chat_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(sixty_events)) as service:
        await service.events(request(run_id="r", chat_id="c"))
        response = await service.client.post("/v1/runs", json=request(run_id="r", chat_id="other"))
        assert response.status_code == 409
        assert response.json()["error"]["code"] == "run_conflict"


async def test_a_chat_of_another_user_is_continued_from_what_was_sent_and_not_kept(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(sixty_events)) as service:
        await service.events(request(chat_id="c", user={"id": "ann"}))
        before = (await service.client.get("/v1/chats/c/messages?user_id=ann")).json()
        events = await service.events(request(chat_id="c", user={"id": "bob"}, run_id="r"))
        assert events[-1] == Done()
        assert await service.events(request(chat_id="c", user={"id": "bob"}, run_id="r")) == events
        assert (await service.client.get("/v1/chats/c/messages?user_id=ann")).json() == before
        assert (await service.client.get("/v1/chats/c/messages?user_id=bob")).status_code == 404


async def test_run_without_listeners_is_cancelled_after_the_grace_period(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="endless")
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serving(tmp_path, ScriptedAgent(script), detach_grace_seconds=0.05) as service:
        await leave_after_first_call(service)
        await ended.wait()
        events = read((await service.client.get("/v1/runs/r/events")).content)
        check(events)
        assert events[-1][1] == Done(finish_reason="cancelled")


async def test_run_state_has_owner_end_and_whether_a_client_listens(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="slow")
        await go_on.wait()

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        async with service.client.stream("POST", "/v1/runs", json=request(run_id="r", chat_id="c", message_id="m")):
            awaited = (await service.client.get("/v1/runs/r")).json()
        while (left := (await service.client.get("/v1/runs/r")).json())["listened_to"]:
            pass
        go_on.set()
        await service.client.get("/v1/runs/r/events")
        ended = (await service.client.get("/v1/runs/r")).json()
        unknown = await service.client.get("/v1/runs/other")
    whose = {"run_id": "r", "agent": "scripted", "chat_id": "c", "message_id": "m", "answered": [], "approved": []}
    assert awaited == whose | {"ended": False, "listened_to": True}
    assert left == whose | {"ended": False, "listened_to": False}
    assert ended == whose | {"ended": True, "listened_to": False}
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_run")


async def test_a_run_goes_on_when_a_listener_comes_back_in_time(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="slow")
        await go_on.wait()
        yield ToolCallComplete(tool_call_id="a", result="ok")

    async with serving(tmp_path, ScriptedAgent(script), detach_grace_seconds=1) as service:
        await leave_after_first_call(service)
        async with service.client.stream("GET", "/v1/runs/r/events?after=1") as response:
            events = numbered(response)
            assert isinstance((await anext(events))[1], ToolCallStart)
            # Longer than the grace: it is the listener that keeps the run alive now.
            [run] = service.state.runs
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(run.wait()), 1.2)
            go_on.set()
            assert [event.type async for _, event in events] == ["tool_call_complete", "done"]


async def leave_after_first_call(service: Service) -> None:
    async with service.client.stream("POST", "/v1/runs", json=request(run_id="r")) as response:
        async for _, event in numbered(response):
            if isinstance(event, ToolCallStart):
                return


async def waiting_first(context: RunContext) -> AsyncIterator[Event]:
    await asyncio.Event().wait()
    yield Message(content="never")


async def waiting_in_text(context: RunContext) -> AsyncIterator[Event]:
    yield Message(content="half a sent")
    await asyncio.Event().wait()


async def waiting_in_one_of_two_calls(context: RunContext) -> AsyncIterator[Event]:
    yield ToolCallStart(tool_call_id="a", tool_name="slow")
    yield ToolCallStart(tool_call_id="b", tool_name="quick")
    yield ToolCallComplete(tool_call_id="b", result="ok")
    await asyncio.Event().wait()


async def asking(context: RunContext) -> AsyncIterator[Event]:
    yield ToolCallStart(tool_call_id="t", tool_name="paint")
    yield ToolCallComplete(tool_call_id="t", result="a secret", files=({"type": "image", "url": PICTURE},))
    question = InputRequest(request_id="q", kind="confirmation", title="Spend it all?")
    yield Message(content="yes" if await context.ask(question) else "no")


@pytest.mark.parametrize(
    ("script", "events_before"),
    [(waiting_first, 1), (waiting_in_text, 2), (waiting_in_one_of_two_calls, 4), (asking, 4)],
)
async def test_cancel_ends_a_run_in_any_state(tmp_path: Path, script: Script, events_before: int) -> None:
    async with serving(tmp_path, ScriptedAgent(script)) as service:
        seen: list[tuple[int, Event]] = []
        async with service.client.stream("POST", "/v1/runs", json=request(run_id="r", chat_id="c")) as response:
            async for pair in numbered(response):
                seen.append(pair)
                if len(seen) == events_before:
                    answers = [await service.client.post("/v1/runs/r/cancel") for _ in range(2)]
                    assert [answer.status_code for answer in answers] == [202, 202]
        check(seen)
        assert seen[-1][1] == Done(finish_reason="cancelled")
        codes = {event.code for _, event in seen if isinstance(event, ToolCallError)}
        assert codes <= {"cancelled"}
        again = await service.client.post("/v1/runs/r/cancel")
        assert (again.status_code, again.json()["status"]) == (202, "ended")
        history = await service.state.store.chats(None).history("c")
        assert all(call.result for call in history.calls)


async def test_an_agent_that_ignores_the_cancel_does_not_keep_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "CANCEL_PATIENCE_SECONDS", 0.05)
    released = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="stubborn")
        try:
            await released.wait()
        except asyncio.CancelledError:
            await released.wait()
        yield Message(content="too late")

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        seen: list[tuple[int, Event]] = []
        async with service.client.stream("POST", "/v1/runs", json=request(run_id="r")) as response:
            async for pair in numbered(response):
                seen.append(pair)
                if isinstance(pair[1], ToolCallStart):
                    await service.client.post("/v1/runs/r/cancel")
        released.set()
        check(seen)
        assert [event.type for _, event in seen] == ["run_start", "tool_call_start", "tool_call_error", "done"]


async def test_resume_before_the_start_of_the_log_is_410(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.runs.log.MAX_LOG_BYTES", 100_000)

    async def script(context: RunContext) -> AsyncIterator[Event]:
        for number in range(4):
            yield ToolCallComplete(tool_call_id=f"call_{number}", result="x" * 64 * 1024)

    async with serving(tmp_path, ScriptedAgent(script)) as service:
        await service.client.post("/v1/runs", json=request(run_id="r"))
        gone = await service.client.get("/v1/runs/r/events")
        assert (gone.status_code, gone.json()["error"]["code"]) == (410, "log_expired")


# A run without a chat, a background task, and an agent of which nobody knows whether another server can go on.
@pytest.mark.parametrize("fields", [{}, {"chat_id": "c", "task": "title_generation"}, {"chat_id": "d"}], ids=range(3))
async def test_shutdown_ends_unstored_runs_with_a_last_event(tmp_path: Path, fields: dict[str, str]) -> None:
    async with serving(tmp_path, ScriptedAgent(waiting_in_a_call), drain_seconds=0) as service:
        seen: list[tuple[int, Event]] = []
        async with service.client.stream("POST", "/v1/runs", json=request(run_id="r", **fields)) as response:
            async for pair in numbered(response):
                seen.append(pair)
                if isinstance(pair[1], ToolCallStart):
                    stopping = asyncio.create_task(service.app.stop())
        await stopping
        check(seen)
        last = seen[-1][1]
        assert isinstance(last, Error)
        assert last.code == "interrupted"


async def test_idle_stream_sends_ping_comments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "PING_SECONDS", 0.02)
    async with serving(tmp_path, ScriptedAgent(waiting_first)) as service:
        async with service.client.stream("POST", "/v1/runs", json=request()) as response:
            async for chunk in response.aiter_bytes():
                if b": ping\n\n" in chunk:
                    break


async def test_stalled_reader_is_disconnected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "SEND_TIMEOUT_SECONDS", 0.1)
    ended = asyncio.Event()

    async def script(context: RunContext) -> AsyncIterator[Event]:
        try:
            for _ in range(10):
                yield Message(content="x" * 1024 * 1024)
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serving(tmp_path, ScriptedAgent(script), detach_grace_seconds=0.01) as service:
        url = service.client.base_url
        body = httpx.Request("POST", "http://x", json=request()).content
        with socket.create_connection((url.host, url.port or 0)) as connection:
            fields = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}")
            head = "\r\n".join(("POST /v1/runs HTTP/1.1", *fields, "", ""))
            connection.sendall(head.encode() + body)
            await ended.wait()


@pytest.mark.parametrize("other", ["", "?user_id=mallory"])
async def test_run_of_a_user_is_404_for_others(tmp_path: Path, other: str) -> None:
    async with serving(tmp_path, ScriptedAgent(asking)) as service:
        body = request(run_id="r", user={"id": "ann"})
        async with service.client.stream("POST", "/v1/runs", json=body) as response:
            events = numbered(response)
            seen = [await anext(events) for _ in range(4)]
            (file,) = next(event.files for _, event in seen if isinstance(event, ToolCallComplete))
            answer = {"request_id": "q", "value": True}
            for method, path in (
                ("GET", "/v1/runs/r"),
                ("GET", "/v1/runs/r/events"),
                ("GET", file["url"]),
                ("POST", "/v1/runs/r/cancel"),
                ("POST", "/v1/runs/r/input"),
            ):
                body = {"json": answer} if path.endswith("input") else {}
                refused = await service.client.request(method, path + other, **body)
                assert (refused.status_code, refused.json()["error"]["code"]) == (404, "unknown_run")
            own = {"user_id": "ann"}
            assert (await service.client.get(file["url"], params=own)).status_code == 200
            assert (await service.client.post("/v1/runs/r/input", json=answer, params=own)).status_code == 202
            said = [event.content async for _, event in events if isinstance(event, Message)]
        assert said == ["yes"]
        assert (await service.client.post("/v1/runs/r/cancel", params=own)).json()["status"] == "ended"
        assert "a secret" in (await service.client.get("/v1/runs/r/events", params=own)).text


async def test_run_without_a_user_is_found_by_any_caller(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(asking), input_timeout_seconds=0.01) as service:
        await service.events(request(run_id="r"))
        for asker in ("", "?user_id=ann"):
            assert (await service.client.get(f"/v1/runs/r/events{asker}")).status_code == 200
