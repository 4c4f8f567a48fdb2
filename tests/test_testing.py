"""`callboard.testing` shows a test the calls of an application and its errors."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.routing import Mount
from starlette.testclient import TestClient

from callboard import Agent, Callboard, Principal, Settings, ToolError, ToolResult, tool
from callboard.errors import HostRefused
from callboard.http.gate import Access
from callboard.testing import Call, EndedRun, FakeModel, RunCall, client
from callboard_protocol import InputRequest, Message, Rewind, ToolCallStart


@tool
def divide(a: int, b: int) -> float:
    """Divide a number by another."""
    if not b:
        raise ToolError("nothing can be divided by 0")
    return a / b


async def by_name(connection: HTTPConnection) -> Principal | None:
    name = connection.headers.get("x-name")
    return Principal(name, user_id=name) if name else None


def board(tmp_path: Path, model: FakeModel, **arguments: object) -> Callboard:
    clerk = Agent("clerk", "Calculates.", tools=[divide])
    return Callboard([clerk], model=model, settings=Settings(data_dir=tmp_path), **arguments)  # type: ignore[arg-type] # passed on


def test_calls_are_in_order(tmp_path: Path) -> None:
    asked = [Call("divide", a=4, b=2), Call("divide", a=1, b=0), Call("devide", '{"a": 1')]
    with client(board(tmp_path, FakeModel(asked, "Done."))) as callboard:
        run = callboard.run("Divide.")
    assert run.calls[:2] == [
        RunCall("divide", {"a": 4, "b": 2}, result="2.0"),
        RunCall("divide", {"a": 1, "b": 0}, error="nothing can be divided by 0", code="tool_failed"),
    ]
    assert [call.tool_name for call in run.calls] == ["divide", "divide", "devide"]
    assert run.calls[2].code in ("unknown_tool", "invalid_args")
    assert run.error is None


def test_the_text_is_without_text_that_was_taken_back() -> None:
    called = ToolCallStart(tool_call_id="a", tool_name="look", tool_args={})
    again = [Message(content="Bad "), Message(content="words."), Rewind(), Message(content="Sorry.")]
    assert EndedRun([Message(content="Hi. "), called, *again]).text == "Hi. Sorry."


def test_a_call_has_its_files(tmp_path: Path) -> None:
    picture = {"type": "image", "url": "https://example.org/a.png"}

    @tool
    def draw() -> ToolResult:
        """Draw."""
        return ToolResult("Drawn.", files=(picture,))

    artist = Agent("artist", tools=[draw], model=FakeModel([Call("draw")], "Here."))
    with client(Callboard([artist], settings=Settings(data_dir=tmp_path))) as callboard:
        [call] = callboard.run("Draw.").calls
    assert [*call.files] == [picture]


def test_all_clients_share_an_event_loop_because_models_keep_their_connections_in_it(tmp_path: Path) -> None:
    loops = []

    @tool
    async def look() -> str:
        """Look."""
        loops.append(asyncio.get_running_loop())
        return "seen"

    for name in ("one", "two"):
        clerk = Agent("clerk", tools=[look], model=FakeModel([Call("look")], "Done."))
        with client(Callboard([clerk], settings=Settings(data_dir=tmp_path / name))) as callboard:
            callboard.run("Look.")
    assert loops[0] is loops[1]
    assert not loops[0].is_closed()


def change(_: InputRequest) -> object:
    return {"arguments": {"a": 4, "b": 2}}


@pytest.mark.parametrize(
    ("approve", "arguments", "result"),
    [(False, {"a": 4, "b": 1}, ""), (True, {"a": 4, "b": 1}, "4.0"), (change, {"a": 4, "b": 2}, "2.0")],
    ids=["denied", "approved", "changed"],
)
def test_a_call_is_denied_approved_or_changed(tmp_path: Path, approve: Any, arguments: object, result: str) -> None:
    clerk = Agent("clerk", "Calculates.", tools=[divide], confirm=("divide",))
    model = FakeModel([Call("divide", a=4, b=1)], "Done.")
    with client(Callboard([clerk], model=model, settings=Settings(data_dir=tmp_path))) as callboard:
        run = callboard.run("Divide.", approve=approve)
    [call] = run.calls
    assert call.arguments == arguments
    assert (call.result or "").endswith(result)
    assert (call.result is None) == (not approve)
    assert len(run.of(InputRequest)) == 1
    assert list(run.results) == ["divide"]


def test_a_call_for_the_client_has_no_result(tmp_path: Path) -> None:
    offered = [{"name": "open_door", "parameters": {"type": "object", "properties": {}}}]
    with client(board(tmp_path, FakeModel([Call("open_door")]))) as callboard:
        run = callboard.run("Open.", functions=offered)
    assert run.calls == [RunCall("open_door", "{}")]


def test_a_refusal_says_the_servers_words(tmp_path: Path) -> None:
    with client(board(tmp_path, FakeModel())) as callboard:
        with pytest.raises(httpx.HTTPStatusError, match=r"404: There is no agent 'nobody'. The agents are: clerk"):
            callboard.run("hi", agent="nobody")
        with pytest.raises(httpx.HTTPStatusError, match=r"422: .*chat_id"):
            callboard.run("hi", chat_id="")
        with pytest.raises(TypeError, match=r"'chatid'.*chat_id"):
            callboard.run("hi", chatid="c")


def test_headers_say_who_asks(tmp_path: Path) -> None:
    application = board(tmp_path, FakeModel("one", "two"), authenticate=by_name)
    with client(application, headers={"X-Name": "ann"}) as callboard:
        assert callboard.run("hi", chat_id="c").text == "one"
        assert callboard.run("hi", headers={"X-Name": "bob"}).text == "two"
        assert callboard.http.get("/v1/chats/c/messages").status_code == 200
    with client(application) as callboard, pytest.raises(httpx.HTTPStatusError, match="401: You may not use"):
        callboard.run("hi")


RUNS_OUT = """
from callboard import Agent, Callboard, Settings, tool
from callboard.testing import Call, FakeModel, client

@tool
def look() -> str:
    "Look."
    return "seen"

def test_by_run(tmp_path):
    board = Callboard([Agent("a", tools=[look])], model=FakeModel([Call("look")]), settings=Settings(data_dir=tmp_path))
    with client(board) as callboard:
        callboard.run("hi")

def test_by_http(tmp_path):
    board = Callboard([Agent("a", model=FakeModel())], settings=Settings(data_dir=tmp_path))
    with client(board) as callboard:
        body = {"model": "a", "messages": [{"role": "user", "content": "hello there"}]}
        callboard.http.post("/v1/chat/completions", json=body)
"""


@pytest.mark.slow
def test_a_model_without_another_answer_fails_the_test_in_a_few_lines(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(RUNS_OUT)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 failed" in ran.stdout
    assert "FakeModel has 1 answers and was asked 2 times, the last time after the message tool: 'seen'" in ran.stdout
    assert "FakeModel has 0 answers and was asked 1 times, the last time after the message user: 'hello" in ran.stdout
    assert "Traceback" not in ran.stdout
    assert len(ran.stdout.splitlines()) < 100


def test_the_test_client_of_starlette_and_fastapi_calls_the_application(tmp_path: Path) -> None:
    app = board(tmp_path, FakeModel("Hello.")).asgi()
    body = {"agent": "clerk", "messages": [{"role": "user", "content": "hi"}]}
    with TestClient(Starlette(routes=[Mount("/board", app)], lifespan=app.lifespan)) as http:
        assert "Hello." in http.post("/board/v1/runs", json=body).text


def test_the_name_of_the_test_client_is_no_name_of_a_server_with_a_connection(tmp_path: Path) -> None:
    access = Access.from_settings(Settings(data_dir=tmp_path))
    scope = {"type": "http", "method": "GET", "headers": [(b"host", b"testserver")], "server": ("127.0.0.1", 8700)}
    with pytest.raises(HostRefused):
        access.check(scope)
    access.check(scope | {"server": ("testserver", 80)})
