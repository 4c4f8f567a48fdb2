"""A database behind a proxy that stops forwarding, like a network that loses all packets."""

import asyncio
import gc
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from callboard._agents import RunContext
from callboard_protocol import Event, Message, ToolCallComplete, ToolCallStart
from tests.relays import listening_on_a_port
from tests.serving import ScriptedAgent, Service, request, serving


class SilentProxy:
    """Forwards everything until `silence`; then it accepts connections and data, but forwards nothing."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._passes = asyncio.Event()
        self._passes.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def silence(self) -> None:
        """Stop forwarding."""
        self._passes.clear()

    def recover(self) -> None:
        """Forward again, beginning with the data received meanwhile."""
        self._passes.set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["SilentProxy"]:
        """Listen on a free port until the block ends."""
        async with listening_on_a_port(self._serve, self._tasks) as self.port:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_unix_connection(str(self._socket))
        for source, target in ((reader, upstream[1]), (upstream[0], writer)):
            task = asyncio.create_task(self._pass_on(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while piece := await source.read(64 * 1024):
                await self._passes.wait()
                target.write(piece)
                await target.drain()
        except ConnectionError:
            pass
        finally:
            target.close()


async def check_that_nobody_sees_what_is_not_kept(
    silent: SilentProxy, behind_it: Mapping[str, Any], beside_it: Mapping[str, Any], folder: Path
) -> None:
    """Let a store go silent for one of two servers, with these settings, in the middle of an answer.

    The other one takes over what is kept of it: nobody may have seen more than that.
    """

    async def script(_: RunContext) -> AsyncIterator[Event]:
        yield Message(content="Let me look. ")
        yield ToolCallStart(tool_call_id="a", tool_name="search")
        silent.silence()
        is_silent.set()
        yield ToolCallComplete(tool_call_id="a", result="found")
        await asyncio.Event().wait()

    is_silent = asyncio.Event()
    seen = bytearray()

    async def listen(service: Service) -> None:
        body = request(run_id="run", chat_id="chat")
        async with service.client.stream("POST", "/v1/runs", json=body) as response:
            async for chunk in response.aiter_bytes():
                seen.extend(chunk)

    agent = ScriptedAgent(script)
    async with (
        serving(folder / "other", agent, lease_seconds=3, **beside_it) as other,
        serving(folder / "one", agent, lease_seconds=3, **behind_it) as one,
    ):
        listening = asyncio.create_task(listen(one))
        await is_silent.wait()
        # It ends once the other server has taken the run over.
        whole = await other.client.get("/v1/runs/run/events")
        listening.cancel()
        assert whole.content.startswith(bytes(seen))


def check_that_no_failure_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """Check that no task has failed with an exception that was never retrieved."""
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
