"""The pipe against a scripted HTTP server: runs, cut streams, refusals, stops."""

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from callboard_protocol import (
    Done,
    Error,
    Event,
    Message,
    Parked,
    RunRequest,
    RunStart,
    Status,
    ToolCallComplete,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from tests.pipe.loader import PIPE, provide_open_webui
from tests.pipe.owui_blocks import streamed_content, tool_blocks
from tests.pipe.scripted_server import (
    ScriptedServer,
    answer_bytes,
    answer_json,
    error_response,
    frames,
    hang,
    hang_up,
    stream,
)
from tests.skills.web.sites import Reply, Site

START = RunStart(run_id="r", agent="assistant")
CALL = ToolCallStart(tool_call_id="c1", tool_name="draw", tool_args={"what": "a cat"})
RESULT = ToolCallComplete(tool_call_id="c1", tool_name="draw", result="a picture")
HISTORY = [{"role": "user", "content": "Hello"}]
METADATA = {"chat_id": "chat", "message_id": "message", "session_id": "session"}


def a_pipe(url: str, key: str = "", **timing: Any) -> Any:
    """A pipe whose page is ready at once."""
    pipe = PIPE.Pipe()
    pipe.timing = PIPE.Timing(**{"page_seconds": 0, **timing})
    pipe.valves = pipe.Valves(CALLBOARD_URL=url, CALLBOARD_API_KEY=key)
    return pipe


async def start(pipe: Any, **changes: Any) -> Any:
    body = {"model": "callboard.assistant", "stream": True, "messages": HISTORY}
    arguments: dict[str, Any] = {"__metadata__": METADATA} | changes
    return await pipe.pipe(body | arguments.pop("body", {}), **arguments)


async def answer(pipe: Any, **changes: Any) -> list[dict[str, Any]]:
    return [update async for update in await start(pipe, **changes)]


async def stop(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def content(pipe: Any, **changes: Any) -> str:
    return streamed_content(await answer(pipe, **changes))


async def test_an_answer_with_a_tool_call_is_streamed(server: ScriptedServer) -> None:
    events: list[Event] = [START, Message(content="Look: "), CALL, RESULT, Message(content="Done."), Done()]
    server.on("POST", "runs", stream(frames(*events)))
    text = await content(a_pipe(server.url, "secret"))
    assert text.startswith("Look: \n\n<details")
    assert text.endswith("</details>\n\nDone.")
    assert tool_blocks(text)[0].value("result") == "a picture"
    assert server.requests[0].headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("before", "text", "whole"),
    [
        ("Seat 7.", "Also 8.", "Seat 7. Also 8."),
        ("It is", "Also 8.", "It is Also 8."),
        ("It is sea", "t 7.", "It is seat 7."),
        ("It is", " seat 7.", "It is seat 7."),
        ("It is\n", "seat 7.", "It is\nseat 7."),
        ("It is 7", ", or 8.", "It is 7, or 8."),
        ("It is 7.", "5 euros.", "It is 7.5 euros."),
        ("See https://", "Example.org", "See https://Example.org"),
        ("\u05d6\u05d4.", "\u05d2\u05dd", "\u05d6\u05d4. \u05d2\u05dd"),
        ("It is (", "Seat 7", "It is (Seat 7"),
        ("It is **", "Seat 7", "It is **Seat 7"),
        ("\u5ea7\u4f4d", "\u4e03\u53f7", "\u5ea7\u4f4d\u4e03\u53f7"),
        ("```\nx\n```", "Also", "```\nx\n```\n\nAlso"),
        ("", "Also", "Also"),
    ],
)
async def test_what_continues_an_answer_is_a_word_of_its_own(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, before: str, text: str, whole: str
) -> None:
    async def find(_chat_id: str, _message_id: str) -> dict[str, Any]:
        return {"content": before}

    chats = {"Chats": SimpleNamespace(get_message_by_id_and_message_id=find)}
    provide_open_webui(monkeypatch, {"models.chats": chats})
    server.on("POST", "runs", stream(frames(START, *(Message(content=piece) for piece in text), Done())))
    messages = [*HISTORY, {"role": "assistant", "content": before}]
    # Open WebUI draws both texts as one.
    assert before + await content(a_pipe(server.url), body={"messages": messages}) == whole


async def test_recall_valve_off_disables_recall_in_the_request(server: ScriptedServer) -> None:
    server.on("POST", "runs", stream(frames(START, Message(content="Hi"), Done())))
    pipe = a_pipe(server.url)
    await content(pipe)
    pipe.valves.RECALL = False
    await content(pipe)
    asked = [RunRequest.model_validate(one.json).recall for one in await server.seen("POST", "runs", 2)]
    assert asked == [True, False]


@pytest.mark.parametrize(
    ("role", "chat_id", "url", "line"),
    [
        ("admin", "c/1", "http://host:8700/inspect/", "Inspector: http://host:8700/inspect/run?id={run_id}&chat=c%2F1"),
        ("admin", "local:1", "http://host:8700/inspect", "Inspector: http://host:8700/inspect/run?id={run_id}"),
        ("user", "c", "http://host:8700/inspect", None),
        ("admin", "c", "", None),
    ],
)
async def test_only_admins_see_the_inspector_address(
    server: ScriptedServer, role: str, chat_id: str, url: str, line: str | None
) -> None:
    server.on("POST", "runs", stream(frames(START, Status(content="Looking"), Message(content="Hi"), Done())))
    pipe = a_pipe(server.url)
    pipe.valves.INSPECTOR_URL = url
    updates = await answer(
        pipe, __user__={"id": "u", "role": role}, __metadata__={"chat_id": chat_id, "message_id": "m"}
    )
    told = [one["event"]["data"]["description"] for one in updates if one.get("event", {}).get("type") == "status"]
    assert "Looking" in told
    wanted = line and line.format(run_id=server.requests[0].json["run_id"])
    assert [words for words in told if words.startswith("Inspector")] == ([wanted] if wanted else [])
    assert not wanted or told[-2] == wanted


async def test_the_request_is_what_the_protocol_says(server: ScriptedServer) -> None:
    server.on("POST", "runs", stream(frames(START, Done())))
    user = {"id": "u1", "name": "Ada", "email": "ada@example.org", "role": "admin", "settings": {"secret": 1}}
    given = {"temperature": 0.2, "reasoning_effort": "low", "top_k": 40, "chat_template_kwargs": {"thinking": False}}
    rest: dict[str, Any] = {"model": "board.team.lead", "files": [], "metadata": {"a": 1}, "tools": [], "seed": None}
    await content(a_pipe(server.url), body={**rest, **given}, __user__=user)
    sent = server.requests[0].json
    request = RunRequest.model_validate(sent)
    assert (request.agent, request.chat_id, request.message_id) == ("team.lead", "chat", "message")
    assert sent["user"] == {"id": "u1", "name": "Ada", "email": "ada@example.org", "role": "admin", "groups": []}
    assert request.options == given
    assert request.run_id
    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("chat_id", ["temporary:abc", "channel:abc"])
async def test_a_temporary_chat_or_a_channel_is_not_kept(server: ScriptedServer, chat_id: str) -> None:
    server.on("POST", "runs", stream(frames(START, Done())))
    await content(a_pipe(server.url), __metadata__=METADATA | {"chat_id": chat_id})
    assert server.requests[0].json["chat_id"] is None


@pytest.mark.parametrize(
    ("wire", "said"),
    [
        # Open WebUI draws the text of the task that merges answers as Markdown.
        (
            frames(START, Message(content='{"title": '), Message(content='"<details x"}'), Done()),
            '{"title": "<\u200bdetails x"}',
        ),
        (frames(START, Message(content="A summary"), Done(finish_reason="length")), "A summary"),
        (frames(START, Message(content="half"), Error(message="boom")), ""),
    ],
)
async def test_a_background_task_gets_plain_text_and_none_if_it_failed(
    server: ScriptedServer, wire: bytes, said: str
) -> None:
    server.on("POST", "runs", stream(wire))
    server.on("GET", "events", stream(b""))
    assert await start(a_pipe(server.url, resume_seconds=0.1), __task__="title_generation") == said
    assert server.requests[0].json["task"] == "title_generation"


# --- The server is not there, or not what was expected.


async def test_a_server_that_is_down_is_named_with_its_valve() -> None:
    text = await content(a_pipe("http://user:password@127.0.0.1:1"))
    assert "Cannot reach the Callboard server at http://127.0.0.1:1. Is it running (callboard serve)?" in text
    assert "CALLBOARD_URL" in text
    assert "password" not in text


@pytest.mark.parametrize("url", ["", "localhost:8700", "http://[", "http://x\n"])
async def test_an_impossible_address_is_named_with_its_valve(url: str) -> None:
    assert "CALLBOARD_URL" in await content(a_pipe(url))


async def test_a_wrong_key_is_named_with_its_valve_and_never_shown(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.on("POST", "runs", error_response(401, "unauthorized", "the key hunter2 is wrong; it is CALLBOARD_API_KEY"))
    text = await content(a_pipe(server.url, "hunter2"))
    assert "CALLBOARD_API_KEY" in text
    assert "hunter2" not in text + caplog.text


async def test_a_key_that_cannot_be_sent_is_never_shown(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    text = await content(a_pipe(server.url, "geheim\nx: ä"))
    assert "CALLBOARD_API_KEY" in text
    assert "geheim" not in text + caplog.text


async def test_another_web_server_is_recognised(server: ScriptedServer) -> None:
    server.on("POST", "runs", answer_bytes(b"<html>" * 100_000, 404, "text/html"))
    text = await content(a_pipe(server.url))
    assert "did not answer like a Callboard server" in text
    assert "CALLBOARD_URL" in text


# --- The model list.


@pytest.fixture
def fresh_certificates() -> Iterator[None]:
    PIPE.make_tls_context.cache_clear()
    yield
    PIPE.make_tls_context.cache_clear()


@pytest.mark.usefixtures("fresh_certificates")
async def test_a_server_that_is_down_is_an_entry_in_the_model_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "missing.pem")  # Plain HTTP does not need it.
    pipe = a_pipe("http://127.0.0.1:1")
    [entry] = await pipe.pipes()
    assert entry == {
        "id": "unreachable",
        "name": "Callboard: Cannot reach the Callboard server at http://127.0.0.1:1 (valve CALLBOARD_URL)",
    }
    text = await content(pipe, body={"model": "callboard.unreachable"})
    assert "Cannot reach the Callboard server" in text


@pytest.mark.usefixtures("fresh_certificates")
async def test_certificate_is_checked_against_ssl_cert_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    models = Reply(b'{"data": [{"id": "demo"}]}', headers={"Content-Type": "application/json"})
    async with Site(models, tls=context) as site:
        assert [entry["id"] for entry in await a_pipe(site.url).pipes()] == ["unreachable"]
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        PIPE.make_tls_context.cache_clear()
        for _ in range(2):
            assert [entry["id"] for entry in await a_pipe(site.url).pipes()] == ["demo"]


async def test_a_server_that_never_answers_does_not_hold_up_the_model_list(server: ScriptedServer) -> None:
    assert PIPE.Timing().models_seconds <= 3
    server.on("GET", "models", hang)
    [entry] = await a_pipe(server.url, models_seconds=0.05).pipes()
    assert entry["id"] == "unreachable"


async def test_agents_stay_in_the_list_while_their_server_is_restarted(server: ScriptedServer) -> None:
    server.on(
        "GET", "models", answer_json({"data": [{"id": "demo", "name": "Demo"}, {"id": "x"}]}), answer_json({}, 503)
    )
    pipe = a_pipe(server.url)
    assert await pipe.pipes() == [{"id": "demo", "name": "Demo"}, {"id": "x", "name": "x"}]
    assert [entry["id"] for entry in await pipe.pipes()] == ["demo", "x", "unreachable"]


# --- Cut streams.


async def test_a_cut_stream_is_resumed_without_a_doubled_or_missing_character(server: ScriptedServer) -> None:
    events: list[Event] = [START, *(Message(content=f"{n}, ") for n in range(100)), Done()]
    whole = frames(*events)
    cut = len(frames(*events[:41])) + 17
    # A server that repeats what was seen already is tolerated.
    server.on("POST", "runs", stream(whole[:cut], end="abort"))
    server.on("GET", "events", stream(frames(*events[30:70], first=31)), stream(frames(*events[70:], first=71)))
    assert await content(a_pipe(server.url)) == "".join(f"{n}, " for n in range(100))
    first, second = await server.seen("GET", "events", 2)
    assert (first.headers["last-event-id"], second.headers["last-event-id"]) == ("41", "70")
    assert first.path == f"/v1/runs/{server.requests[0].json['run_id']}/events"


async def test_pipe_retries_while_the_server_is_unavailable(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIPE, "STATUS_INTERVAL_SECONDS", 0)
    hold = asyncio.Event()
    server.on("POST", "runs", stream(frames(START, Message(content="Half")), end="abort"))
    server.on(
        "GET",
        "events",
        stream(end="abort"),
        error_response(503, "shutting_down", "The server is shutting down."),
        answer_bytes(b"<html>Bad gateway</html>", 502, "text/html"),
        stream(b": ping\n\n", end="abort"),
        stream(frames(Message(content=" and half"), first=3), hold, frames(Done(), first=4)),
    )
    updates = await start(a_pipe(server.url, resume_waits_seconds=(0.0, 0.01)))
    seen = []
    async for update in updates:
        seen.append(update)
        if "and half" in streamed_content(seen):
            hold.set()
    assert streamed_content(seen) == "Half and half"
    tries = await server.seen("GET", "events", 5)
    assert [one.headers["last-event-id"] for one in tries] == ["2"] * 5
    lines = [
        update["event"]["data"]["description"] for update in seen if update.get("event", {}).get("type") == "status"
    ]
    assert PIPE.RECONNECTING in lines
    assert lines[-1] != PIPE.RECONNECTING


async def test_run_lost_before_its_first_event_is_requested_again_by_id(
    server: ScriptedServer,
) -> None:
    server.on(
        "POST",
        "runs",
        error_response(503, "shutting_down", "The server is shutting down."),
        hang_up,
        stream(end="abort"),
        stream(frames(START, Message(content="Hi"), Done())),
    )
    assert await content(a_pipe(server.url, resume_waits_seconds=(0.0, 0.01))) == "Hi"
    asked = await server.seen("POST", "runs", 4)
    assert len({one.json["run_id"] for one in asked}) == 1


async def test_two_cuts_in_a_row_without_progress_end_the_answer_with_a_message(server: ScriptedServer) -> None:
    server.on("POST", "runs", stream(frames(START, Message(content="Half"), CALL)))
    server.on("GET", "events", stream(b": ping\n\n"))
    text = await content(a_pipe(server.url, resume_seconds=0.1))
    assert text.startswith("Half\n\n<details")
    assert "could not be resumed" in text
    assert tool_blocks(text)[0].attributes["status"] == "failed"
    assert len(await server.seen("GET", "events")) == 1


async def test_a_run_that_is_gone_is_explained(server: ScriptedServer) -> None:
    server.on("POST", "runs", stream(frames(START, Message(content="Half"))))
    server.on("GET", "events", error_response(410, "gone", "gone"))
    text = await content(a_pipe(server.url))
    assert text.startswith("Half")
    assert "the server was restarted" in text


async def test_a_silent_connection_is_given_up_and_resumed(server: ScriptedServer) -> None:
    server.on("POST", "runs", stream(frames(START, Message(content="a")), end="hang"))
    server.on("GET", "events", stream(frames(Message(content="b"), Done(), first=3)))
    assert await content(a_pipe(server.url, read_seconds=0.5)) == "ab"


async def test_invalid_frames_are_logged_and_skipped(server: ScriptedServer, caplog: pytest.LogCaptureFixture) -> None:
    garbage = [b"id: 2\ndata: {nonsense\n\n", b"id: 3\ndata: []\n\n", b'id: 4\ndata: {"type": "message"}\n\n']
    garbage += [b'id: 5\ndata: {"type": "tool_call_start", "tool_call_id": 3}\n\n', b"id: x\n\xff\xfe\n\n"]
    wire = frames(START) + b"".join(garbage) + frames(Message(content="fine"), Done(), first=6)
    server.on("POST", "runs", stream(wire))
    assert await content(a_pipe(server.url)) == "fine"
    assert len([record for record in caplog.records if "cannot be read" in record.message]) == 4


async def test_a_fault_of_the_pipe_itself_keeps_what_was_streamed(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = asyncio.Event()
    server.on("POST", "runs", stream(frames(START, Message(content="Half"), CALL), hold))
    updates = await start(a_pipe(server.url))
    seen = [await anext(updates) for _ in range(2)]
    monkeypatch.setattr(PIPE.Transcript, "apply", None)
    server.on("GET", "events", stream(frames(Message(content="x"), first=4)))
    hold.set()
    seen += [update async for update in updates]
    assert "The pipe failed" in streamed_content(seen)
    await server.seen("POST", "cancel")


# --- Stop.


async def test_stop_closes_every_block_and_cancels_the_run(server: ScriptedServer) -> None:
    server.on("POST", "runs", stream(frames(START, Message(content="Look"), CALL), end="hang"))
    seen: list[dict[str, Any]] = []
    drawn = asyncio.Event()

    async def consume() -> None:
        async for update in await start(a_pipe(server.url)):
            seen.append(update)
            if tool_blocks(streamed_content(seen)):
                drawn.set()

    task = asyncio.create_task(consume())
    await drawn.wait()
    assert tool_blocks(streamed_content(seen))[0].attributes["done"] == "false"
    await stop(task)
    [block] = tool_blocks(streamed_content(seen))
    assert (block.attributes["done"], block.value("result")) == ("true", "Stopped by the user")
    [cancel] = await server.seen("POST", "cancel")
    assert cancel.path == f"/v1/runs/{server.requests[0].json['run_id']}/cancel"


async def test_stop_is_sent_again_until_a_restarted_server_accepts_it(server: ScriptedServer) -> None:
    server.on("POST", "runs", stream(frames(START, CALL), end="abort"))
    server.on("GET", "events", hang_up)
    shutting_down = error_response(503, "shutting_down", "The server is shutting down.")
    server.on("POST", "cancel", hang_up, shutting_down, answer_json({}, 202))
    task = asyncio.create_task(content(a_pipe(server.url, resume_waits_seconds=(0.0, 0.01))))
    await server.seen("GET", "events")
    await stop(task)
    await asyncio.gather(*PIPE.background_tasks)
    assert [one.path.rpartition("/")[2] for one in server.requests[-4:]] == ["events", *["cancel"] * 3]


async def test_stop_is_sent_again_while_the_run_has_not_begun(server: ScriptedServer) -> None:
    server.on("POST", "runs", hang)
    server.on("POST", "cancel", error_response(404, "unknown_run", "There is no such run."), answer_json({}, 202))
    task = asyncio.create_task(content(a_pipe(server.url, resume_waits_seconds=(0.0, 0.01))))
    await server.seen("POST", "runs")
    await stop(task)
    await asyncio.gather(*PIPE.background_tasks)
    assert len(await server.seen("POST", "cancel")) == 2


async def test_stop_while_a_file_is_copied_keeps_what_has_arrived(server: ScriptedServer) -> None:
    async def run(writer: asyncio.StreamWriter) -> None:
        run_id = server.requests[0].json["run_id"]
        file = {"type": "image", "url": f"/v1/runs/{run_id}/files/f1"}
        await stream(
            frames(START, CALL, RESULT.model_copy(update={"files": (file,)}), Message(content="Here.")), end="hang"
        )(writer)

    server.on("POST", "runs", run)
    server.on("GET", "f1", hang)
    seen: list[dict[str, Any]] = []

    async def consume() -> None:
        async for update in await start(a_pipe(server.url)):
            seen.append(update)  # noqa: PERF401 - a list that is made at once would lose all at the stop

    task = asyncio.create_task(consume())
    await server.seen("GET", "f1")
    await stop(task)
    text = streamed_content(seen)
    [block] = tool_blocks(text)
    assert (block.attributes["name"], block.value("result")) == ("draw", "a picture")
    assert text.endswith("</details>\n\nHere.")


class BusyOpenWebUI:
    """Open WebUI that is stopped in its own code, in the middle of an answer whose message it saves as it was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.message: dict[str, Any] = {}
        self.sent: list[dict[str, Any]] = []
        self.at_work = asyncio.Event()
        modules: dict[str, dict[str, Any]] = {
            "models.chats": {"Chats": self},
            "socket.main": {"get_event_emitter": self.get_event_emitter},
        }
        provide_open_webui(monkeypatch, modules)

    async def get_event_emitter(self, _: object) -> Any:
        return self.emit

    async def get_message_by_id_and_message_id(self, *_: str) -> dict[str, Any]:
        return self.message

    async def upsert_message_to_chat_by_id_and_message_id(self, chat_id: str, message_id: str, change: Any) -> None:
        assert (chat_id, message_id) == (METADATA["chat_id"], METADATA["message_id"])
        self.message |= change

    async def emit(self, event: dict[str, Any]) -> None:
        self.sent.append(event)

    async def show(self, updates: Any) -> None:
        seen: list[dict[str, Any]] = []
        async with aclosing(updates):
            async for update in updates:
                seen.append(update)
                text = streamed_content(seen)
                if tool_blocks(text):
                    self.message = {"content": text, "output": []}
                    self.at_work.set()
                    await asyncio.Event().wait()

    async def stop(self, pipe: Any) -> None:
        """Let the user stop the pipe's answer while Open WebUI handles a block."""
        task = asyncio.create_task(self.show(await start(pipe)))
        await self.at_work.wait()
        await stop(task)
        await asyncio.gather(*PIPE.background_tasks)


async def test_stop_in_open_webui_closes_the_saved_blocks(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("POST", "runs", stream(frames(START, Message(content="Look"), CALL), end="hang"))
    server.on("POST", "cancel", answer_json({}, 202))
    open_webui = BusyOpenWebUI(monkeypatch)
    await open_webui.stop(a_pipe(server.url))
    [block] = tool_blocks(open_webui.message["content"])
    assert (block.attributes["done"], block.value("result")) == ("true", "Stopped by the user")
    status, shown = open_webui.sent
    assert status["data"]["description"].startswith("stopped, 1 call, ")
    assert shown == {"type": "chat:completion", "data": open_webui.message}
    assert len(await server.seen("POST", "cancel")) == 1


@pytest.mark.parametrize("last", [[], [Parked(tool_call_ids=("c1",))]], ids=["running", "parked"])
async def test_closing_the_generator_cancels_the_run(server: ScriptedServer, last: list[Event]) -> None:
    server.on("POST", "runs", stream(frames(START, Message(content="Look"), CALL, *last), end="hang"))
    updates = await start(a_pipe(server.url))
    await anext(updates)
    await updates.aclose()
    assert len(await server.seen("POST", "cancel")) == 1


async def test_second_stop_has_no_effect(server: ScriptedServer) -> None:
    server.on("POST", "runs", stream(frames(START, CALL), end="hang"))
    updates = await start(a_pipe(server.url))
    await anext(updates)
    await anext(updates)
    waiting = asyncio.ensure_future(anext(updates))
    await server.seen("POST", "runs")
    waiting.cancel()
    assert (await waiting)["type"] == "response.output_text.done"
    await updates.aclose()
    assert len(await server.seen("POST", "cancel")) == 1


# --- Pace.


async def test_progress_is_coalesced_and_its_last_state_is_shown(server: ScriptedServer) -> None:
    steps = [ToolStatus(tool_call_id="c1", data=ToolStatusData(status="p", progress=n / 10)) for n in range(1000)]
    hold = asyncio.Event()
    server.on("POST", "runs", stream(frames(START, CALL, *steps), hold, frames(RESULT, Done(), first=1003)))
    started = time.monotonic()
    updates: list[dict[str, Any]] = []
    async for update in await start(a_pipe(server.url)):
        updates.append(update)
        if "· 100%" in json.dumps(update, ensure_ascii=False):
            # Shown though nothing more arrived: a timer brought it.
            hold.set()
    emissions = [update for update in updates if update.get("type") == "response.output_text.done"]
    assert len(emissions) <= 2 + (time.monotonic() - started) / PIPE.UPDATE_INTERVAL_SECONDS
    assert hold.is_set()


@pytest.mark.parametrize(
    ("rendering", "metadata", "kind"),
    [
        ("details", METADATA, "StreamEmitter"),
        ("details", METADATA | {"chat_id": None}, "ChunkEmitter"),
        ("details", METADATA | {"session_id": None}, "StreamEmitter"),
        ("native", METADATA, "NativeEmitter"),
        ("native", {}, "ChunkEmitter"),
    ],
)
def test_the_emitter_fits_the_rendering_and_the_listener(rendering: str, metadata: dict[str, Any], kind: str) -> None:
    assert type(PIPE.choose_emitter(rendering, PIPE.Page("m", {}, metadata))).__name__ == kind


@pytest.mark.parametrize(
    ("version", "is_too_old"), [("0.9.6", True), ("0.11.3", True), ("0.11.4", False), ("1.0", False), ("0.0.0", False)]
)
async def test_an_older_open_webui_gets_the_version_that_is_needed(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, version: str, is_too_old: bool
) -> None:
    monkeypatch.setattr(PIPE, "VERSION", version)
    server.on("POST", "runs", stream(frames(START, Message(content="Hello"), Done())))
    got = await start(a_pipe(server.url))
    told = f"{PIPE.NOTICE}Callboard needs Open WebUI 0.11.4 or later; this is {version}."
    assert (got == told) == is_too_old
    if is_too_old:
        assert await start(a_pipe(server.url), __task__="title_generation") == ""
    else:
        assert streamed_content([update async for update in got]) == "Hello"


async def test_a_run_of_a_user_is_resumed_and_cancelled_in_the_users_name(server: ScriptedServer) -> None:
    server.on("POST", "runs", stream(frames(START, Message(content="Half"))))
    server.on("GET", "events", stream(frames(CALL, first=3), end="hang"))
    task = asyncio.create_task(content(a_pipe(server.url), __user__={"id": "u 1", "name": "Ada"}))
    [resumed] = await server.seen("GET", "events")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    [cancelled] = await server.seen("POST", "cancel")
    assert (resumed.query, cancelled.query) == ("user_id=u+1", "user_id=u+1")
