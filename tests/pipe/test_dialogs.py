"""Questions to the user: Open WebUI's dialogs, forms and permissions, one after another, while the stream goes on."""

import asyncio
import html
import re
import time
from types import SimpleNamespace
from typing import Any

import pytest

from callboard_protocol import (
    Done,
    InputAnswer,
    InputRequest,
    RunStart,
    ToolCallComplete,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from tests.pipe.loader import PIPE, load_function
from tests.pipe.owui_blocks import streamed_content, tool_blocks
from tests.pipe.scripted_server import ScriptedServer, answer_json, frames, stream
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
SCHEMA = {
    "type": "object",
    "required": ["cabin"],
    "properties": {
        "cabin": {"type": "string", "title": "Cabin", "oneOf": [{"const": "e", "title": "Economy"}]},
        "bags": {"type": "integer", "description": "How many?", "default": 1},
        "refundable": {"type": "boolean"},
    },
}
FORM = question(kind="form", title="Trip", message="Which flight?", schema=SCHEMA)
CHOICES = question(kind="input", choices=("red", "blue"))
OWN_WORDS = question(kind="input", choices=("red", "blue"), other=True)
URL = question(kind="confirmation", title="Pay", message="Please pay.", url="https://pay.example/1")
APPROVAL = question(arguments={"path": "/\u202e", "force": True})
ELSEWHERE = {"status": "cancelled", "answers": {}}
SAVED = {"chat_id": "c", "message_id": "m", "session_id": "page"}


@pytest.fixture(autouse=True)
def new_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIPE, "VERSION", "0.12.4")
    monkeypatch.setattr(PIPE, "ELSEWHERE_SECONDS", 0.0)


@pytest.fixture
def old_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIPE, "VERSION", "0.11.9")


INPUT = question(kind="input")
NO_PAGE = RuntimeError("no page")


@pytest.mark.parametrize(
    ("asked", "given", "told", "is_asked"),
    [
        (question(), True, True, True),
        (question(), False, False, True),
        (question(), DISCONNECTED, None, False),
        (question(), TIMED_OUT, None, True),
        (question(), "left from another dialog", None, True),
        (question(), NO_PAGE, None, False),
        (INPUT, "Paris", "Paris", True),
        (question(kind="password"), "hunter2", "hunter2", True),
        (FORM, {"action": "accept", "content": {"cabin": "e"}}, {"cabin": "e"}, True),
        (FORM, {"action": "accept"}, None, True),
        (FORM, {"action": "decline"}, False, True),
        (FORM, DISCONNECTED, None, False),
        (CHOICES, {"action": "accept", "content": {"answer": "blue"}}, "blue", True),
        (OWN_WORDS, {"action": "accept", "content": {"answer": "blue", "other": "teal"}}, "teal", True),
        (URL, {"action": "accept"}, True, True),
        (APPROVAL, False, False, True),
        (APPROVAL, DISCONNECTED, None, False),
    ],
)
async def test_dialog_results_are_sent_and_only_false_is_a_refusal(
    server: ScriptedServer, asked: InputRequest, given: Any, told: Any, is_asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    [answer] = await answered(server, Page(given), asked, __metadata__=SAVED)
    assert (answer.value, answer.asked) == (told, is_asked)
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("given", [DISCONNECTED, asyncio.Event()], ids=["page closed", "out of time"])
async def test_dialog_that_was_open_counts_as_asked(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    monkeypatch.setattr(PIPE, "MIN_DIALOG_SECONDS", 0.0)
    page = Page(given)
    [answer] = await answered(server, page, question(timeout_seconds=0.1))
    assert (answer.value, answer.asked) == (None, True)
    assert page.closed == (given is not DISCONNECTED)


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
        ("safe\u202etxt.exe\u200b\u2066\0\x1b", "safe\\u202etxt.exe\\u200b\\u2066\\x00\\x1b"),
    ],
)
def test_arguments_are_shown_exactly_and_never_as_markup(message: str, shown: str) -> None:
    drawn = PIPE.make_dialog(question(message=message).model_dump(), "Agent", "")["data"]["message"]
    # To Markdown everything from <pre up to </pre> is HTML as it stands.
    body = re.search(r'<pre style="[^"<>]*">((?:[^<>]|<b>[^<>]*</b>)*)</pre>\n\n<p ', drawn)
    assert body
    assert html.unescape(re.sub("</?b>", "", body[1])) == shown
    assert "white-space: pre-wrap" in drawn, "what runs out of the dialog would be allowed unseen"


# --- Meanwhile.


async def test_the_card_says_that_it_waits_while_others_go_on(server: ScriptedServer) -> None:
    hold = asyncio.Event()
    other = ToolCallComplete(tool_call_id="d", tool_name="other", result="meanwhile")
    after = ToolStatus(tool_call_id="c", data=ToolStatusData(status="processing", message="approved"))
    rest = frames(after, ToolCallComplete(tool_call_id="c", result="gone"), Done(), first=5)
    server.on("POST", "runs", stream(frames(START, CALL, question(), other), hold, rest))
    server.on("POST", "input", answer_json({}, 202))
    seen: list[dict[str, Any]] = []
    updates = await start(a_pipe(server.url), __event_call__=Page(asyncio.Event()))
    while not {"delete · waiting for approval", "other"} <= set(names(seen)):
        seen.append(await anext(updates))
    hold.set()
    seen += [update async for update in updates]
    assert names(seen) == ["delete", "other"]


def names(seen: list[dict[str, Any]]) -> list[str]:
    return [block.attributes["name"] for block in tool_blocks(streamed_content(seen))]


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


# --- Forms, choices, addresses and permissions: dialogs of Open WebUI 0.12, and texts in older versions.


def test_forms_choices_and_addresses_are_drawn_by_open_webui() -> None:
    event = PIPE.make_form(FORM.model_dump(), "Agent asks")
    assert event["type"] == "request:elicitation"
    drawn = event["data"]
    assert (drawn["mode"], drawn["message"], drawn["requestedSchema"]) == ("form", "Trip\n\nWhich flight?", SCHEMA)
    drawn = PIPE.make_form(URL.model_dump(), "Shop asks (1 of 2)")["data"]
    assert (drawn["mode"], drawn["url"], drawn["server_name"]) == ("url", URL.url, "Shop asks (1 of 2)")
    choice = {"type": "string", "title": "Answer", "enum": ["red", "blue"]}
    assert PIPE.make_schema(CHOICES.model_dump(mode="json")) == {
        "type": "object",
        "properties": {"answer": choice},
        "required": ["answer"],
    }
    own_words = PIPE.make_schema(OWN_WORDS.model_dump(mode="json"))
    assert (list(own_words["properties"]), own_words["required"]) == (["answer", "other"], [])


async def test_approval_is_open_webuis_own_permission(server: ScriptedServer) -> None:
    page = Page(True)
    await answered(server, page, APPROVAL, __metadata__=SAVED)
    [event] = page.asked
    call = event["data"]["tool_call"]
    assert (event["type"], call["id"], call["name"]) == ("confirmation", "c", "Run delete? · assistant asks")
    assert call["arguments"] == {"path": "/\\u202e", "force": True}


@pytest.mark.parametrize("chat_id", ["", "temporary:1"])
async def test_permission_is_not_used_where_open_webui_would_allow_it_unasked(
    server: ScriptedServer, chat_id: str
) -> None:
    page = Page(True)
    await answered(server, page, APPROVAL, __metadata__=SAVED | {"chat_id": chat_id})
    assert "tool_call" not in page.asked[0]["data"]
    assert PIPE.IF_DECLINED in page.asked[0]["data"]["message"]


@pytest.mark.parametrize("arguments", [None, '{"path": "too lo'])
async def test_approval_without_all_arguments_is_drawn_from_its_message(
    server: ScriptedServer, arguments: str | None
) -> None:
    page = Page(True)
    await answered(server, page, question(arguments=arguments, message="path: /"), __metadata__=SAVED)
    assert "<b>path:</b> /" in page.asked[0]["data"]["message"]


@pytest.mark.parametrize("asked", [FORM, APPROVAL])
async def test_question_waits_until_its_chat_is_in_view(
    server: ScriptedServer, asked: InputRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, ...]] = []

    async def notify(page: Any, line: str) -> bool:
        told.append((page.user["id"], page.session_id, page.chat_id, line))
        return len(told) == 2

    monkeypatch.setattr(PIPE, "notify_page", notify)
    page = Page(ELSEWHERE, ELSEWHERE, ELSEWHERE, {"action": "cancel"})
    [answer] = await answered(server, page, asked, __metadata__=SAVED, __user__={"id": "ada"})
    assert (answer.value, answer.asked) == (None, True)
    assert len(page.asked) == 4
    assert told == [("ada", "page", "c", f"assistant asks: {asked.title}")] * 2


async def test_question_whose_chat_is_never_in_view_is_not_asked(server: ScriptedServer) -> None:
    class Elsewhere(Page):
        async def __call__(self, event: dict[str, Any]) -> Any:
            await asyncio.sleep(0)
            return ELSEWHERE

    asked = question(kind="form", schema=SCHEMA, timeout_seconds=0.2)
    [answer] = await answered(server, Elsewhere(), asked, __metadata__=SAVED)
    assert (answer.value, answer.asked) == (None, False)


async def test_dialog_that_open_webui_ends_is_opened_again_within_the_questions_time(server: ScriptedServer) -> None:
    page = Page(TIMED_OUT, {"action": "accept", "content": {"cabin": "e"}})
    asked = question(kind="form", schema=SCHEMA, timeout_seconds=60)
    [answer] = await answered(server, page, asked, __metadata__=SAVED)
    assert answer.value == {"cabin": "e"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"action": "accept", "content": {"answer": "Allow once"}}, True),
        ({"action": "accept", "content": {"answer": "Allow always in this chat"}}, "always"),
        ({"action": "cancel"}, False),
    ],
)
async def test_approval_form_offers_to_allow_the_tool_always(server: ScriptedServer, given: Any, told: Any) -> None:
    page = Page(given)
    asked = question(arguments={"path": "/"}, message="path: /", remember=True)
    [answer] = await answered(server, page, asked, __metadata__=SAVED, approvals="form")
    assert answer.value == told
    drawn = page.asked[0]["data"]
    assert drawn["message"] == f"Run delete?\n\npath: /\n\n{PIPE.IF_DECLINED}"
    assert drawn["requestedSchema"]["properties"]["answer"]["enum"] == ["Allow once", "Allow always in this chat"]


CHANGEABLE = {"seats": {"type": "integer", "default": 2}, "play": {"type": "string", "default": "Hamlet"}}
UNCHANGED = {"argument seats": 2, "argument play": "Hamlet"}
GIVEN = {"arguments": {"seats": 2, "play": "Hamlet"}, "always": False}


@pytest.mark.parametrize(
    ("given", "told", "remember"),
    [
        # Also unchanged: the form of a question that is asked again has what the user wrote, not what the model did.
        (UNCHANGED, GIVEN, True),
        # Open WebUI returns nothing for a number that the user deletes.
        ({"argument play": "Hamlet"}, GIVEN | {"arguments": {"seats": None, "play": "Hamlet"}}, True),
        ({"answer": "Other", "argument seats": 3}, False, True),
        (UNCHANGED | {"answer": "Allow always in this chat"}, GIVEN | {"always": True}, True),
    ],
)
async def test_approval_form_has_the_arguments_that_can_be_changed(
    server: ScriptedServer, given: Any, told: Any, remember: bool
) -> None:
    page = Page({"action": "accept", "content": {"answer": "Allow once"} | given})
    schema = {"type": "object", "required": ["play"], "properties": CHANGEABLE}
    asked = question(arguments={"seats": 2, "play": "Hamlet"}, remember=remember, schema=schema)
    [answer] = await answered(server, page, asked, __metadata__=SAVED, approvals="form")
    assert answer.value == told
    drawn = page.asked[0]["data"]["requestedSchema"]
    assert drawn["required"] == ["answer", "argument play"]
    assert drawn["properties"]["argument seats"] == {"type": "integer", "default": 2, "title": "seats"}
    assert ("Allow always in this chat" in drawn["properties"]["answer"]["enum"]) is remember


@pytest.mark.usefixtures("old_version")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["1", "2", ""], {"cabin": "1", "bags": "2", "refundable": ""}),
        (["1", False], False),
        (["1", DISCONNECTED], None),
    ],
)
async def test_older_versions_ask_for_each_field(server: ScriptedServer, given: list[Any], told: Any) -> None:
    page = Page(*given)
    [answer] = await answered(server, page, FORM, __metadata__=SAVED)
    assert answer.value == told
    first, second = (event["data"] for event in page.asked[:2])
    assert (first["title"], second["title"], second["placeholder"]) == ("Cabin", "bags", "1")
    assert "1. Economy\nA number, or the words</pre>" in first["message"]
    assert f"How many?\n{PIPE.IF_EMPTY}</pre>" in second["message"]


@pytest.mark.usefixtures("old_version")
@pytest.mark.parametrize(
    ("asked", "kind", "shown"),
    [
        (CHOICES, "input", "1. red\n2. blue\nA number, or the words</pre>"),
        (URL, "confirmation", f"Please pay.\n\n{PIPE.OPEN_URL}\nhttps://pay.example/1</pre>"),
        (APPROVAL, "confirmation", PIPE.IF_DECLINED),
    ],
)
async def test_older_versions_ask_in_a_text(server: ScriptedServer, asked: InputRequest, kind: str, shown: str) -> None:
    page = Page("2" if kind == "input" else True)
    [answer] = await answered(server, page, asked, __metadata__=SAVED)
    assert answer.value == ("2" if kind == "input" else True)
    [event] = page.asked
    assert event["type"] == kind
    assert shown in event["data"]["message"]
    assert (PIPE.IF_DECLINED in event["data"]["message"]) == (asked is APPROVAL)
