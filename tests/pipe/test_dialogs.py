"""Questions to the user: Open WebUI's own dialogs, one after another, while the stream goes on."""

import asyncio
import html
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from callboard_protocol import (
    Done,
    Event,
    InputAnswer,
    InputRequest,
    RunStart,
    ToolCallComplete,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from tests.pipe.loader import PIPE, load_function
from tests.pipe.owui_blocks import reduce_native, streamed_content, tool_blocks
from tests.pipe.scripted_server import ScriptedServer, answer_json, error_response, frames, stream
from tests.pipe.test_stream import a_pipe, start

START = RunStart(run_id="r", agent="a")
CALL = ToolCallStart(tool_call_id="c", tool_name="delete", tool_args={"path": "/"})


def question(request_id: str = "q", kind: Any = "confirmation", **fields: Any) -> InputRequest:
    return InputRequest(
        **{"request_id": request_id, "kind": kind, "title": "Run delete?", "tool_call_id": "c"} | fields
    )


class Page:
    """The browser tab: records the dialogs, and returns the answers of the test."""

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


async def answered(
    server: ScriptedServer, page: Any, *requests: InputRequest, approvals: str = "permission", **fields: Any
) -> list[InputAnswer]:
    """Return the answers that the server gets, for a run that waits until every question is answered."""
    over = asyncio.Event()
    server.on("POST", "runs", stream(frames(START, CALL, *requests), over, frames(Done(), first=3 + len(requests))))
    server.on("POST", "input", answer_json({}, 202))

    async def end() -> None:
        await server.seen("POST", "input", len(requests))
        over.set()

    ending = asyncio.create_task(end())
    pipe = a_pipe(server.url)
    pipe.valves.APPROVALS = approvals
    async for _ in await start(pipe, __event_call__=page, **fields):
        pass
    await ending
    told = [InputAnswer.model_validate(request.json) for request in await server.seen("POST", "input")]
    assert [answer.request_id for answer in told] == [request.request_id for request in requests]
    run_id = server.requests[0].json["run_id"]
    assert server.requests[1].path == f"/v1/runs/{run_id}/input"
    return told


DISCONNECTED = {"error": "Client session disconnected."}
TIMED_OUT = {"error": "Event call timed out. The browser tab may be inactive or closed."}


@pytest.mark.parametrize(
    ("kind", "given", "told", "asked"),
    [
        ("confirmation", True, True, True),
        ("confirmation", False, False, True),
        ("confirmation", DISCONNECTED, None, False),
        ("confirmation", TIMED_OUT, None, True),
        ("confirmation", "left from another dialog", None, True),
        ("confirmation", None, None, True),
        ("confirmation", RuntimeError("no page"), None, False),
        ("input", "Paris", "Paris", True),
        ("input", "", "", True),
        ("input", True, "", True),
        ("input", False, None, True),
        ("input", DISCONNECTED, None, False),
        ("input", TIMED_OUT, None, True),
        ("password", "hunter2", "hunter2", True),
        ("password", RuntimeError("no page"), None, False),
    ],
)
async def test_dialog_results_are_sent_and_only_false_is_a_refusal(
    server: ScriptedServer, kind: str, given: Any, told: Any, asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    [answer] = await answered(server, Page(given), question(kind=kind))
    assert (answer.value, answer.asked) == (told, asked)
    assert "hunter2" not in caplog.text


async def test_page_closed_during_the_dialog_counts_as_asked(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PIPE, "MIN_DIALOG_SECONDS", 0.0)
    [answer] = await answered(server, Page(DISCONNECTED), question())
    assert (answer.value, answer.asked) == (None, True)


@pytest.mark.parametrize("kind", ["confirmation", "input"])
async def test_session_without_a_page_is_reported_as_not_asked(server: ScriptedServer, kind: str) -> None:
    [answer] = await answered(server, None, question(kind=kind))
    assert (answer.value, answer.asked) == (None, False)


async def test_background_task_does_not_ask_the_user(server: ScriptedServer) -> None:
    page = Page(True)
    answering = asyncio.create_task(start(a_pipe(server.url), __event_call__=page, __task__="title_generation"))
    server.on("POST", "runs", stream(frames(START, CALL, question()), asyncio.Event()))
    server.on("POST", "input", answer_json({}, 202))
    [told] = await server.seen("POST", "input")
    assert (told.json["value"], told.json["asked"]) == (None, False)
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


async def test_unanswered_dialog_ends_at_its_timeout(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIPE, "MIN_DIALOG_SECONDS", 0.0)
    page = Page(asyncio.Event())
    [answer] = await answered(server, page, question(timeout_seconds=0.1))
    assert (answer.value, answer.asked) == (None, True)
    assert page.closed == 1


async def test_several_questions_are_asked_one_after_another(server: ScriptedServer) -> None:
    first = asyncio.Event()
    page = Page(first, "x", False)

    async def answer_the_first() -> None:
        await page.opened.wait()
        first.set()

    answering = asyncio.create_task(answer_the_first())
    requests = (question("1"), question("2", "input", title="Which?"), question("3"))
    assert [answer.value for answer in await answered(server, page, *requests)] == [True, "x", False]
    await answering
    places = [re.search(r"asks \((\d of \d)\)", event["data"]["message"]) for event in page.asked]
    assert [event["type"] for event in page.asked] == ["confirmation", "input", "confirmation"]
    assert [place and place[1] for place in places] == ["1 of 3", "2 of 3", "3 of 3"]


async def test_the_questions_of_two_answers_in_one_page_are_asked_one_after_another(server: ScriptedServer) -> None:
    """A page shows one dialog: a second one would replace the first, which would then never be answered."""
    first = asyncio.Event()
    page = Page(first, False)
    server.on("POST", "input", answer_json({}, 202))
    agents = {"ada": "Ada's agent", "bob": "Bob's <i>agent</i>"}
    server.on("GET", "models", answer_json({"data": [{"id": one, "name": name} for one, name in agents.items()]}))
    answers = []
    request = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace()))
    for agent_id in agents:
        server.on("POST", "runs", stream(frames(START, CALL, question(agent_id)), end="hang"))
        # Open WebUI gives the first model of a chat with several to all of them.
        metadata = {"chat_id": "c", "message_id": agent_id, "session_id": "page", "model": {"name": "Ada's agent"}}
        pipe = a_pipe(server.url)
        await pipe.pipes()
        body = {"model": f"callboard.{agent_id}"}
        given = {"__event_call__": page, "__metadata__": metadata, "__request__": request}
        answers.append(await start(pipe, body=body, **given))
        seen: list[dict[str, Any]] = []
        while "waiting for approval" not in streamed_content(seen):
            seen.append(await anext(answers[-1]))
        await page.opened.wait()
    first.set()
    told = await server.seen("POST", "input", 2)
    assert [(answer.json["request_id"], answer.json["value"]) for answer in told] == [
        ("ada", True),
        ("bob", False),
    ]
    assert "<b>Ada&#x27;s agent</b> asks" in page.asked[0]["data"]["message"]
    assert "<b>Bob&#x27;s &lt;i&gt;agent&lt;/i&gt;</b> asks (2 of 2)" in page.asked[1]["data"]["message"]


def test_all_pipes_share_the_queue_of_a_page_and_no_users_share_one() -> None:
    request = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace()))

    def find_queue(user_id: str, session_id: str, module: Any = PIPE) -> Any:
        return module.find_queue(module.Page("m", {"id": user_id}, {"session_id": session_id}, request))

    mine = find_queue("ada", "page")
    assert find_queue("ada", "page", load_function("callboard_pipe.py")) is mine, "pipes of two servers share a page"
    assert find_queue("bob", "page") is not mine
    assert find_queue("ada", "") is not find_queue("ada", "")


def test_each_kind_of_question_opens_open_webuis_dialog() -> None:
    asked = question(kind="password", title="A <b>key</b>", message="For x", placeholder="sk-…").model_dump()
    dialog = PIPE.make_dialog(asked, "Agent", "")
    assert dialog["type"] == "input"
    message = dialog["data"].pop("message")
    assert dialog["data"] == {"title": "A <b>key</b>", "placeholder": "sk-…", "type": "password"}
    assert ">For x</pre>" in message
    assert PIPE.IF_DECLINED not in message
    confirmation = PIPE.make_dialog(question().model_dump(), "Agent", "")
    assert confirmation["type"] == confirmation["data"]["type"] == "confirmation"
    assert PIPE.IF_DECLINED in confirmation["data"]["message"]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("path: *.txt\n_x_:\n    **a**\n    - b", "path: *.txt\n_x_:\n    **a**\n    - b"),
        ('</pre><img src=x onerror="alert(1)">', '</pre><img src=x onerror="alert(1)">'),
        ("a\n\n```\n# b\n\n&lt;", "a\n\n```\n# b\n\n&lt;"),
        ("safe\u202etxt.exe\u200b\u2066\0\x1b", "safe\\u202etxt.exe\\u200b\\u2066\\x00\\x1b"),
        ("日本語\u3000テスト 😀", "日本語\u3000テスト 😀"),
    ],
)
def test_arguments_are_shown_exactly_and_never_as_markup(message: str, shown: str) -> None:
    drawn = PIPE.make_dialog(question(message=message).model_dump(), "Agent", "")["data"]["message"]
    # To Markdown everything from <pre up to </pre> is HTML as it stands.
    body = re.search(r'<pre style="[^"<>]*">((?:[^<>]|<b>[^<>]*</b>)*)</pre>\n\n<p ', drawn)
    assert body
    assert html.unescape(re.sub("</?b>", "", body[1])) == shown
    assert "white-space: pre-wrap" in drawn, "what runs out of the dialog would be allowed unseen"


def test_the_names_of_arguments_are_bold_and_nothing_in_a_value_is() -> None:
    message = "note: to: ada\ntext:\n    seats: 3\nseats: 2"
    drawn = PIPE.make_dialog(question(message=message).model_dump(), "Agent", "")
    assert re.findall("<b>.*?:</b>", drawn["data"]["message"]) == ["<b>note:</b>", "<b>text:</b>", "<b>seats:</b>"]


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


async def test_native_item_shows_that_it_waits_for_the_user(server: ScriptedServer) -> None:
    async with waiting(server, "confirmation", "native") as (until, _, seen, _page):
        await until(lambda seen: "delete · waiting for approval" in json.dumps(reduce_native(seen), ensure_ascii=False))
    assert reduce_native(seen)[0]["name"] == "delete"


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
    assert tool_blocks(streamed_content(seen))[0].value("result") == "Stopped by the user"


async def test_an_answer_that_the_server_no_longer_wants_does_no_harm(server: ScriptedServer) -> None:
    over = asyncio.Event()
    server.on("POST", "runs", stream(frames(START, CALL, question()), over, frames(Done(), first=4)))
    server.on("POST", "input", error_response(404, "unknown_input", "there is no open question"))

    async def allow(_: dict[str, Any]) -> bool:
        return True

    page: Callable[[dict[str, Any]], Awaitable[Any]] = allow
    updates = await start(a_pipe(server.url), __event_call__=page)
    seen = [await anext(updates)]
    await server.seen("POST", "input")
    over.set()
    seen += [update async for update in updates]
    assert tool_blocks(streamed_content(seen))[0].attributes["done"] == "true"
