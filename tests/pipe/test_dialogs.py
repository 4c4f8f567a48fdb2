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
    Parked,
    RunStart,
    ToolCallComplete,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from tests.pipe.loader import PIPE, provide_open_webui
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


async def answered(server: ScriptedServer, page: Any, *requests: InputRequest, **fields: Any) -> list[InputAnswer]:
    """Return the answers that the server gets, for a run that waits until every question is answered."""
    over = asyncio.Event()
    server.on("POST", "runs", stream(frames(START, CALL, *requests), over, frames(Done(), first=3 + len(requests))))
    server.on("POST", "input", answer_json({}, 202))

    async def end() -> None:
        await server.seen("POST", "input", len(requests))
        over.set()

    ending = asyncio.create_task(end())
    async for _ in await start(a_pipe(server.url), __event_call__=page, **fields):
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
    monkeypatch.setattr(PIPE, "PAGE_POLL_SECONDS", 0.01)


@pytest.fixture
def old_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PIPE, "VERSION", "0.11.9")


INPUT = question(kind="input")
SURE = question(tool_call_id=None)
ALLOW = {"action": "accept", "content": {"answer": "Allow once"}}
NO_PAGE = RuntimeError("no page")


@pytest.mark.parametrize(
    ("asked", "given", "told", "is_asked"),
    [
        (question(), ALLOW, True, True),
        (question(), {"action": "decline"}, False, True),
        (question(), {"action": "cancel"}, False, True),
        (question(), {"action": "accept"}, False, True),
        (question(), DISCONNECTED, None, False),
        (question(), "left from another dialog", None, True),
        (question(), NO_PAGE, None, False),
        (SURE, {"action": "accept", "content": {}}, True, True),
        (SURE, {"action": "cancel"}, False, True),
        (INPUT, {"action": "accept", "content": {"answer": "Paris"}}, "Paris", True),
        (INPUT, {"action": "decline"}, None, True),
        (question(kind="password"), "hunter2", "hunter2", True),
        (FORM, {"action": "accept", "content": {"cabin": "e"}}, {"cabin": "e"}, True),
        (FORM, {"action": "accept"}, None, True),
        (FORM, {"action": "decline"}, False, True),
        (FORM, DISCONNECTED, None, False),
        (CHOICES, {"action": "accept", "content": {"answer": "blue"}}, "blue", True),
        (OWN_WORDS, {"action": "accept", "content": {"answer": "blue", "other": "teal"}}, "teal", True),
        (URL, {"action": "accept"}, True, True),
        (URL, {"action": "cancel"}, None, True),
    ],
)
async def test_dialog_results_are_sent_and_only_false_is_a_refusal(
    server: ScriptedServer, asked: InputRequest, given: Any, told: Any, is_asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    [answer] = await answered(server, Page(given), asked, __metadata__=SAVED)
    assert (answer.value, answer.asked) == (told, is_asked)
    assert "hunter2" not in caplog.text


async def test_dialog_that_was_open_counts_as_asked(server: ScriptedServer) -> None:
    page = Page(asyncio.Event())
    [answer] = await answered(server, page, question(timeout_seconds=0.3))
    assert (answer.value, answer.asked, page.closed) == (None, True, 1)


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
    page = Page(first, {"action": "accept", "content": {"answer": "x"}}, {"action": "decline"})

    async def answer_the_first() -> None:
        await page.opened.wait()
        first.set()

    answering = asyncio.create_task(answer_the_first())
    requests = (question("1"), question("2", "input", title="Which?"), question("3"))
    assert [answer.value for answer in await answered(server, page, *requests)] == [True, "x", False]
    await answering
    assert {event["type"] for event in page.asked} == {"request:elicitation"}


async def test_the_questions_of_two_answers_in_one_page_are_asked_one_after_another(server: ScriptedServer) -> None:
    """A page shows one dialog: a second one would replace the first, which would then never be answered."""
    first = asyncio.Event()
    page = Page(first, {"action": "decline"})
    server.on("POST", "input", answer_json({}, 202))
    agents = {"ada": "Ada's agent", "bob": "Bob's <i>agent</i>"}
    server.on("GET", "models", answer_json({"data": [{"id": one, "name": name} for one, name in agents.items()]}))
    answers = []
    pipe = a_pipe(server.url)
    await pipe.pipes()
    for agent_id in agents:
        server.on("POST", "runs", stream(frames(START, CALL, question(agent_id)), end="hang"))
        # Open WebUI gives the first model of a chat with several to all of them.
        metadata = {"chat_id": "c", "message_id": agent_id, "session_id": "page", "model": {"name": "Ada's agent"}}
        body = {"model": f"callboard.{agent_id}"}
        given = {"__event_call__": page, "__metadata__": metadata}
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
    names = [event["data"]["server_name"] for event in page.asked]
    assert names == ["Ada's agent asks", "Bob's <i>agent</i> asks"]


async def test_an_open_question_does_not_keep_another_user_of_the_chat_waiting(server: ScriptedServer) -> None:
    server.on("POST", "input", answer_json({}, 202))
    pipe = a_pipe(server.url)
    answers = []
    for user_id, reply in (("ada", asyncio.Event()), ("bob", {"action": "decline"})):
        server.on("POST", "runs", stream(frames(START, CALL, question(user_id)), end="hang"))
        given = {"__event_call__": Page(reply), "__user__": {"id": user_id}, "__metadata__": SAVED}
        answers.append(await start(pipe, **given))
        seen: list[dict[str, Any]] = []
        while "waiting for approval" not in streamed_content(seen):
            seen.append(await anext(answers[-1]))
    [told] = await server.seen("POST", "input")
    assert (told.json["request_id"], told.json["value"]) == ("bob", False)


async def test_password_is_asked_in_the_only_dialog_that_hides_it(server: ScriptedServer) -> None:
    page = Page("hunter2")
    await answered(server, page, question(kind="password"), __metadata__=SAVED)
    [event] = page.asked
    assert (event["type"], event["data"]["type"]) == ("input", "password")


def test_plain_dialogs_have_open_webuis_types() -> None:
    asked = question(kind="password", title="A <b>key</b>", message="For x", placeholder="sk-…").model_dump()
    dialog = PIPE.make_dialog(asked, "Agent")
    assert dialog["type"] == "input"
    message = dialog["data"].pop("message")
    assert dialog["data"] == {"title": "A <b>key</b>", "placeholder": "sk-…", "type": "password"}
    assert ">For x</pre>" in message
    assert PIPE.IF_DECLINED not in message
    confirmation = PIPE.make_dialog(question().model_dump(), "Agent")
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
    drawn = PIPE.make_dialog(question(message=message).model_dump(), "Agent")["data"]["message"]
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


# --- Open WebUI's form, and texts in older versions.


def test_forms_choices_and_addresses_are_drawn_by_open_webui() -> None:
    event = PIPE.make_form(FORM.model_dump(), "Agent")
    assert event["type"] == "request:elicitation"
    drawn = event["data"]
    assert (drawn["mode"], drawn["message"], drawn["requestedSchema"]) == ("form", "Trip\n\nWhich flight?", SCHEMA)
    drawn = PIPE.make_form(URL.model_dump(), "Shop")["data"]
    assert (drawn["mode"], drawn["url"], drawn["server_name"]) == ("url", URL.url, "Shop asks")
    choice = {"type": "string", "title": "Answer", "enum": ["red", "blue"]}
    assert PIPE.make_schema(CHOICES.model_dump(mode="json")) == {
        "type": "object",
        "properties": {"answer": choice},
        "required": ["answer"],
    }
    own_words = PIPE.make_schema(OWN_WORDS.model_dump(mode="json"))
    assert (list(own_words["properties"]), own_words["required"]) == (["answer", "other"], [])


CHANGEABLE = {"seats": {"type": "integer", "default": 2}, "play": {"type": "string", "default": "Hamlet\u202e"}}
CHANGES = {"type": "object", "required": ["play"], "properties": CHANGEABLE}
UNCHANGED = {"argument seats": 2, "argument play": "Hamlet"}
GIVEN = {"arguments": {"seats": 2, "play": "Hamlet"}, "always": False}
ALWAYS = {"answer": "Allow always in this chat"}


@pytest.mark.parametrize(
    ("schema", "given", "told"),
    [
        ({}, {"answer": "Allow once"}, True),
        ({}, ALWAYS, "always"),
        ({}, {"answer": "Other"}, False),
        ({}, {"answer": "Allow once", "words": " Ask Ada\n"}, {"words": "Ask Ada"}),
        ({}, ALWAYS | {"words": "  "}, "always"),
        # Also unchanged: the form of a question that is asked again has what the user wrote, not what the model did.
        (CHANGES, UNCHANGED | {"answer": "Allow once"}, GIVEN),
        # Open WebUI returns nothing for a number that the user deletes.
        (
            CHANGES,
            {"answer": "Allow once", "argument play": "Hamlet"},
            GIVEN | {"arguments": {"seats": None, "play": "Hamlet"}},
        ),
        (CHANGES, UNCHANGED | ALWAYS, GIVEN | {"always": True}),
        (CHANGES, UNCHANGED | ALWAYS | {"argument seats": 9, "words": "No."}, {"words": "No."}),
    ],
)
async def test_approval_form_offers_once_always_changes_and_words(
    server: ScriptedServer, schema: Any, given: Any, told: Any
) -> None:
    page = Page({"action": "accept", "content": given})
    message = "seats: 2 ▸ play: Macbeth\nbody:\n    Dear <b>Ada</b>,\u202e\n    to: bob"
    asked = question(title="Sell a ticket?", message=message, remember=True, schema=schema)
    [answer] = await answered(server, page, asked, __metadata__=SAVED)
    assert answer.value == told
    [event] = page.asked
    assert event["type"] == "request:elicitation"
    drawn = event["data"]
    assert (drawn["mode"], drawn["server_name"]) == ("form", "assistant asks")
    shown = "▸ seats: 2 \\u25b8 play: Macbeth\n▸ body:\n    Dear <b>Ada</b>,\\u202e\n    to: bob"
    assert drawn["message"] == f"Sell a ticket?\n\n{shown}"
    fields = drawn["requestedSchema"]["properties"]
    changes = ["argument seats", "argument play"] if schema else []
    assert list(fields) == ["answer", *changes, "words"]
    assert fields["answer"]["enum"] == ["Allow once", "Allow always in this chat"]
    assert fields["answer"]["default"] == "Allow once"
    assert drawn["requestedSchema"]["required"] == ["answer", *changes[1:]]
    if schema:
        assert fields["argument play"] == {"type": "string", "default": "Hamlet\\u202e", "title": "Change “play”"}


# --- The pages of the user.


class Pages:
    """The pages that are connected to Open WebUI, by their sessions."""

    def __init__(self) -> None:
        self.pool: dict[str, dict[str, Any]] = {}
        self.asked: asyncio.Queue[tuple[str, asyncio.Future[Any]]] = asyncio.Queue()
        self.closed: asyncio.Queue[str] = asyncio.Queue()
        self.emitted: asyncio.Queue[tuple[dict[str, Any], dict[str, Any]]] = asyncio.Queue()
        self.unread: list[tuple[str, str]] = []

    def show(self, session: str, chat_id: str = "c", user_id: str = "ada") -> None:
        """A page of the user shows this chat from now on."""
        self.pool[session] = {"id": user_id, "chat_ids": [chat_id]}

    async def get_event_call(self, metadata: dict[str, Any]) -> Any:
        session = metadata["session_id"]
        assert self.pool[session]["id"] == metadata["user_id"]

        async def call(event: dict[str, Any]) -> Any:
            assert event["data"]["session_id"] == session, "Open WebUI would ask another page when this one is closed"
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.asked.put_nowait((session, answer))
            try:
                return await answer
            finally:
                self.closed.put_nowait(session)

        return call

    async def get_event_emitter(self, place: dict[str, Any], *, update_db: bool) -> Any:
        assert not update_db

        async def emit(event: dict[str, Any]) -> None:
            self.emitted.put_nowait((place, event))

        return emit

    async def mark_unread(self, chat_id: str, user_id: str) -> None:
        self.unread.append((chat_id, user_id))


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    pages = Pages()
    members = {
        "SESSION_POOL": pages.pool,
        "get_event_call": pages.get_event_call,
        "get_event_emitter": pages.get_event_emitter,
    }
    chats = SimpleNamespace(mark_chat_unread_by_id=pages.mark_unread)
    provide_open_webui(monkeypatch, {"socket.main": members, "models.chats": {"Chats": chats}})
    return pages


ADA = {"__metadata__": SAVED | {"user_id": "ada"}, "__user__": {"id": "ada"}}
APPROVE = question("approve:c", title="Send an e-mail?", can_wait=True)


async def test_a_question_is_asked_in_every_page_that_shows_the_chat_and_the_first_answer_closes_the_others(
    server: ScriptedServer, pages: Pages
) -> None:
    pages.pool["page"] = {"id": "ada"}  # It has not joined its new chat yet.
    pages.show("phone")
    pages.show("other chat", "d")
    pages.show("other user", user_id="bob")
    asking = asyncio.create_task(answered(server, Page(), APPROVE, **ADA))
    open_forms = dict([await pages.asked.get() for _ in range(2)])
    assert set(open_forms) == {"page", "phone"}
    # A page that is opened later has the question too.
    pages.show("tablet")
    session, answer = await pages.asked.get()
    assert session == "tablet"
    answer.set_result(ALLOW)
    [told] = await asking
    assert (told.value, told.asked) == (True, True)
    assert sorted([await pages.closed.get() for _ in range(3)]) == ["page", "phone", "tablet"]
    assert pages.asked.empty()
    assert pages.emitted.empty()


async def test_a_page_that_leaves_the_chat_and_comes_back_is_asked_again(server: ScriptedServer, pages: Pages) -> None:
    pages.show("page")
    pages.show("phone")
    asking = asyncio.create_task(answered(server, Page(), APPROVE, **ADA))
    open_forms = dict([await pages.asked.get() for _ in range(2)])
    pages.show("page", "d")
    open_forms["page"].set_result(ELSEWHERE)
    del pages.pool["phone"]
    pages.show("phone again")
    open_forms["phone"].set_result(DISCONNECTED)
    session, _ = await pages.asked.get()
    assert session == "phone again"
    pages.show("page")
    session, answer = await pages.asked.get()
    assert session == "page"
    answer.set_result(TIMED_OUT)
    session, answer = await pages.asked.get()
    answer.set_result({"action": "decline"})
    [told] = await asking
    assert (session, told.value) == ("page", False)


async def test_a_plain_dialog_closes_in_a_page_that_leaves_the_chat(server: ScriptedServer, pages: Pages) -> None:
    pages.show("page")
    asking = asyncio.create_task(answered(server, Page(), question(kind="password"), **ADA))
    await pages.asked.get()
    pages.show("page", "d")
    assert await pages.closed.get() == "page"
    pages.show("page")
    _, answer = await pages.asked.get()
    answer.set_result("hunter2")
    [told] = await asking
    assert told.value == "hunter2"


@pytest.mark.parametrize("is_open_first", [True, False])
async def test_a_call_that_can_wait_waits_as_soon_as_no_page_shows_its_chat(
    server: ScriptedServer, pages: Pages, is_open_first: bool
) -> None:
    if is_open_first:
        pages.show("page")
    asking = asyncio.create_task(answered(server, Page(), APPROVE, **ADA))
    if is_open_first:
        _, answer = await pages.asked.get()
        del pages.pool["page"]
        answer.set_result(DISCONNECTED)
    [told] = await asking
    assert (told.value, told.asked) == (None, False)


async def test_the_person_is_called_once_to_a_question_that_cannot_wait_and_asked_when_they_come(
    server: ScriptedServer, pages: Pages
) -> None:
    pages.show("page", "d")
    asking = asyncio.create_task(answered(server, Page(), question(title="Which <b>seat</b>?\u202e", **CABIN), **ADA))
    _, answer = await pages.asked.get()
    # The page of the request is asked although it shows another chat, because that of a new chat joins it late.
    answer.set_result(ELSEWHERE)
    (_, listed), (place, toast) = [await pages.emitted.get() for _ in range(2)]
    assert pages.unread == [("c", "ada")]
    assert listed["type"] == "chat:list"
    assert (place["chat_id"], place["user_id"]) == ("c", "ada")
    assert place["message_id"] != "m", "a page that shows the chat would end its answer"
    title = "assistant asks: Which <b>seat</b>?\\u202e"
    assert toast["data"] == {"done": True, "title": title, "content": PIPE.WAITS}
    pages.show("page")
    _, answer = await pages.asked.get()
    answer.set_result({"action": "accept", "content": {"cabin": "e"}})
    [told] = await asking
    assert told.value == {"cabin": "e"}
    assert pages.emitted.empty()


CABIN: dict[str, Any] = {"kind": "form", "schema": SCHEMA}


async def test_a_question_that_is_answered_elsewhere_closes_while_its_call_runs(
    server: ScriptedServer, pages: Pages
) -> None:
    pages.show("page")
    data = ToolStatusData(status="processing", message="approved in the inspector")
    approved = frames(ToolStatus(tool_call_id="c", data=data), first=4)
    hold = asyncio.Event()
    server.on("POST", "runs", stream(frames(START, CALL, APPROVE), hold, approved, end="hang"))
    updates = await start(a_pipe(server.url), **ADA, __event_call__=Page())
    reading = asyncio.create_task(collect(updates))
    await pages.asked.get()
    assert pages.closed.empty()
    hold.set()
    assert await pages.closed.get() == "page"
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert not [request for request in server.requests if request.path.endswith("/input")]


async def collect(updates: Any) -> list[Any]:
    return [update async for update in updates]


@pytest.mark.parametrize("is_shown", [True, False])
async def test_the_person_is_called_to_a_run_that_waits_unless_a_page_shows_its_chat(
    server: ScriptedServer, pages: Pages, is_shown: bool
) -> None:
    pages.show("phone" if is_shown else "page", "c" if is_shown else "d")
    parked = Parked(tool_call_ids=("c",))
    server.on("POST", "runs", stream(frames(START, CALL, APPROVE, parked)))
    server.on("POST", "input", answer_json({}, 202))
    given: dict[str, Any] = ADA | {"__metadata__": ADA["__metadata__"] | {"tools": {}, "params": {}}}
    await collect(await start(a_pipe(server.url), **given, __event_call__=Page()))
    await asyncio.gather(*PIPE.background_tasks)
    emitted = [pages.emitted.get_nowait()[1] for _ in range(pages.emitted.qsize())]
    assert [event["type"] for event in emitted] == ([] if is_shown else ["chat:list", "chat:completion"])
    assert is_shown or emitted[1]["data"]["title"] == "assistant: Send an e-mail?"


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
