"""Forms, choices, addresses and permissions in the dialogs of Open WebUI 0.12, and as texts in older versions."""

import asyncio
from typing import Any

import pytest

from callboard_protocol import InputRequest
from tests.pipe.loader import PIPE, provide_open_webui
from tests.pipe.scripted_server import ScriptedServer
from tests.pipe.test_dialogs import DISCONNECTED, TIMED_OUT, Page, answered, question

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


@pytest.mark.parametrize(
    ("asked", "given", "told", "is_asked"),
    [
        (FORM, {"action": "accept", "content": {"cabin": "e"}}, {"cabin": "e"}, True),
        (FORM, {"action": "accept"}, None, True),
        (FORM, {"action": "decline"}, False, True),
        (FORM, {"action": "cancel"}, None, True),
        (FORM, DISCONNECTED, None, False),
        (CHOICES, {"action": "accept", "content": {"answer": "blue"}}, "blue", True),
        (CHOICES, {"action": "decline"}, None, True),
        (OWN_WORDS, {"action": "accept", "content": {"answer": "blue", "other": "teal"}}, "teal", True),
        (URL, {"action": "accept"}, True, True),
        (URL, {"action": "decline"}, False, True),
        (URL, {"action": "cancel"}, None, True),
        (APPROVAL, True, True, True),
        (APPROVAL, False, False, True),
        (APPROVAL, DISCONNECTED, None, False),
        (APPROVAL, TIMED_OUT, None, True),
    ],
)
async def test_result_of_each_dialog_is_sent(
    server: ScriptedServer, asked: InputRequest, given: Any, told: Any, is_asked: bool
) -> None:
    [answer] = await answered(server, Page(given), asked, __metadata__=SAVED)
    assert (answer.value, answer.asked) == (told, is_asked)


async def test_form_is_drawn_by_open_webui(server: ScriptedServer) -> None:
    page = Page({"action": "cancel"})
    await answered(server, page, FORM)
    [event] = page.asked
    assert event["type"] == "request:elicitation"
    drawn = event["data"]
    assert (drawn["mode"], drawn["message"], drawn["requestedSchema"]) == ("form", "Trip\n\nWhich flight?", SCHEMA)


def test_choices_are_a_form_with_one_field() -> None:
    choice = {"type": "string", "title": "Answer", "enum": ["red", "blue"]}
    assert PIPE.make_schema(CHOICES.model_dump(mode="json")) == {
        "type": "object",
        "properties": {"answer": choice},
        "required": ["answer"],
    }
    own_words = PIPE.make_schema(OWN_WORDS.model_dump(mode="json"))
    assert (list(own_words["properties"]), own_words["required"]) == (["answer", "other"], [])


def test_address_is_drawn_as_a_link_that_is_the_answer() -> None:
    drawn = PIPE.make_form(URL.model_dump(), "Shop asks (1 of 2)")["data"]
    assert (drawn["mode"], drawn["url"], drawn["server_name"]) == ("url", URL.url, "Shop asks (1 of 2)")


async def test_approval_is_open_webuis_own_permission(server: ScriptedServer) -> None:
    page = Page(True)
    await answered(server, page, APPROVAL, __metadata__=SAVED)
    [event] = page.asked
    call = event["data"]["tool_call"]
    assert (event["type"], call["id"], call["name"]) == ("confirmation", "c", "Run delete? · assistant asks")
    assert call["arguments"] == {"path": "/\\u202e", "force": True}


@pytest.mark.parametrize("chat_id", ["", "local:1", "temporary:1", "channel:1"])
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


async def test_questions_keep_their_order_while_their_chat_is_not_in_view(server: ScriptedServer) -> None:
    page = Page(ELSEWHERE, True, False)
    first = APPROVAL
    second = question("second", title="Run sell?", arguments={})
    answers = await answered(server, page, first, second, __metadata__=SAVED)
    assert [answer.value for answer in answers] == [True, False]
    shown = [event["data"]["tool_call"]["name"].split("·")[0] for event in page.asked]
    assert shown == ["Run delete? ", "Run delete? ", "Run sell? "]


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
        ({"action": "accept", "content": {"answer": "Other"}}, False),
        ({"action": "decline"}, False),
        ({"action": "cancel"}, False),
        (DISCONNECTED, None),
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


@pytest.mark.parametrize(
    ("given", "told"),
    [
        # Also unchanged: the form of a question that is asked again has what the user wrote, not what the model did.
        (
            {"argument seats": 2, "argument play": "Hamlet"},
            {"arguments": {"seats": 2, "play": "Hamlet"}, "always": False},
        ),
        # Open WebUI returns nothing for a number that the user deletes.
        ({"argument play": "Hamlet"}, {"arguments": {"seats": None, "play": "Hamlet"}, "always": False}),
        ({"answer": "Other", "argument seats": 3}, False),
    ],
)
@pytest.mark.parametrize("remember", [True, False])
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


async def test_arguments_and_allow_always_are_both_sent(server: ScriptedServer) -> None:
    content = {"answer": "Allow always in this chat", "argument seats": 3, "argument play": "Hamlet"}
    asked = question(arguments={}, remember=True, schema={"type": "object", "properties": CHANGEABLE})
    page = Page({"action": "accept", "content": content})
    [answer] = await answered(server, page, asked, __metadata__=SAVED, approvals="form")
    assert answer.value == {"arguments": {"seats": 3, "play": "Hamlet"}, "always": True}


@pytest.mark.usefixtures("old_version")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["1", "2", True], {"cabin": "1", "bags": "2", "refundable": ""}),
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


@pytest.mark.parametrize(("connected", "value", "is_asked"), [({"page": {}}, True, True), ({}, None, False)])
async def test_version_0_8_asks_only_a_page_that_is_connected(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, connected: dict[str, Any], value: Any, is_asked: bool
) -> None:
    provide_open_webui(monkeypatch, {"socket.main": {"SESSION_POOL": connected}})
    monkeypatch.setattr(PIPE, "VERSION", "0.8.12")
    [answer] = await answered(server, Page(True), APPROVAL, __metadata__=SAVED)
    assert (answer.value, answer.asked) == (value, is_asked)
