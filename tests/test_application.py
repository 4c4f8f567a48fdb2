"""The application object: as others run it, mount it and test with it."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from callboard import Agent, Callboard, OpenAICompatible, Principal, Settings, Skill, api_key, tool
from callboard.errors import StorageError
from callboard.http import Authenticate
from callboard.observers import ModelAnswered, ModelAsked, Observation, ObservedRun, RunPrepared
from callboard.testing import Call, FakeModel, client
from callboard.testing.serving import listening
from callboard_protocol import (
    Decoder,
    Done,
    Error,
    Event,
    Message,
    RunStart,
    ToolCallArgsDelta,
    ToolCallComplete,
    ToolCallStart,
    Usage,
    decode,
)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


ARITHMETIC = Skill("arithmetic", "Adds.", tools=(add,))


def clerk(*skills: Skill) -> Agent:
    return Agent("clerk", skills=skills)


async def by_header(connection: HTTPConnection) -> Principal | None:
    name = connection.headers.get("x-name")
    return Principal(name) if name else None


@pytest.mark.parametrize(
    ("authenticate", "header", "value", "name"),
    [(api_key("a-long-key"), "Authorization", "Bearer a-long-key", "api key"), (by_header, "X-Name", "Ada", "Ada")],
    ids=["a key", "a function"],
)
def test_own_routes_know_who_asks_and_are_closed_to_all_others(
    tmp_path: Path, authenticate: Authenticate, header: str, value: str, name: str
) -> None:
    async def who(request: Request) -> Response:
        return JSONResponse(request.scope["callboard.principal"].name)

    board = Callboard(
        [clerk()],
        model=FakeModel(),
        authenticate=authenticate,
        routes=[Route("/who", who)],
        settings=Settings(data_dir=tmp_path),
    )
    with client(board, headers={header: value}) as callboard:
        assert callboard.http.get("/who").json() == name
        assert callboard.http.get("/v1/models").status_code == 200
        refused = callboard.http.get("/who", headers={header: ""})
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "unauthorized"
        assert callboard.http.get("/v1/models", headers={header: ""}).status_code == 401
        assert callboard.http.get("/health", headers={header: ""}).status_code == 200


def handshake(url: str, **headers: str) -> str:
    """The status line of a WebSocket's handshake."""
    host = url.removeprefix("http://")
    name, port = host.split(":")
    lines = {
        "Host": host,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "MDEyMzQ1Njc4OTAxMjM0NQ==",
        **headers,
    }
    asked = "GET /echo HTTP/1.1\r\n" + "".join(f"{key}: {value}\r\n" for key, value in lines.items()) + "\r\n"
    with socket.create_connection((name, int(port))) as connection:
        connection.sendall(asked.encode())
        return connection.recv(1024).split(b"\r\n")[0].decode()


def test_a_websocket_is_opened_for_who_has_the_key_and_for_no_other_page(tmp_path: Path) -> None:
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    board = Callboard(
        [clerk()],
        model=FakeModel(),
        authenticate=api_key("a-long-key"),
        routes=[WebSocketRoute("/echo", echo)],
        settings=Settings(data_dir=tmp_path),
    )
    with client(board) as callboard:
        url = str(callboard.http.base_url).rstrip("/")
        key = "Bearer a-long-key"
        assert " 403 " in handshake(url)
        assert " 403 " in handshake(url, Authorization="Bearer other")
        assert " 403 " in handshake(url, Authorization=key, Origin="http://elsewhere.example")
        assert " 101 " in handshake(url, Authorization=key)


async def test_below_a_prefix_its_lifespan_links_and_health_work(tmp_path: Path) -> None:
    @tool
    def write() -> str:
        """Write much."""
        return "x" * 100_000

    opened: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[dict[str, str]]:
        opened.append("opened")
        yield {"greeting": "hello"}
        opened.append("closed")

    async def greet(request: Request) -> Response:
        return JSONResponse(request.state.greeting)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        board = Callboard(
            [clerk(Skill("writing", "Writes.", tools=(write,)))],
            model=FakeModel([Call("write")], "Done."),
            authenticate=api_key("a-long-key"),
            routes=[Route("/greet", greet)],
            lifespan=lifespan,
            settings=Settings(data_dir=tmp_path, result_link_seconds=60, public_url=f"{address}/board"),
        )
        app = board.asgi()
        site = Starlette(routes=[Mount("/board", app)], lifespan=app.lifespan)
        server = uvicorn.Server(uvicorn.Config(site, log_config=None))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        async with httpx.AsyncClient(base_url=f"{address}/board", timeout=60) as http:
            assert (await http.get("/health")).json()["status"] == "ok"
            assert (await http.get("/v1/models")).status_code == 401
            http.headers["Authorization"] = "Bearer a-long-key"
            assert (await http.get("/greet")).json() == "hello"
            body = {"agent": "clerk", "chat_id": "c", "messages": [{"role": "user", "content": "Write."}]}
            answer = await http.post("/v1/runs", json=body)
            events = [decode(frame) for frame in Decoder().feed(answer.content)]
            link = next(url for event in events if (url := getattr(event, "result_url", None)))
            assert link.startswith(f"{address}/board/v1/tool-calls/")
            del http.headers["Authorization"]
            assert len((await http.get(link)).text) >= 100_000
            assert (await http.get(link.replace("signature=", "signature=0"))).status_code == 401
        assert opened == ["opened"]
        await app.stop()
        server.should_exit = True
        await serving
    assert opened == ["opened", "closed"]


def test_an_application_that_does_not_open_fails_the_test_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "callboard.db").mkdir()
    board = Callboard([clerk()], settings=Settings(data_dir=tmp_path))
    with pytest.raises(StorageError), client(board):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "name", "chat"),
    [
        ("uvicorn", "mounted", {"chat_id": "c"}),
        ("hypercorn", "app", {}),
    ],
)
def test_a_stopped_asgi_server_releases_stored_runs_and_ends_others(
    tmp_path: Path, server: str, name: str, chat: dict[str, str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    bind = ["--bind", f"127.0.0.1:{port}"] if server == "hypercorn" else ["--port", str(port)]
    process = subprocess.Popen(
        [sys.executable, "-m", server, f"tests.plain_application:{name}", *bind],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "CALLBOARD_DATA_DIR": str(tmp_path), "CALLBOARD_DRAIN_SECONDS": "0.5"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "unning on" in line:
                break
        prefix = "/board" if name == "mounted" else ""
        events: list[Event | None] = []
        decoder = Decoder()
        body = {"agent": "clerk", "messages": [{"role": "user", "content": "Wait."}]} | chat
        with httpx.stream("POST", f"http://127.0.0.1:{port}{prefix}/v1/runs", json=body, timeout=60) as response:
            for chunk in response.iter_bytes():
                for frame in decoder.feed(chunk):
                    events.append(decode(frame))
                    if isinstance(events[-1], ToolCallStart):
                        process.send_signal(signal.SIGTERM)
        last = events[-1]
        if chat:
            assert isinstance(last, ToolCallStart), "the next server goes on from here"
        else:
            assert isinstance(last, Error)
            assert last.code == "interrupted"
        # `communicate` with a timeout would leave out the lines that came in one piece with the last one that was read.
        log = process.stdout.read()
        assert not re.search(r"File \".*server/callboard", log), "a traceback of ours"
        assert "left in order" in log
    finally:
        process.kill()
        process.communicate()


async def test_applications_that_open_at_the_same_moment_in_one_process_are_separate(tmp_path: Path) -> None:
    """Alembic has global state, but the migrations of applications must be independent."""
    names = [f"agent-{number}" for number in range(4)]
    all_have_run = asyncio.Barrier(len(names))

    async def ask(name: str) -> None:
        board = Callboard([Agent(name)], model=FakeModel(f"I am {name}."), settings=Settings(data_dir=tmp_path / name))
        async with listening(board.asgi()) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
            body = {"agent": name, "chat_id": name, "run_id": name, "messages": [{"role": "user", "content": "?"}]}
            said = (await http.post("/v1/runs", json=body)).text
            await all_have_run.wait()
            statuses = {other: (await http.get(f"/v1/runs/{other}/events")).status_code for other in names}
        assert f"I am {name}." in said
        assert statuses == dict.fromkeys(names, 404) | {name: 200}

    await asyncio.gather(*map(ask, names))


async def test_request_to_an_application_whose_lifespan_does_not_run_says_what_to_do(tmp_path: Path) -> None:
    app = Callboard([Agent("clerk")], settings=Settings(data_dir=tmp_path)).asgi()
    transport = httpx.ASGITransport(Starlette(routes=[Mount("/board", app)]))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1/board") as http:
        answer = await http.get("/v1/models")
    assert answer.status_code == 500
    assert "pass lifespan=app.lifespan to the application that mounts it" in answer.json()["error"]["message"]


def test_observers_see_runs_requests_to_models_and_calls(tmp_path: Path) -> None:
    seen: list[tuple[ObservedRun, Observation]] = []

    def failing(_: ObservedRun, __: Observation) -> None:
        raise ZeroDivisionError

    board = Callboard(
        [clerk(ARITHMETIC)],
        model=FakeModel([Call("add", a=1, b=2)], "It is 3."),
        observers=[failing, lambda run, what: seen.append((run, what))],
        settings=Settings(data_dir=tmp_path),
    )
    with client(board) as callboard:
        run = callboard.run("What is 1 + 2?", chat_id="c", user={"id": "ann"}, run_id="r")
    assert {run for run, _ in seen} == {ObservedRun("r", "clerk", "c", "ann")}
    told = [what for _, what in seen]
    assert [what for what in told if isinstance(what, Event)] == run.events
    assert [type(what) for what in told if not isinstance(what, Message | ToolCallArgsDelta | Usage)] == [
        RunStart,
        RunPrepared,
        ModelAsked,
        ModelAnswered,
        ToolCallStart,
        ToolCallComplete,
        ModelAsked,
        ModelAnswered,
        Done,
    ]
    [first, second] = [what for what in told if isinstance(what, ModelAsked)]
    assert (first, second) == (ModelAsked("fake", first.messages, 1), ModelAsked("fake", first.messages + 2, 1))
    answered = [what for what in told if isinstance(what, ModelAnswered)]
    assert [(one.finish_reason, one.error) for one in answered] == [("tool_calls", None), ("stop", None)]
    assert all(one.first_seconds is not None and one.first_seconds <= one.seconds for one in answered)


def test_observers_see_a_failing_model(tmp_path: Path) -> None:
    seen: list[Observation] = []
    board = Callboard(
        [clerk()],
        model=OpenAICompatible("http://127.0.0.1:1/v1", model="m", max_retries=0),
        observers=[lambda _, what: seen.append(what)],
        settings=Settings(data_dir=tmp_path),
    )
    with client(board) as callboard:
        callboard.run("hi")
    [answered] = [what for what in seen if isinstance(what, ModelAnswered)]
    assert (answered.error, answered.first_seconds) == ("ModelUnreachable", None)
    assert isinstance(seen[-1], Error)


def test_the_document_shows_what_works(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "how-to" / "own-application.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names = ["application.py", "below_a_prefix.py", "test_application.py"]
    for name, block in zip(names, blocks, strict=True):
        (tmp_path / name).write_text(block)
    code = "import pathlib, below_a_prefix, test_application; test_application.test_adds(pathlib.Path())"
    environment = os.environ | {"CALLBOARD_DATA_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=120)
