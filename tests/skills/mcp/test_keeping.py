"""A server's life: it starts, dies, is started again, changes its tools and ends with ours."""

import asyncio
import gc
import os
import signal

import pytest

from callboard.errors import ToolError
from callboard.skills.mcp.declaration import ServerDeclaration
from callboard.skills.mcp.server import McpState, RunningServer
from tests.skills.mcp.conftest import QUICK, Log, Make, Played, children_of, is_alive


async def test_the_process_is_gone_when_the_lifespan_ends_and_the_skill_can_be_started_again(ours: Make) -> None:
    played = ours()
    for _ in range(2):
        async with played.lifespan():
            pid = await played.pid()
            assert is_alive(pid)
            running = played.server.state
            assert (running.status, running.tools) == ("ready", 12)
        assert not is_alive(pid)
        assert played.server.state == McpState("stopped", "", running.tool_names)
        with pytest.raises(ToolError, match="its tools work only in a running Callboard server"):
            await played.call("count", steps=1)


@pytest.mark.slow
async def test_server_that_does_not_end_is_killed(plain: Make, log: Log) -> None:
    played = plain({"name": "a", "inputSchema": {"type": "object"}}, deaf=True)
    before = set(children_of(os.getpid()))
    async with played.lifespan():
        [child] = set(children_of(os.getpid())) - before
    assert not is_alive(child)


async def test_silent_server_delays_neither_start_nor_stop(plain: Make) -> None:
    played = plain(mute=True)
    before = set(children_of(os.getpid()))
    async with played.server.lifespan(wait_seconds=0.1):
        assert played.server.state.status == "starting"
        assert played.server.tools() == ()
        children = set(children_of(os.getpid())) - before
    assert [child for child in children if is_alive(child)] == []


def test_stop_during_startup_waits_for_process_end(plain: Make) -> None:
    played = plain(mute=True)

    async def begin(turns: int) -> None:
        async with played.server.lifespan(wait_seconds=0):
            for _ in range(turns):
                await asyncio.sleep(0)

    for turns in range(20):
        # In its own event loop: after that is closed, nothing can learn of the end of a process.
        asyncio.run(begin(turns))
    # The destructor of a process whose end is unknown writes a warning.
    gc.collect()


async def test_a_server_that_dies_in_a_call_or_is_killed_between_calls_is_restarted(ours: Make, log: Log) -> None:
    played = ours()
    async with played.lifespan():
        before = await played.pid()
        await log.until("mcp_server_ready")
        with pytest.raises(ToolError, match="'ours' was lost during this call"):
            await played.call("die")
        await log.until("mcp_server_ready")
        os.kill(await played.pid(), signal.SIGKILL)
        lost = await log.until("mcp_server_lost", reason="it ended")
        assert lost["level"] == "warning"
        await log.until("mcp_server_ready")
        assert (await played.call("count", steps=1)).text == "counted to 1"
        assert not is_alive(before)


async def test_tools_of_restarting_server_name_retry_time(ours: Make, log: Log) -> None:
    played = ours()
    slow = Played(RunningServer(played.server.declaration, first_pause_seconds=30))
    async with slow.lifespan():
        with pytest.raises(ToolError):
            await slow.call("die")
        await log.until("mcp_server_lost")
        assert slow.server.state.status == "restarting"
        assert slow.server.state.tools == len(slow.server.tools())
        with pytest.raises(ToolError, match=r"'ours' is being restarted; try again in (30|29) s"):
            await slow.call("count", steps=1)


async def test_failing_server_is_retried_and_logged_once(log: Log) -> None:
    server = RunningServer(ServerDeclaration("none", "/no/such/command"), *QUICK)
    async with server.lifespan():
        assert server.tools() == ()
        assert server.state.status == "restarting"
        assert server.state.reason == "there is no command or folder '/no/such/command'"
        lost = [await log.until("mcp_server_lost") for _ in range(4)]
    assert [line["level"] for line in lost] == ["warning", "debug", "debug", "debug"]
    assert [line["restart_seconds"] for line in lost] == [0.05, 0.1, 0.2, 0.2]


async def test_server_that_ends_at_a_message_before_initialize_is_used(plain: Make, log: Log) -> None:
    played = plain({"name": "a", "inputSchema": {"type": "object"}}, strict=True, results={"a": {"content": "here"}})
    async with played.lifespan():
        assert (await played.call("a")).text == "here"
    assert log.of("mcp_server_lost") == []


async def test_refused_list_ends_neither_calls_nor_tools_and_is_read_again(plain: Make, log: Log) -> None:
    played = plain(
        {"name": "a", "inputSchema": {"type": "object"}}, busy="\x1bbusy", results={"a": {"content": "here"}}
    )
    async with played.lifespan():
        assert (await played.call("a")).text == "here"
        assert [tool.name for tool in played.server.tools()] == ["plain_a"]
    assert [line["reason"] for line in log.of("mcp_tools_not_read")] == ["MCPError: busy"]
    assert log.of("mcp_server_lost") == []


async def test_endless_reports_of_a_change_are_followed_ever_more_slowly(plain: Make, log: Log) -> None:
    declaration = plain({"name": "a", "inputSchema": {"type": "object"}}, restless=True).server.declaration
    async with RunningServer(declaration).lifespan():
        pauses = [(await log.until("mcp_tools_unchanged"))["pause_seconds"] for _ in range(3)]
    assert pauses == [0.4, 0.8, 1.6]
    assert len(log.of("mcp_server_ready")) == 1
