"""The user in the loop: Open WebUI's own dialogs, one after another, beside the stream."""

import asyncio
import html
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from callboard_protocol import (
    Done,
    Event,
    InputAnswer,
    InputRequest,
    RunStart,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from tests.pipe.loader import PIPE
from tests.pipe.owui_blocks import reduce_native, streamed_content, tool_blocks
from tests.pipe.scripted_server import ScriptedServer, answer_error, answer_json, frames, stream
from tests.pipe.test_stream import a_pipe, start

START = RunStart(run_id="r", agent="a")
CALL = ToolCallStart(tool_call_id="c", tool_name="delete", tool_args={"path": "/"})


def question(request_id: str = "q", kind: Any = "confirmation", **fields: Any) -> InputRequest:
    return InputRequest(
        **{"request_id": request_id, "kind": kind, "title": "Run delete?", "tool_call_id": "c"} | fields
    )


class Page:
    """The browser tab: keeps what it was asked, and gives the answers of the test."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self.open = 0
        self.opened = asyncio.Event()
        self._answers = list(answers)
        self.closed = 0

    async def __call__(self, event: dict[str, Any]) -> Any:
        assert not self.open, "a second dialog would take the first one's place, which is then never answered"
        self.asked.append(event)
        self.open += 1
        self.opened.set()
        try:
            answer = self._answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return await answer.wait() if isinstance(answer, asyncio.Event) else answer
        except asyncio.CancelledError:
            self.closed += 1
            raise
        finally:
            self.open -= 1


async def answered(server: ScriptedServer, page: Any, *requests: InputRequest) -> list[Any]:
    """What the server is told, for a run that waits until every question is answered."""
    over = asyncio.Event()
    server.on("POST", "runs", stream(frames(START, CALL, *requests), over, frames(Done(), first=3 + len(requests))))
    server.on("POST", "input", answer_json({}, 202))

    async def end() -> None:
        await server.seen("POST", "input", len(requests))
        over.set()

    ending = asyncio.create_task(end())
    async for _ in await start(a_pipe(server.url), __event_call__=page):
        pass
    await ending
    told = [InputAnswer.model_validate(request.json) for request in await server.seen("POST", "input")]
    assert [answer.request_id for answer in told] == [request.request_id for request in requests]
    run_id = server.requests[0].json["run_id"]
    assert server.requests[1].path == f"/v1/runs/{run_id}/input"
    return [answer.value for answer in told]


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        ("confirmation", True, True),
        ("confirmation", False, False),
        ("confirmation", {"error": "Client session disconnected."}, False),
        ("confirmation", "left from another dialog", False),
        ("confirmation", None, False),
        ("confirmation", RuntimeError("no page"), False),
        ("input", "Paris", "Paris"),
        ("input", "", ""),
        ("input", True, ""),
        ("input", False, None),
        ("input", {"error": "Event call timed out."}, None),
        ("password", "hunter2", "hunter2"),
        ("password", RuntimeError("no page"), None),
    ],
)
async def test_what_the_dialog_gives_is_told_to_the_server(
    server: ScriptedServer, kind: str, given: Any, told: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert await answered(server, Page(given), question(kind=kind)) == [told]
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(("kind", "told"), [("confirmation", False), ("input", None)])
async def test_without_a_page_nobody_is_asked_and_nothing_is_allowed(
    server: ScriptedServer, kind: str, told: Any
) -> None:
    assert await answered(server, None, question(kind=kind)) == [told]


async def test_a_background_task_asks_nobody(server: ScriptedServer) -> None:
    page = Page(True)
    answering = asyncio.create_task(start(a_pipe(server.url), __event_call__=page, __task__="title_generation"))
    server.on("POST", "runs", stream(frames(START, CALL, question()), asyncio.Event()))
    server.on("POST", "input", answer_json({}, 202))
    [told] = await server.seen("POST", "input")
    assert told.json["value"] is False
    assert page.asked == []
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering


async def test_a_dialog_is_not_shown_before_the_page_of_a_new_chat_knows_its_chat(server: ScriptedServer) -> None:
    page = Page(asyncio.Event())
    server.on("POST", "runs", stream(frames(START, CALL, question()), end="hang"))
    began_at = time.monotonic()
    updates = await start(a_pipe(server.url, page_seconds=0.3), __event_call__=page)
    reading = asyncio.create_task(anext(updates))
    await page.opened.wait()
    assert time.monotonic() >= began_at + 0.3
    await reading
    await updates.aclose()


async def test_a_dialog_that_nobody_answers_ends_with_its_time(server: ScriptedServer) -> None:
    page = Page(asyncio.Event())
    assert await answered(server, page, question(timeout_seconds=0.1)) == [False]
    assert page.closed == 1


async def test_several_questions_are_asked_one_after_another(server: ScriptedServer) -> None:
    first = asyncio.Event()
    page = Page(first, "x", False)

    async def answer_the_first() -> None:
        await page.opened.wait()
        first.set()

    answering = asyncio.create_task(answer_the_first())
    requests = (question("1"), question("2", "input", title="Which?"), question("3"))
    assert await answered(server, page, *requests) == [True, "x", False]
    await answering
    assert [event["type"] for event in page.asked] == ["confirmation", "input", "confirmation"]


def test_each_kind_is_open_webuis_own_dialog() -> None:
    asked = question(kind="password", title="A <b>key</b>", message="For x", placeholder="sk-…").model_dump()
    dialog = PIPE.make_dialog(asked)
    assert dialog["type"] == "input"
    message = dialog["data"].pop("message")
    assert dialog["data"] == {"title": "A <b>key</b>", "placeholder": "sk-…", "type": "password"}
    assert ">For x</pre>" in message
    assert PIPE.make_dialog(question().model_dump()) == {
        "type": "confirmation",
        "data": {"title": "Run delete?", "placeholder": "", "message": "", "type": "confirmation"},
    }


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ('{"path": "*.txt", "_x_": "**a**"}', '{"path": "*.txt", "_x_": "**a**"}'),
        ('</pre><img src=x onerror="alert(1)">', '</pre><img src=x onerror="alert(1)">'),
        ("a\n\n```\n# b\n\n&lt;", "a\n\n```\n# b\n\n&lt;"),
        ("safe\u202etxt.exe\u200b\u2066\0\x1b", "safe\\u202etxt.exe\\u200b\\u2066\\x00\\x1b"),
        ("日本語\u3000テスト 😀", "日本語\u3000テスト 😀"),
    ],
)
def test_arguments_are_shown_exactly_and_never_as_markup(message: str, shown: str) -> None:
    drawn = PIPE.make_dialog(question(message=message).model_dump())["data"]["message"]
    # To Markdown everything from <pre up to </pre> is HTML as it stands.
    body = re.fullmatch(r'<pre style="[^"<>]*">([^<>]*)</pre>', drawn)
    assert body
    assert html.unescape(body[1]) == shown
    assert "white-space: pre-wrap" in drawn, "what runs out of the dialog would be allowed unseen"


# --- What the block says meanwhile.


@asynccontextmanager
async def waiting(server: ScriptedServer, kind: str, rendering: str = "details") -> AsyncIterator[Any]:
    """A run whose question is open: yields `until`, which reads on to a state, and what ends the question."""
    hold = asyncio.Event()
    page = Page(asyncio.Event())
    server.on("POST", "input", answer_json({}, 202))
    pipe = a_pipe(server.url)
    pipe.valves.RENDERING = rendering
    seen: list[dict[str, Any]] = []

    async def until(reached: Callable[[list[dict[str, Any]]], Any]) -> None:
        async for update in updates:
            seen.append(update)
            if reached(seen):
                return

    after = ToolStatus(tool_call_id="c", data=ToolStatusData(status="processing", message="approved"))
    other = ToolCallComplete(tool_call_id="d", tool_name="other", result="meanwhile")
    ended: list[Event] = [ToolCallComplete(tool_call_id="c", result="gone"), Done()]
    asked = frames(START, CALL, question(kind=kind), other)
    server.on("POST", "runs", stream(asked, hold, frames(after, *ended, first=5)))
    updates = await start(pipe, __event_call__=page)
    yield until, hold, seen, page
    hold.set()
    await until(lambda _: False)


@pytest.mark.parametrize(
    ("kind", "label"), [("confirmation", "delete · waiting for approval"), ("input", "delete · waiting for you")]
)
async def test_the_block_says_what_it_waits_for_while_others_go_on(
    server: ScriptedServer, kind: str, label: str
) -> None:
    def names(seen: list[dict[str, Any]]) -> list[str]:
        return [block.attributes["name"] for block in tool_blocks(streamed_content(seen))]

    async with waiting(server, kind) as (until, _, seen, _page):
        await until(lambda seen: names(seen) == [label, "other"])
        assert tool_blocks(streamed_content(seen))[1].value("result") == "meanwhile"
    assert names(seen) == ["delete", "other"]


async def test_the_native_item_says_so_too(server: ScriptedServer) -> None:
    async with waiting(server, "confirmation", "native") as (until, _, seen, _page):
        await until(lambda seen: "delete · waiting for approval" in json.dumps(reduce_native(seen), ensure_ascii=False))
    assert reduce_native(seen)[0]["name"] == "delete"


def test_its_next_step_ends_the_waiting() -> None:
    transcript = PIPE.Transcript()
    for event in (
        CALL,
        question(),
        ToolCallError(tool_call_id="c", error="Not run: the user refused it.", code="denied"),
    ):
        transcript.apply(event.model_dump())
    [block] = tool_blocks(transcript.render())
    assert (block.attributes["name"], block.attributes["status"]) == ("delete", "failed")


# --- Endings.


async def test_stop_closes_the_dialog_and_answers_nothing(server: ScriptedServer) -> None:
    page = Page(asyncio.Event())
    server.on("POST", "runs", stream(frames(START, CALL, question()), end="hang"))
    seen: list[dict[str, Any]] = []

    async def consume() -> None:
        updates = await start(a_pipe(server.url), __event_call__=page)
        async for update in updates:
            seen.append(update)  # noqa: PERF401 - kept when it is cancelled

    task = asyncio.create_task(consume())
    await page.opened.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.seen("POST", "cancel")
    await asyncio.gather(*PIPE.background_tasks)
    assert (page.open, page.closed) == (0, 1)
    assert not [request for request in server.requests if request.path.endswith("/input")]
    assert tool_blocks(streamed_content(seen))[0].value("result") == "Error: stopped by the user"


async def test_an_answer_that_the_server_no_longer_wants_does_no_harm(server: ScriptedServer) -> None:
    over = asyncio.Event()
    server.on("POST", "runs", stream(frames(START, CALL, question()), over, frames(Done(), first=4)))
    server.on("POST", "input", answer_error(404, "unknown_input", "there is no open question"))

    async def allow(_: dict[str, Any]) -> bool:
        return True

    page: Callable[[dict[str, Any]], Awaitable[Any]] = allow
    updates = await start(a_pipe(server.url), __event_call__=page)
    seen = [await anext(updates)]
    await server.seen("POST", "input")
    over.set()
    seen += [update async for update in updates]
    assert tool_blocks(streamed_content(seen))[0].attributes["done"] == "true"
