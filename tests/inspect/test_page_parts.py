"""Many who look at one run: its living part is made once for all of them, and is nobody's own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from callboard._inspect import inspector
from callboard._inspect.page import PartCache
from callboard.agents import RunContext
from callboard_protocol import Event, ToolCallStart
from tests.serving import ScriptedAgent, request, serving

PART = {"HX-Request": "true"}


async def test_cancelled_request_does_not_cancel_the_part_for_others() -> None:
    parts = PartCache(60.0)
    may_end = asyncio.Event()

    async def make() -> str:
        await may_end.wait()
        return "page"

    first, second = (asyncio.create_task(parts.get("a", make)) for _ in range(2))
    await anyio.wait_all_tasks_blocked()
    first.cancel()
    may_end.set()
    assert await second == "page"


async def test_fifty_viewers_of_a_run_share_its_part_and_keep_their_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine fifty requests may take longer than a second.
    monkeypatch.setattr(inspector, "PART_SECONDS", 60.0)
    is_working = asyncio.Event()

    async def work(_: RunContext) -> AsyncIterator[Event]:
        yield ToolCallStart(tool_call_id="a", tool_name="look_around")
        is_working.set()
        await asyncio.Event().wait()

    key = "a-long-secret-key"
    async with serving(tmp_path, ScriptedAgent(work), api_key=key) as service:
        service.client.headers["Authorization"] = f"Bearer {key}"
        running = asyncio.create_task(service.events(request(chat_id="c", run_id="r", user={"id": "ann"})))
        await is_working.wait()
        for path in ("/inspect/run?id=r&chat=c", "/inspect/"):
            parts = await asyncio.gather(*(service.client.get(path, headers=PART) for _ in range(50)))
            # Each has the time that has gone by in it: made anew, no two would be the same.
            assert len({part.text for part in parts}) == 1
            assert "look_around" in parts[0].text
            assert 'name="token"' not in parts[0].text
            # What another user sees is made for them.
            others = await service.client.get(f"{path}{'&' if '?' in path else '?'}user=bob", headers=PART)
            assert "look_around" not in others.text
        [run] = service.state.runs
        run.cancel()
        await running
