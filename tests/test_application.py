"""The application object: as others run it, mount it and test with it."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
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
from callboard.observers import ModelAnswered, ModelAsked, Observation, ObservedRun, RunPrepared
from callboard.testing import Call, FakeModel, client, listening
from callboard_protocol import (
    Decoder,
    Done,
    Error,
    Event,
    InputRequest,
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


def test_a_test_answers_what_the_run_asks(tmp_path: Path) -> None:
    def board() -> Callboard:
        asking = Agent("clerk", skills=(ARITHMETIC,), confirm=("add",))
        return Callboard([asking], model=FakeModel([Call("add", a=1, b=2)], "."), settings=Settings(data_dir=tmp_path))

    with client(board()) as callboard:
        asked = callboard.run("Add.", approve=True, user={"id": "u"})
    assert len(asked.of(InputRequest)) == 1
    assert asked.results == {"add": "3"}
    with client(board()) as callboard:
        assert "3" not in callboard.run("Add.").results["add"]


def test_requests_with_the_key_have_a_principal_in_the_applications_routes(tmp_path: Path) -> None:
    async def who(request: Request) -> Response:
        return JSONResponse(request.scope["callboard.principal"].name)

    board = Callboard(
        [clerk()],
        model=FakeModel("hi"),
        authenticate=api_key("a-long-key"),
        routes=[Route("/who", who)],
        settings=Settings(data_dir=tmp_path),
    )
    with client(board) as callboard:
        assert callboard.http.get("/who").json() == "api key"
        assert callboard.run("hi").text == "hi"
        refused = callboard.http.get("/who", headers={"Authorization": "Bearer other"})
        assert refused.status_code == 401
        assert refused.json()["error"]["code"] == "unauthorized"


def test_any_function_can_know_who_asks(tmp_path: Path) -> None:
    async def by_header(connection: HTTPConnection) -> Principal | None:
        name = connection.headers.get("x-name")
        return Principal(name) if name else None

    board = Callboard([clerk()], model=FakeModel(), authenticate=by_header, settings=Settings(data_dir=tmp_path))
    with client(board) as callboard:
        assert callboard.http.get("/v1/models").status_code == 401
        assert callboard.http.get("/v1/models", headers={"X-Name": "Ada"}).status_code == 200
        assert callboard.http.get("/health").status_code == 200


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


async def test_below_a_prefix_it_opens_by_itself_and_its_links_and_health_work(tmp_path: Path) -> None:
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
        server = uvicorn.Server(uvicorn.Config(Starlette(routes=[Mount("/board", app)]), log_config=None))
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
        ("uvicorn", "app", {}),
        ("uvicorn", "mounted", {"chat_id": "c"}),
        ("hypercorn", "app", {"chat_id": "c"}),
        ("hypercorn", "mounted", {}),
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


async def test_two_applications_in_one_process_are_separate(tmp_path: Path) -> None:
    @asynccontextmanager
    async def failing(app: Starlette) -> AsyncIterator[None]:
        raise ConnectionError("no such service")
        yield

    def board(name: str, lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]] | None = None) -> Callboard:
        return Callboard(
            [Agent(name)],
            model=FakeModel(f"I am {name}."),
            settings=Settings(data_dir=tmp_path / name),
            lifespan=lifespan,
        )

    first = board("first")
    second = board("second")
    async with listening(first.asgi()) as one, listening(second.asgi()) as two:
        async with httpx.AsyncClient(timeout=60) as http:
            for url, name in ((one, "first"), (two, "second")):
                listed = (await http.get(f"{url}/v1/models")).json()["data"]
                assert [model["id"] for model in listed] == [name]
                body = {"agent": name, "chat_id": name, "run_id": name, "messages": [{"role": "user", "content": "?"}]}
                assert f"I am {name}." in (await http.post(f"{url}/v1/runs", json=body)).text
            assert (await http.get(f"{one}/v1/chats/second/tool-calls")).status_code == 404
            assert (await http.get(f"{one}/v1/runs/second/events")).status_code == 404
    with pytest.raises(ConnectionError):
        async with listening(board("third", lifespan=failing).asgi()):
            pass


async def test_a_request_opens_the_application_again_after_its_lifespan_has_failed(tmp_path: Path) -> None:
    failures = [ConnectionError("no such service")]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if failures:
            raise failures.pop()
        yield

    board = Callboard(
        [Agent("clerk")], model=FakeModel("Hello."), settings=Settings(data_dir=tmp_path), lifespan=lifespan
    )
    transport = httpx.ASGITransport(board.asgi(), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        assert (await http.get("/v1/models")).status_code == 500
        assert (await http.get("/v1/models")).status_code == 200


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


async def test_applications_open_at_the_same_moment(tmp_path: Path) -> None:
    """Alembic has global state, but the migrations of applications must be independent."""

    async def opened(name: str) -> str:
        board = Callboard([Agent(name)], model=FakeModel(name), settings=Settings(data_dir=tmp_path / name))
        async with listening(board.asgi()) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
            return str((await http.get("/v1/models")).json()["data"][0]["id"])

    names = [f"agent-{number}" for number in range(6)]
    assert await asyncio.gather(*map(opened, names)) == names


async def test_an_exception_while_it_is_open_leaves_its_runs_to_the_next_start(tmp_path: Path) -> None:
    """A lifespan that is left by an exception: the tool is stopped, and the answer goes on once it is open again."""
    started = asyncio.Event()
    cancelled = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return ""

    board = Callboard(
        [clerk(Skill("waiting", "Waits.", tools=(wait,)))],
        model=FakeModel([Call("wait")], "I do not know."),
        settings=Settings(data_dir=tmp_path),
    )
    app = board.asgi()

    async def leave_by_an_exception() -> tuple[str, str]:
        asking: asyncio.Task[httpx.Response] | None = None
        body = {"agent": "clerk", "chat_id": "c", "run_id": "r", "messages": [{"role": "user", "content": "Wait."}]}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http:
            with suppress(ZeroDivisionError):
                async with app.lifespan():
                    asking = asyncio.create_task(http.post("/v1/runs", json=body))
                    await started.wait()
                    raise ZeroDivisionError
            assert asking is not None
            said = (await asking).text
            async with app.lifespan():
                return said, (await http.get("/v1/runs/r/events")).text

    said, all_of_it = await leave_by_an_exception()
    assert cancelled.is_set()
    assert all_of_it.startswith(said)
    rest = all_of_it.removeprefix(said)
    assert "interrupted" in rest
    assert "I do not know." in rest


def test_the_document_shows_what_works(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "how-to" / "own-application.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names = ["application.py", "below_a_prefix.py", "test_application.py"]
    for name, block in zip(names, blocks, strict=True):
        (tmp_path / name).write_text(block)
    code = "import pathlib, below_a_prefix, test_application; test_application.test_adds(pathlib.Path())"
    environment = os.environ | {"CALLBOARD_DATA_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=120)


async def test_the_routes_of_a_skill_are_served_to_who_may_use_the_server(tmp_path: Path) -> None:
    async def greet(request: Request) -> Response:
        return JSONResponse(f"hello from {type(request.app.state.server.store).__name__}")

    skill = Skill("greetings", "Greets.", routes=[Route("/hello", greet)])
    board = Callboard([clerk(skill)], authenticate=api_key("a-long-key"), settings=Settings(data_dir=tmp_path))
    async with listening(board.asgi()) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
        assert (await http.get("/skills/greetings/hello")).status_code == 401
        http.headers["Authorization"] = "Bearer a-long-key"
        assert (await http.get("/skills/greetings/hello")).json().startswith("hello from")
