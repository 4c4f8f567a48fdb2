"""Servers over streamable HTTP."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from callboard.errors import ToolError
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.server import RunningServer
from tests.fakes.http_answer import answering
from tests.fakes.mcp_http import ForgetfulServer
from tests.skills.mcp.conftest import HERE, QUICK, Log, Make, Played


@contextmanager
def listening(port: int, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, str(HERE / "our_server.py"), str(port)]
    with subprocess.Popen(command, env={**os.environ, **environment}) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def shared_port() -> Iterator[int]:
    """The port of a shared server for tests that do not change it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    with listening(port):
        yield port


def at(port: int, **headers: str) -> Played:
    return Played(RunningServer(ServerDeclaration("far", url=f"http://127.0.0.1:{port}/mcp", headers=headers), *QUICK))


@pytest.mark.slow
async def test_restarted_server_is_reconnected(free_port: int, log: Log) -> None:
    far = at(free_port)
    async with far.lifespan():
        lost = await log.until("mcp_server_lost")
        assert lost["reason"].startswith("ConnectError")
        with listening(free_port):
            await log.until("mcp_server_ready")
            assert (await far.call("count", steps=1)).text == "counted to 1"
            with pytest.raises(ToolError, match="'far' was lost during this call"):
                await far.call("die")
        await log.until("mcp_server_lost")
        with pytest.raises(ToolError, match="'far' is being restarted; try again in 1 s"):
            await far.call("count", steps=1)
        with listening(free_port):
            await log.until("mcp_server_ready")
            assert (await far.call("count", steps=1)).text == "counted to 1"


@pytest.mark.parametrize("is_over_http", [False, True])
async def test_tools_that_a_call_adds_and_removes_have_changed_when_it_ends(
    ours: Make, free_port: int, log: Log, is_over_http: bool
) -> None:
    with listening(free_port) if is_over_http else nullcontext():
        played = at(free_port) if is_over_http else ours()
        async with played.lifespan():
            await log.until("mcp_server_ready")
            before = played.server.state.tool_names
            # Many times, because over HTTP a change is reported on another connection than the result.
            for number in range(10):
                await played.call("grow", description=f"Number {number}.")
                assert (await played.call("grown")).data == {"result": "here"}
                assert played.tool("grown").description == f"Number {number}."
                await played.call("shrink")
                assert played.server.state.tool_names == before


async def test_a_server_that_wants_a_key_gets_it_in_its_headers_or_says_what_to_do(free_port: int, log: Log) -> None:
    with listening(free_port, OUR_TOKEN="open-sesame"):
        far = at(free_port, Authorization="Bearer open-sesame")
        async with far.lifespan():
            await log.until("mcp_server_ready")
            assert (await far.call("variable", name="OUR_TOKEN")).text == "[secret]"
        async with at(free_port, Authorization="Bearer wrong-word").lifespan():
            await log.until("mcp_server_lost", reason="ConnectionRefusedError: it answered HTTP 401: check its headers")
    assert "open-sesame" not in str(log.lines)


async def test_server_that_forbids_the_list_of_its_resources_keeps_its_tools(free_port: int, log: Log) -> None:
    with listening(free_port, OUR_FORBIDDEN="resources/list"):
        async with at(free_port).lifespan():
            await log.until("mcp_server_ready")


async def test_too_large_answer_is_not_read_completely(shared_port: int, log: Log) -> None:
    far = at(shared_port)
    async with far.lifespan():
        await log.until("mcp_server_ready")
        with pytest.raises(ToolError, match="the answer is over 33554432 bytes"):
            await far.call("big", characters=40_000_000)
        assert len((await far.call("big", characters=90_000)).text) == 90_000


async def test_compressed_answer_is_refused(log: Log) -> None:
    requests: list[str] = []
    compressed = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    with answering(200, "", compressed, requests) as port:
        async with at(port).lifespan():
            lost = await log.until("mcp_server_lost")
    assert "it compresses its answers" in lost["reason"]
    assert "Accept-Encoding: identity" in requests[0]


NO_SESSION = {"code": -32000, "message": "Bad Request: No valid session ID provided"}


def beside(server: ForgetfulServer) -> Played:
    return Played(RunningServer(ServerDeclaration("far", url=server.url), *QUICK))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, "Not Found"),
        (400, NO_SESSION),
        (503, {"code": -32000, "message": "No active session"}),
        (200, {"code": -32002, "message": "Server not initialized"}),
    ],
)
async def test_forgotten_session_is_renewed_and_refused_calls_are_repeated(status: int, body: Any) -> None:
    # The stream of notifications, which some servers have, ends with the session.
    async with ForgetfulServer(status, body, has_stream=body == NO_SESSION) as server, beside(server).running() as far:
        assert (await far.call("run")).text == "run 1"
        server.forget()
        assert (await far.call("run")).text == "run 2"
        server.forget()
        together = await asyncio.gather(*(far.call("run") for _ in range(3)))
        assert sorted(result.text for result in together) == ["run 3", "run 4", "run 5"]
        assert server.initialized == 3
        assert far.server.state.status == "ready"
        async with beside(server).running():
            assert len(server.sessions) == 2
        # A session ends at the server with its lifespan.
        assert len(server.sessions) == 1


async def test_refused_call_is_not_repeated_in_a_new_session_if_its_tool_has_changed() -> None:
    async with ForgetfulServer() as server, beside(server).running() as far:
        server.description = "Runs twice."
        server.forget()
        with pytest.raises(ToolError, match="Not run: far_run has changed"):
            await far.call("run")
        assert server.runs == 0
        assert (await far.call("run")).text == "run 1"


async def test_a_tool_that_does_not_know_its_own_session_fails_its_call() -> None:
    async with ForgetfulServer(200, {"code": -32000, "message": "Session 7 not found"}) as server:
        async with beside(server).running() as far:
            server.is_always_forgetful = True
            with pytest.raises(ToolError, match="refused the call: Session 7 not found"):
                await far.call("run", browserSessionId=7)
            assert server.initialized == 1


async def test_session_that_a_server_forgets_without_saying_so_is_renewed(log: Log) -> None:
    async with ForgetfulServer(500, "Internal Server Error") as server, beside(server).running() as far:
        server.forget()
        with pytest.raises(ToolError, match="answered the call with HTTP 500"):
            await far.call("run")
        await log.until("mcp_server_ready")
        await log.until("mcp_server_ready")
        assert (await far.call("run")).text == "run 1"


async def test_answered_call_survives_forgotten_session() -> None:
    async with ForgetfulServer(404) as server, beside(server).running() as far:
        server.release = asyncio.Event()
        slow = asyncio.create_task(far.call("run"))
        await server.waiting.wait()
        release, server.release = server.release, None
        server.forget()
        refused = asyncio.create_task(far.call("run"))
        await server.refused.wait()
        release.set()
        assert [(await call).text for call in (slow, refused)] == ["run 1", "run 2"]
        assert server.initialized == 2


async def test_repeatedly_refused_call_fails() -> None:
    async with ForgetfulServer(400, NO_SESSION) as server, beside(server).running() as far:
        server.is_always_forgetful = True
        with pytest.raises(ToolError, match=r"refused the call twice: .* The call was not carried out"):
            await far.call("run")
        assert (server.initialized, server.runs) == (2, 0)
        server.is_always_forgetful = False
        assert (await far.call("run")).text == "run 1"


@pytest.mark.parametrize("status", [200, 400])
async def test_other_error_fails_call(status: int) -> None:
    error = {"code": -32602, "message": "there is no browser session 7"}
    async with ForgetfulServer(status, error) as server, beside(server).running() as far:
        server.is_always_forgetful = True
        with pytest.raises(ToolError, match=f"'far' refused the call: {error['message']}"):
            await far.call("run")
        assert server.initialized == 1


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (429, {"Retry-After": "7"}, "HTTP 429 Too Many Requests: try again in 7 s"),
        (403, {}, "HTTP 403 Forbidden: check its headers"),
    ],
)
async def test_http_error_for_one_call_fails_only_that_call(status: int, headers: Any, said: str) -> None:
    async with ForgetfulServer() as server, beside(server).running() as far:
        server.release = asyncio.Event()
        slow = asyncio.create_task(far.call("run"))
        await server.waiting.wait()
        server.error = PlainTextResponse("no", status, headers)
        with pytest.raises(ToolError, match=f"'far' answered the call with {said}$"):
            await far.call("run")
        server.error = None
        server.release.set()
        assert (await slow).text == "run 1"
        assert server.initialized == 1


def redirecting(server: ForgetfulServer) -> Played:
    headers = {"Authorization": "Bearer open-sesame"}
    return Played(RunningServer(ServerDeclaration("far", url=f"{server.url[:-3]}moved", headers=headers), *QUICK))


@pytest.mark.parametrize("status", [307, 308])
async def test_redirect_within_the_origin_keeps_method_body_and_headers(status: int) -> None:
    async with ForgetfulServer(401, "no session") as server:
        server.moved = (status, "/mcp")
        async with redirecting(server).running() as far:
            assert [(await far.call("run")).text for _ in range(2)] == ["run 1", "run 2"]
            server.forget()
            assert (await far.call("run")).text == "run 3"
        assert server.authorized == {"Bearer open-sesame"}
        assert not server.sessions


@pytest.mark.parametrize(
    ("status", "target"), [(307, "http://localhost:1/mcp"), (308, "http://u:p@localhost:1/mcp"), (307, "/moved")]
)
async def test_redirect_to_another_origin_or_itself_is_told(status: int, target: str, log: Log) -> None:
    async with ForgetfulServer() as server:
        server.moved = (status, target)
        async with redirecting(server).lifespan():
            lost = await log.until("mcp_server_lost")
        assert "Redirect to http://" in lost["reason"]
        assert "not followed; use that URL" in lost["reason"]
        assert server.initialized == 0


@pytest.mark.parametrize("media_type", ["application/json", "text/event-stream"])
async def test_lone_surrogate_is_replaced_and_invalid_json_fails_call(
    media_type: str,
) -> None:
    text = rb'"cut \ud83d, \ud83d\ude00, \\ud83d"}]}}'
    answer = b'{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": ' + text
    begin, end = (b"event: message\ndata: ", b"\n\n") if media_type == "text/event-stream" else (b"", b"")
    async with ForgetfulServer() as server, beside(server).running() as far:
        server.raw_type = media_type
        for cut in (90, 91):
            server.raw = [begin + answer[:cut], answer[cut:] + end]
            assert (await far.call("run")).text == "cut \ufffd, \U0001f600, \\ud83d"
        server.raw = [begin + answer[:50] + end]
        with pytest.raises(
            ToolError, match=r"The answer of the MCP server 'far' cannot be read \(.*may have taken effect"
        ):
            await far.call("run")
