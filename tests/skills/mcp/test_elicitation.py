"""Questions of MCP servers to the user in the middle of a call."""

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
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

TOWN = {"type": "object", "properties": {"town": {"type": "string"}}}
URL = "https://pay.example/1"


def elicitation(**params: Any) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": "Where are you?", **params}}


async def test_server_of_the_newest_protocol_gets_the_users_answer(ours: Make) -> None:
    rows: list[tuple[list[Any], dict[str, Any]]] = [
        ([{"town": "Graz"}], {"action": "accept", "content": {"town": "Graz"}}),
        ([{"town": "G"}, {"town": "Graz"}], {"action": "accept", "content": {"town": "Graz"}}),
        ([False], {"action": "decline"}),
        ([], {"action": "cancel"}),
    ]
    played = ours()
    async with played.lifespan():
        for answers, told in rows:
            played.questions.clear()
            played.answers = list(answers)
            assert json.loads((await played.call("ask")).text) == told
            first = played.questions[0]
            assert (first.kind, first.title, first.message) == ("form", "The MCP server 'ours' asks", "Where are you?")
            assert first.tool_call_id == "call_1"
            assert len(played.questions) == max(1, len(answers))


PAY = {"mode": "url", "elicitationId": "1", "url": URL}


@pytest.mark.parametrize(
    ("params", "answer", "told"),
    [
        (PAY, True, {"action": "accept"}),
        (PAY, False, {"action": "decline"}),
        ({"requestedSchema": TOWN}, {"town": "Graz"}, {"action": "accept", "content": {"town": "Graz"}}),
        ({"requestedSchema": TOWN}, False, {"action": "decline"}),
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
    if params is PAY:
        [asked] = played.questions
        assert (asked.kind, asked.url, asked.message.splitlines()[-1]) == ("confirmation", URL, "pay.example")


async def test_call_that_needs_an_address_opened_first_fails_with_what_the_user_did(plain: Make) -> None:
    needed = {"elicitations": [{**PAY, "message": "Please pay."}]}
    error = {"jsonrpc": "2.0", "id": "ID", "error": {"code": -32042, "message": "Pay first.", "data": needed}}
    played = plain(listed("a"), raw={"a": json.dumps(error).replace('"ID"', "ID")})
    async with played.lifespan():
        for answer, told in ((True, "which they have opened"), (False, "which they did not"), (None, "which they did")):
            played.answers = [answer]
            with pytest.raises(ToolError, match=told):
                await played.call("a")
    assert {(asked.kind, asked.url) for asked in played.questions} == {("confirmation", URL)}


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
        {"requestedSchema": {"type": "object", "properties": {"a": {"type": "string", "maxLength": "x"}}}},
        {**PAY, "url": "https://evil.example\\.bank.example/"},
        {**PAY, "url": "https://bank.example@evil.example/"},
        {**PAY, "url": "javascript:alert(1)"},
    ],
)
async def test_question_that_cannot_be_drawn_is_not_accepted(plain: Make, params: dict[str, Any], log: Log) -> None:
    played = plain(listed("a"), asks=elicitation(**params))
    async with played.lifespan():
        reply = json.loads((await played.call("a")).text)
    assert reply.get("result", {"action": "cancel"}) == {"action": "cancel"}
    assert not any(question.url for question in played.questions)


async def test_question_that_may_belong_to_another_user_reaches_nobody(plain: Make, log: Log) -> None:
    """Over standard streams, nothing in a question names its call."""
    played = plain(listed("a"), asks=elicitation(requestedSchema=TOWN), together=2)
    played.answers = [{"town": "Graz"}]
    async with played.lifespan():
        results = await asyncio.gather(*(played.call_as(User(id=user), "a") for user in ("ada", "bob")))
    assert [json.loads(result.text)["result"] for result in results] == [{"action": "cancel"}] * 2
    assert played.questions == []
    assert next(line["calls"] for line in log.of("mcp_question_of_no_call")) == 2


@pytest.fixture
def far_server(node_servers: Path, free_port: int) -> Callable[[], AbstractContextManager[str]]:
    """Start the reference server over HTTP, and yield its address once it listens."""
    environment = {"PATH": os.environ["PATH"], "PORT": str(free_port)}
    command = [str(node_servers / "mcp-server-everything"), "streamableHttp"]

    @contextmanager
    def start() -> Iterator[str]:
        pipe = subprocess.PIPE
        joined = subprocess.STDOUT
        with subprocess.Popen(command, env=environment, stdout=pipe, stderr=joined, text=True) as process:
            assert process.stdout is not None
            try:
                assert any("listening on port" in line for line in process.stdout)
                yield f"http://127.0.0.1:{free_port}/mcp"
            finally:
                process.kill()

    return start


@pytest.mark.timeout(600)  # it installs the server
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
