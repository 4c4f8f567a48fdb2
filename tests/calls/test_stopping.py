"""A plain function in its thread is told that nobody waits any more; one that goes on all the same is said to."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from callboard.agents import Agent
from callboard.calls import Tool, ToolContext, report_status, tool
from callboard.errors import ToolCancelled, ToolTimeout
from callboard.models import Finish, ModelDelta, ModelRequest, ScriptedModel, ToolCallDelta
from callboard.skills import Skill
from callboard_protocol import Event, ToolCallError, ToolCallStart
from tests.calls.conftest import Stage
from tests.serving import Service, numbered, request, serving

ByHand = Callable[..., Tool]


class Worker:
    """A plain function that works until it is told to stop, in one of the ways in which it can be told."""

    def __init__(self, *, listens: bool = True) -> None:
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.release = threading.Event()
        self.told: list[str] = []
        self._listens = listens

    def reporting(self) -> None:
        """Works, and says how far it is."""
        self.begun.set()
        try:
            while not self.release.wait(0.001):
                if self._listens:
                    report_status("processing", "at work")
        except ToolCancelled as error:
            self.told.append(error.code)
            raise
        finally:
            self.ended.set()

    def asking(self, context: ToolContext) -> str:
        """Works, and looks whether it should."""
        self.begun.set()
        while not self.release.wait(0.001):
            if context.cancelled:
                self.told.append("asked")
                break
        self.ended.set()
        return "never read"


@pytest.mark.parametrize(
    ("listens", "message"),
    [(True, "did not end within 0.05 s and was stopped."), (False, "could not be stopped: it may still be running.")],
)
async def test_error_says_whether_a_thread_that_is_out_of_time_has_stopped(
    stage: Stage, by_hand: ByHand, listens: bool, message: str
) -> None:
    worker = Worker(listens=listens)
    with pytest.raises(ToolTimeout) as raised:
        await stage.run(by_hand(worker.reporting), 0.05)
    assert str(raised.value).endswith(message)
    assert worker.ended.is_set() == listens
    assert worker.told == ["cancelled"] * listens
    worker.release.set()


async def test_a_call_that_ends_by_itself_was_not_cancelled(stage: Stage, by_hand: ByHand) -> None:
    contexts: list[ToolContext] = []
    await stage.run(by_hand(lambda context: contexts.append(context), context_parameter="context", read_arguments=dict))
    [context] = contexts
    assert not context.cancelled
    await context.status("late, and of no matter")


@asynccontextmanager
async def stopped(folder: Path, made: Tool, worker: Worker) -> AsyncIterator[tuple[Service, list[Event]]]:
    """A server, and the events of a run that was stopped once its tool was at work."""

    def script(_: ModelRequest) -> list[ModelDelta]:
        return [ToolCallDelta(0, "c1", made.name, "{}"), Finish("tool_calls")]

    agent = Agent("scripted", skills=(Skill("tools", "Tools.", tools=(made,)),), model=ScriptedModel(script))
    async with serving(folder, agent) as service:
        events = []
        body = request(run_id="r", chat_id="c")
        async with service.client.stream("POST", "/v1/runs", json=body) as response:
            async for _, event in numbered(response):
                events.append(event)
                if isinstance(event, ToolCallStart):
                    await asyncio.to_thread(worker.begun.wait)
                    await service.client.post("/v1/runs/r/cancel")
        yield service, events


@pytest.mark.parametrize("way", ["reporting", "asking"])
async def test_stop_ends_a_plain_function_that_checks_its_context(tmp_path: Path, way: str) -> None:
    worker = Worker()
    async with stopped(tmp_path, tool(getattr(worker, way)), worker) as (_, events):
        assert worker.ended.is_set()
    assert worker.told == ["cancelled" if way == "reporting" else "asked"]
    [error] = [event for event in events if isinstance(event, ToolCallError)]
    assert (error.code, error.error) == ("cancelled", "The run was cancelled before this call ended.")


async def test_card_and_store_say_that_a_plain_function_could_not_be_stopped(tmp_path: Path) -> None:
    worker = Worker(listens=False)
    async with stopped(tmp_path, tool(worker.reporting), worker) as (service, events):
        assert not worker.ended.is_set()
        worker.release.set()
        stored = (await service.client.get("/v1/chats/c/messages")).text
    [error] = [event for event in events if isinstance(event, ToolCallError)]
    assert error.error.endswith("Its tool could not be stopped: it may still be running, and may take effect.")
    assert "could not be stopped" in stored
    [start] = [event for event in events if isinstance(event, ToolCallStart)]
    assert not start.stoppable
