"""Questions of MCP servers to the user in the middle of a call."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from callboard.errors import ToolError
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.elicitation import MAX_QUESTIONS
from callboard.skills.mcp.server import RunningServer
from callboard_protocol import InputRequest, User
from tests.skills.mcp.conftest import QUICK, Log, Make, Played
from tests.skills.mcp.test_hostile_servers import listed
from tests.skills.mcp.test_real_servers import far_server, played

__all__ = ["far_server"]

TOWN = {"type": "object", "properties": {"town": {"type": "string"}}}
URL = "https://pay.example/1"


def elicitation(**params: Any) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": "Where are you?", **params}}


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([{"town": "Graz"}], {"action": "accept", "content": {"town": "Graz"}}),
        ([{"town": "G"}, {"town": "Graz"}], {"action": "accept", "content": {"town": "Graz"}}),
        ([False], {"action": "decline"}),
        ([None], {"action": "cancel"}),
        ([], {"action": "cancel"}),
    ],
)
async def test_server_of_the_newest_protocol_gets_the_users_answer(
    ours: Make, answers: list[Any], told: dict[str, Any]
) -> None:
    played = ours()
    played.answers = list(answers)
    async with played.lifespan():
        assert json.loads((await played.call("ask")).text) == told
    first = played.questions[0]
    assert (first.kind, first.title, first.message) == ("form", "The MCP server 'ours' asks", "Where are you?")
    assert first.tool_call_id == "call_1"
    assert len(played.questions) == max(1, len(answers))


@pytest.mark.parametrize(
    ("params", "answer", "told"),
    [
        ({"requestedSchema": TOWN}, {"town": "Graz"}, {"action": "accept", "content": {"town": "Graz"}}),
        ({"requestedSchema": TOWN}, False, {"action": "decline"}),
        ({"requestedSchema": TOWN}, None, {"action": "cancel"}),
        ({"requestedSchema": {"type": "object", "properties": {}}}, {}, {"action": "accept", "content": {}}),
    ],
)
async def test_server_of_the_older_protocol_gets_the_users_answer(
    plain: Make, params: dict[str, Any], answer: Any, told: dict[str, Any]
) -> None:
    played = plain(listed("a"), asks=elicitation(**params))
    played.answers = [answer]
    async with played.lifespan():
        assert json.loads((await played.call("a")).text)["result"] == told


async def test_texts_of_a_form_are_cleaned_like_its_message_and_its_values_are_not(plain: Make) -> None:
    hidden = "\u202e\U000e0041\u200b"
    fields = {
        f"to{hidden}wn": {"type": "string"},
        "color": {
            "type": "string",
            "title": f"Co{hidden}lor",
            "enum": [f"re{hidden}d"],
            "enumNames": [f"Re{hidden}d"],
        },
        "size": {"enum": [f"lar{hidden}ge"]},
        "tags": {"type": "array", "items": {"anyOf": [{"const": "a", "title": f"{hidden}A"}]}},
        "when": {"type": "string", "description": f"A\nday{hidden}", "format": "date"},
    }
    asks = elicitation(message=f"Where{hidden}?", requestedSchema={"type": "object", "properties": fields})
    played = plain(listed("a"), asks=asks)
    given = {f"to{hidden}wn": "Graz", "color": f"re{hidden}d", "size": f"lar{hidden}ge", "tags": ["a"]}
    played.answers = [given]
    async with played.lifespan():
        assert json.loads((await played.call("a")).text)["result"]["content"] == given
    [question] = played.questions
    shown = question.form["properties"]
    assert question.message == "Where?"
    assert [field["title"] for field in shown.values()] == ["town", "Color", "size", "tags", "when"]
    assert shown["color"]["oneOf"] == [{"const": f"re{hidden}d", "title": "Red"}]
    assert shown["size"]["oneOf"] == [{"const": f"lar{hidden}ge", "title": "large"}]
    assert shown["tags"]["items"]["anyOf"] == [{"const": "a", "title": "A"}]
    assert shown["when"]["description"] == "A\nday"


async def test_questions_of_a_call_over_the_limit_are_refused_with_the_reason(ours: Make, plain: Make) -> None:
    asks = elicitation(requestedSchema=TOWN)
    older = plain(listed("a"), asks=asks, times=MAX_QUESTIONS + 1)
    older.answers = [False] * 2 * MAX_QUESTIONS
    async with older.lifespan():
        *replies, last = map(json.loads, (await older.call("a")).text.splitlines())
        assert [reply["result"]["action"] for reply in replies] == ["decline"] * MAX_QUESTIONS
        assert f"at most {MAX_QUESTIONS}" in last["error"]["message"]
    assert len(older.questions) == MAX_QUESTIONS
    newest = ours()
    newest.answers = [False] * 2 * MAX_QUESTIONS
    async with newest.lifespan():
        with pytest.raises(ToolError, match=f"at most {MAX_QUESTIONS}"):
            await newest.call("ask", again=True)
    assert len(newest.questions) == MAX_QUESTIONS


@pytest.mark.parametrize(
    "params",
    [
        {"requestedSchema": {"type": "object", "properties": {"a": {"type": "object"}}}},
        {"requestedSchema": {"type": "object", "properties": {"a": {"type": "string", "maxLength": "x"}}}},
        {"mode": "url", "elicitationId": "1", "url": "https://evil.example\\.bank.example/"},
    ],
)
async def test_question_that_cannot_be_drawn_is_not_accepted(plain: Make, params: dict[str, Any], log: Log) -> None:
    played = plain(listed("a"), asks=elicitation(**params))
    async with played.lifespan():
        reply = json.loads((await played.call("a")).text)
    assert reply.get("result", {"action": "cancel"}) == {"action": "cancel"}
    assert not any(question.url for question in played.questions)


@pytest.mark.needs("npm", "downloads")
async def test_question_that_may_belong_to_another_user_reaches_nobody(node_servers: Path, log: Log) -> None:
    """Over standard streams, nothing in a question names its call."""
    every = played("every", node_servers / "mcp-server-everything")
    async with every.lifespan():
        calls = [every.call_as(User(id=user), "trigger-elicitation-request") for user in ("ada", "bob")]
        results = await asyncio.gather(*calls)
    assert all("User cancelled" in result.text for result in results)
    assert every.questions == []
    assert next(line["calls"] for line in log.of("mcp_question_of_no_call")) == 2


@pytest.mark.needs("npm", "downloads")
async def test_form_of_the_reference_server(node_servers: Path) -> None:
    every = played("every", node_servers / "mcp-server-everything")
    async with every.lifespan():
        every.answers = [{"name": "Viola", "check": "yes", "integer": "50", "email": "viola@example.org"}]
        accepted = await every.call("trigger-elicitation-request")
        every.answers = [False]
        declined = await every.call("trigger-elicitation-request")
        cancelled = await every.call("trigger-elicitation-request")
    assert "- Name: Viola\n- Agreed to terms: true" in accepted.text
    assert "- Favorite Integer: 50" in accepted.text
    assert "User declined" in declined.text
    assert "User cancelled" in cancelled.text
    fields = every.questions[0].form["properties"]
    assert fields["legacyTitledEnum"]["oneOf"][0] == {"const": "pet-1", "title": "Cats"}
    assert fields["titledMultipleSelectEnum"]["default"] == ["fish-1"]


@pytest.mark.needs("npm", "downloads")
@pytest.mark.parametrize(("answer", "told"), [(True, "accept"), (False, "decline"), (None, "cancel")])
async def test_address_of_the_reference_server(node_servers: Path, answer: Any, told: str) -> None:
    every = played("every", node_servers / "mcp-server-everything")
    async with every.lifespan():
        every.answers = [answer]
        result = await every.call("trigger-url-elicitation", url=URL)
        every.answers = [answer]
        with pytest.raises(ToolError, match="which they have opened" if answer else "which they did not"):
            await every.call("trigger-url-elicitation", url=URL, errorPath=True)
    assert told in result.text.lower()
    asked, demanded = every.questions
    assert (asked.kind, asked.url, asked.message.splitlines()[-1]) == ("confirmation", URL, "pay.example")
    assert (demanded.kind, demanded.url) == ("confirmation", "https://modelcontextprotocol.io")


@pytest.mark.needs("npm", "downloads")
@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "https://bank.example@evil.example/"])
async def test_address_that_is_no_web_address_is_not_shown(node_servers: Path, url: str, log: Log) -> None:
    every = played("every", node_servers / "mcp-server-everything")
    async with every.lifespan():
        result = await every.call("trigger-url-elicitation", url=url)
    assert "cancel" in result.text.lower()
    assert every.questions == []


@pytest.mark.needs("npm", "downloads")
async def test_questions_over_http_reach_the_users_of_their_calls(
    far_server: Callable[[], AbstractContextManager[str]], log: Log
) -> None:
    asked = asyncio.Event()

    class Both(Played):
        async def _ask(self, question: InputRequest) -> Any:
            self.questions.append(question)
            if len(self.questions) == 2:
                asked.set()
            await asked.wait()
            return {"name": question.tool_call_id}

    with far_server() as url:
        every = Both(RunningServer(ServerDeclaration("every", url=url), *QUICK))
        async with every.lifespan():
            await log.until("mcp_server_ready")
            calls = [every.call_as(User(id=user), "trigger-elicitation-request") for user in ("ada", "bob")]
            results = await asyncio.gather(*calls)
    for user, result in zip(("ada", "bob"), results, strict=True):
        assert f"- Name: call_{user}" in result.text
