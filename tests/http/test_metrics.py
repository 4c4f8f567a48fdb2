"""Metrics of runs, calls, models and the store, as Prometheus scrapes them over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from callboard import Agent, Callboard, Settings, Skill, tool
from callboard._metrics import MAX_UNREGISTERED
from callboard.agents import RunContext
from callboard.testing import Call, FakeModel, client
from callboard_protocol import Done, Error, Event, Message, ToolCallComplete, ToolCallError, ToolCallStart
from tests.fakes.openai_server import Answer, OpenAIServer, Refusal, call, chunks, finish, text, usage
from tests.scraping import Scrape, scrape, scrape_until
from tests.serving import ScriptedAgent, database_of, request, serving


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    if a == b:
        raise ValueError("the same twice")
    return a + b


CLERK = Agent("clerk", skills=[Skill("arithmetic", "Adds.", tools=[add])])


async def hello(_: RunContext) -> AsyncIterator[Event]:
    yield Message(content="Hello.")


async def test_runs_are_counted_by_agent_and_ending_with_their_time(tmp_path: Path) -> None:
    async def failing(context: RunContext) -> AsyncIterator[Event]:
        yield Error(message="No.", code="model_refused")

    async def inventing(context: RunContext) -> AsyncIterator[Event]:
        yield Error(message="No.", code=f"of my own {context.run_id}")

    agents = [
        ScriptedAgent(hello, "kind"),
        ScriptedAgent(failing, "failing"),
        ScriptedAgent(inventing, "inventing"),
    ]
    async with serving(tmp_path, *agents) as service:
        for agent, count in (("kind", 3), ("failing", 1), ("inventing", 2)):
            for _ in range(count):
                await service.events(request(agent=agent))
        await service.events(request(agent="kind", task="title_generation"))
        seen = await scrape(service.client)
    assert seen.sum("callboard_runs_total", agent="kind", kind="chat", ending="stop") == 3
    assert seen.sum("callboard_runs_total", agent="kind", kind="task", ending="stop") == 1
    assert seen.sum("callboard_runs_total", agent="failing", ending="model_refused") == 1
    assert seen.sum("callboard_runs_total", agent="inventing", ending="other") == 2
    assert seen.sum("callboard_runs_total") == 7
    assert seen.sum("callboard_run_seconds_count", agent="kind", kind="chat") == 3
    assert seen.sum("callboard_run_seconds_sum") > 0
    assert seen.sum("callboard_runs_open") == 0


async def test_calls_and_requests_to_models_are_counted_with_their_time_and_tokens(tmp_path: Path) -> None:
    script: list[Answer] = [
        chunks(call("add", '{"a": 1, "b": 2}'), call("add", '{"a": 2, "b": 2}', index=1), finish("tool_calls")),
        chunks(call("add", '{"a": "x"}'), call("invented_by_a_model", "{}", index=1), finish("tool_calls")),
        chunks(text("It is "), text("3."), finish("stop"), usage(20, 3), pause_seconds=0.02),
        Refusal(401),
    ]
    async with OpenAIServer(script) as model, serving(tmp_path, CLERK, model_base_url=model.base_url, model="m") as it:
        for _ in range(2):
            await it.events(request(agent="clerk"))
        seen = await scrape(it.client)
    for tool_name, outcome in (
        ("add", "ok"),
        ("add", "tool_failed"),
        ("add", "invalid_args"),
        ("other", "unknown_tool"),
    ):
        assert seen.sum("callboard_tool_calls_total", tool=tool_name, outcome=outcome) == 1
    assert seen.sum("callboard_tool_calls_total") == 4
    assert seen.sum("callboard_tool_call_seconds_count", tool="add") >= 2
    assert seen.types["callboard_tool_call_seconds"] == "histogram"
    assert seen.sum("callboard_model_requests_total", model="m", outcome="ok") == 3
    assert seen.sum("callboard_model_requests_total", model="m", outcome="model_unauthorized") == 1
    assert seen.sum("callboard_model_tokens_total", model="m", type="input") == 20
    assert seen.sum("callboard_model_tokens_total", model="m", type="output") == 3
    assert seen.sum("callboard_model_first_token_seconds_count", model="m") == 3
    assert seen.sum("callboard_model_request_seconds_count", model="m") == 4
    first = seen.sum("callboard_model_first_token_seconds_sum", model="m")
    assert 0.02 <= first < seen.sum("callboard_model_request_seconds_sum", model="m")


async def test_a_request_that_its_run_stops_is_no_failure_of_the_model(tmp_path: Path) -> None:
    script = [chunks(text("Once "), ending="hang")]
    async with OpenAIServer(script) as model, serving(tmp_path, CLERK, model_base_url=model.base_url, model="m") as it:
        running = asyncio.create_task(it.events(request(agent="clerk", run_id="r")))
        await model.hanging.wait()
        await it.client.post("/v1/runs/r/cancel")
        await running
        seen = await scrape(it.client)
    # No answer of that name ever ended well, so nobody knows that there is such a model.
    assert seen.sum("callboard_model_requests_total", model="other", outcome="stopped") == 1
    assert seen.sum("callboard_runs_total", ending="cancelled") == 1


async def test_gauges_show_the_state_at_the_time_of_the_scrape(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    begun: list[str] = []

    async def waiting(context: RunContext) -> AsyncIterator[Event]:
        begun.append(context.run_id)
        yield Message(content="x" * 10_000)
        await go_on.wait()

    async with serving(tmp_path, ScriptedAgent(waiting), max_runs=2, run_queue_seconds=60) as service:

        async def run(number: int) -> None:
            await service.events(request(run_id=f"r{number}"))

        running = [asyncio.create_task(run(number)) for number in range(3)]
        await scrape_until(service.client, lambda one: one.sum("callboard_runs_waiting") == 1)
        await scrape_until(service.client, lambda one: one.sum("callboard_runs_open", agent="scripted") == 2)
        await scrape_until(service.client, lambda one: one.sum("callboard_log_bytes") > 20_000)
        async with service.client.stream("GET", f"/v1/runs/{begun[0]}/events"):
            more = await scrape_until(service.client, lambda one: one.sum("callboard_listeners") == 3)
        go_on.set()
        await asyncio.gather(*running)
        after = await scrape_until(service.client, lambda one: one.sum("callboard_listeners") == 0)
    assert more.sum("callboard_runs_open") == 2
    # What does not run is 0 and not nothing, or it would be drawn as no data.
    assert list(after.matching("callboard_runs_open", agent="scripted")) == [0]
    assert after.sum("callboard_runs_open") == after.sum("callboard_runs_waiting") == 0
    assert after.sum("callboard_runs_total") == 3


async def test_the_store_is_timed_and_its_failures_are_counted(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(hello)) as service:
        await service.events(request(chat_id="c"))
        before = await scrape(service.client)
        assert before.sum("callboard_store_seconds_count", operation="write") > 0
        assert before.sum("callboard_store_seconds_count", operation="read") > 0
        assert before.sum("callboard_store_failures_total") == 0
        await database_of(service).read(lambda connection: connection.exec_driver_sql("SELECT 1").all())
        with pytest.raises(Exception, match="database"):
            await database_of(service).read(lambda connection: connection.exec_driver_sql("SELECT nothing"))
        after = await scrape(service.client)
    reads = "callboard_store_seconds_count"
    assert after.sum(reads, operation="read") == before.sum(reads, operation="read") + 2
    assert after.sum("callboard_store_failures_total", operation="read") == 1


async def test_invented_names_do_not_create_unlimited_series(tmp_path: Path) -> None:
    async def inventing(context: RunContext) -> AsyncIterator[Event]:
        for number in range(MAX_UNREGISTERED + 5):
            name = f"tool_{context.run_id}_{number}"
            yield ToolCallStart(tool_call_id=name, tool_name=name)
            yield ToolCallComplete(tool_call_id=name, result="well")
            yield ToolCallStart(tool_call_id=f"{name}x", tool_name=f"{name}x")
            yield ToolCallError(tool_call_id=f"{name}x", error="no", code=f"code_{number}")
        yield Done()

    async with serving(tmp_path, ScriptedAgent(inventing)) as service:
        sizes = []
        for number in range(3):
            await service.events(
                request(run_id=f"r{number}", chat_id=f"c{number}", message_id=f"m{number}", user={"id": f"u{number}"})
            )
            seen = await scrape(service.client)
            sizes.append(len(seen.samples))
    assert len(seen.values_of("callboard_tool_calls_total", "tool")) == MAX_UNREGISTERED + 1
    assert seen.values_of("callboard_tool_calls_total", "outcome") == {"ok", "other"}
    assert sizes[1] == sizes[2]
    told = str(seen.samples)
    assert not [name for name in ("u0", "c0", "m0") if f"'{name}'" in told]


async def test_metrics_need_a_key_and_the_metrics_key_opens_no_other_route(tmp_path: Path) -> None:
    keys = {"api_key": "the-key-of-the-server", "metrics_key": "the-key-of-prometheus"}
    async with serving(tmp_path, ScriptedAgent(hello), **keys) as service:

        async def status(path: str, key: str = "") -> int:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return (await service.client.get(path, headers=headers)).status_code

        assert await status("/metrics") == 401
        assert await status("/metrics", "another-key") == 401
        assert await status("/metrics", keys["api_key"]) == 200
        assert await status("/metrics", keys["metrics_key"]) == 200
        assert await status("/v1/models", keys["metrics_key"]) == 401
        assert await status("/v1/chats/c/messages", keys["metrics_key"]) == 401


async def test_metrics_are_404_when_disabled(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(hello), metrics=False) as service:
        await service.events(request())
        answer = await service.client.get("/metrics")
    assert answer.status_code == 404
    assert "CALLBOARD_METRICS" in answer.text


def test_two_applications_in_one_process_count_each_for_itself(tmp_path: Path) -> None:
    def board(name: str) -> Callboard:
        model = FakeModel([Call("add", a=1, b=2)], "It is 3.")
        return Callboard([CLERK], model=model, settings=Settings(data_dir=tmp_path / name))

    with client(board("one")) as one, client(board("two")) as two:
        one.run("What is 1 + 2?")
        of_one = Scrape.read(one.http.get("/metrics").text)
        of_two = Scrape.read(two.http.get("/metrics").text)
    assert of_one.sum("callboard_tool_calls_total", tool="add") == 1
    assert of_two.sum("callboard_tool_calls_total") == of_two.sum("callboard_runs_total") == 0
