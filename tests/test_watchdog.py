"""A tool that blocks the event loop is named in the log, with its stack, and not a thousand times."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from callboard._watchdog import Watchdog
from callboard.agents import Agent
from callboard.calls import tool
from callboard.models import Finish, ModelDelta, ModelRequest, ScriptedModel, TextDelta, ToolCallDelta
from callboard.skills import Skill
from tests.serving import request, serving

LIMIT_SECONDS = 0.05


class Told:
    """Log lines by event, with a wait for one of them."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._more = threading.Condition()

    def __call__(self, _logger: object, _method: str, line: Any) -> Any:
        with self._more:
            self.lines.append(dict(line))
            self._more.notify_all()
        return line

    def of(self, event: str, tool: str | None = None) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event and line.get("tool") == tool]

    def wait(self, event: str, tool: str) -> None:
        """Blocks the thread that calls, until that event was logged of that tool."""
        with self._more:
            assert self._more.wait_for(lambda: self.of(event, tool), timeout=30)


@pytest.fixture
def told() -> Iterator[Told]:
    before = structlog.get_config()
    told = Told()
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, told, structlog.dev.ConsoleRenderer()],
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=False,
    )
    yield told
    structlog.configure(**before)


async def test_the_tool_that_blocks_is_named_with_its_run_and_its_stack(tmp_path: Path, told: Told) -> None:
    @tool
    async def sleeps_badly() -> str:
        """Blocks until the watchdog has barked."""
        told.wait("loop_blocked", "sleeps_badly")
        return "woke"

    def script(asked: ModelRequest) -> list[ModelDelta]:
        if asked.messages[-1]["role"] == "tool":
            return [TextDelta("done"), Finish("stop")]
        return [ToolCallDelta(0, "c1", "sleeps_badly", "{}"), Finish("tool_calls")]

    agent = Agent("scripted", skills=(Skill("tools", "Tools.", tools=(sleeps_badly,)),), model=ScriptedModel(script))
    async with serving(tmp_path, agent) as service:
        await service.events(request(run_id="r1", chat_id="c"))
        await asyncio.to_thread(told.wait, "loop_free", "sleeps_badly")
    [blocked] = told.of("loop_blocked", "sleeps_badly")
    assert (blocked["tool"], blocked["tool_call_id"], blocked["run_id"]) == ("sleeps_badly", "c1", "r1")
    assert any("sleeps_badly" in line and "told.wait" in line for line in blocked["stack"].split("\n"))
    [free] = told.of("loop_free", "sleeps_badly")
    assert (free["tool"], free["seconds"] > 0) == ("sleeps_badly", True)


async def test_the_same_place_is_logged_once_in_a_while_and_the_rest_is_counted(told: Told) -> None:
    seen = threading.Semaphore(0)

    class Counting(Watchdog):
        def _report(self) -> dict[str, Any] | None:
            said = super()._report()
            seen.release()
            return said

    with Counting(LIMIT_SECONDS, repeat_seconds=3600):
        for _ in range(3):
            # Blocks the loop itself until the watchdog has seen it.
            assert seen.acquire(timeout=30)
            # The loop is free for one turn, in which it answers the watchdog.
            await asyncio.sleep(0)
    assert len(told.of("loop_blocked")) == 1
