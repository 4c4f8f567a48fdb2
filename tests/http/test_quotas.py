"""Daily quotas of a user count across servers, restarts and kinds of request."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from callboard import Agent, Skill, tool
from callboard.agents import RunContext
from callboard.models import (
    Finish,
    ModelDelta,
    ModelRequest,
    OpenAICompatible,
    ScriptedModel,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
)
from callboard_protocol import Done, Event, Message, ToolCallComplete, ToolCallError
from tests.fakes.openai_server import OpenAIServer, chunks, text
from tests.serving import ScriptedAgent, Service, database_of, numbered, request, serving
from tests.storage.trouble import locked_by_another_program

CALLS_AT_ONCE = 3


class Looker:
    """An agent that looks three times at one time, then answers; its endpoint says what it cost."""

    def __init__(self, tokens: int = 0, **fields: Any) -> None:
        self.looks = 0
        self.told: list[str] = []

        @tool
        async def look(at: int) -> str:
            """Looks."""
            self.looks += 1
            return f"seen {at}"

        def script(asked: ModelRequest) -> list[ModelDelta]:
            results = [str(message["content"]) for message in asked.messages if message["role"] == "tool"]
            cost: list[ModelDelta] = [TokenUsage(total_tokens=tokens)] if tokens else []
            if results:
                self.told = results
                return [TextDelta("Done."), *cost, Finish("stop")]
            calls = [
                ToolCallDelta(at, id=f"call-{at}", name="look", arguments=f'{{"at": {at}}}')
                for at in range(CALLS_AT_ONCE)
            ]
            return [*calls, *cost, Finish("tool_calls")]

        self.agent = Agent(
            "looker", skills=[Skill("s", "Looks.", tools=(look,))], model=ScriptedModel(script), **fields
        )


def asked(user: str | None = "ann", **fields: Any) -> dict[str, Any]:
    return request(agent="looker", user={"id": user} if user else None, **fields)


async def refused(service: Service, body: Mapping[str, Any]) -> str:
    """The words of a 429 that says until when."""
    answer = await service.client.post("/v1/runs", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "quota_exceeded"), answer.text
    assert 0 < int(answer.headers["retry-after"]) <= 86_400
    return str(answer.json()["error"]["message"])


def ends(events: list[Event]) -> tuple[int, list[str]]:
    """How many calls ran, and the codes of those that did not."""
    return sum(isinstance(event, ToolCallComplete) for event in events), [
        event.code for event in events if isinstance(event, ToolCallError)
    ]


async def test_calls_beyond_those_of_the_day_do_not_run_and_the_next_run_is_refused(tmp_path: Path) -> None:
    looker = Looker()
    async with serving(tmp_path, looker.agent, max_user_calls_per_day=5) as service:
        assert ends(await service.events(asked())) == (3, [])
        events = await service.events(asked())
        assert ends(events) == (2, ["limit"])
        assert isinstance(events[-1], Done)
        assert looker.looks == 5
        assert any("has used all 5 tool calls of today" in told for told in looker.told)
        assert "You have used all 5 tool calls of today" in await refused(service, asked())
        # Others have their own, and so have those who name nobody, together.
        assert ends(await service.events(asked("bob"))) == (3, [])
        await service.events(asked(None))
        await service.events(asked(None))
        await refused(service, asked(None))


async def test_runs_side_by_side_have_no_more_than_one_after_another(tmp_path: Path) -> None:
    looker = Looker()
    async with serving(tmp_path, looker.agent, max_user_calls_per_day=10) as service:
        found = await asyncio.gather(*(service.events(asked(chat_id=f"c{number}")) for number in range(12)))
        assert looker.looks == sum(ends(events)[0] for events in found) == 10


async def test_tokens_are_those_that_the_endpoint_says(tmp_path: Path) -> None:
    looker = Looker(tokens=50)
    async with serving(tmp_path, looker.agent, max_user_tokens_per_day=150) as service:
        assert ends(await service.events(asked())) == (3, [])
        assert ends(await service.events(asked())) == (3, [])
        assert "You have used all 150 tokens of today" in await refused(service, asked())
        assert (await service.state.store.usage("ann").today()).tokens == 200


@pytest.mark.parametrize("said", [0, 10**30])
async def test_an_endpoint_that_counts_what_cannot_be_gives_nothing_away(tmp_path: Path, said: int) -> None:
    def script(_: ModelRequest) -> list[ModelDelta]:
        return [TextDelta("A long story. " * 100), TokenUsage(total_tokens=said), Finish("stop")]

    teller = Agent("looker", model=ScriptedModel(script))
    async with serving(tmp_path, teller, max_user_tokens_per_day=300) as service:
        assert isinstance((await service.events(asked()))[-1], Done)
        for _ in range(2):
            await refused(service, asked())


async def test_who_stops_each_answer_before_its_end_pays_for_it_all_the_same(tmp_path: Path) -> None:
    told = "A long story. " * 100

    async def once(endless: OpenAIServer) -> None:
        clerk = Agent("looker", model=OpenAICompatible(endless.base_url, model="m"))
        async with serving(tmp_path, clerk, max_user_tokens_per_day=300) as service:
            async with service.client.stream("POST", "/v1/runs", json=asked(run_id="r")) as answer:
                async for _, event in numbered(answer):
                    if isinstance(event, Message):
                        break
                await service.client.post("/v1/runs/r/cancel", params={"user_id": "ann"})
            await service.state.runs.close()
            assert (await service.state.store.usage("ann").today()).tokens >= len(told) // 4

    async with OpenAIServer([chunks(text(told), ending="hang")]) as endless:
        await once(endless)
    async with serving(tmp_path, Looker().agent, max_user_tokens_per_day=300) as service:
        await refused(service, asked())


async def test_openais_clients_get_the_same_and_do_not_try_again(tmp_path: Path) -> None:
    looker = Looker()
    async with serving(tmp_path, looker.agent, max_user_calls_per_day=1) as service:
        body = {"model": "looker", "messages": [{"role": "user", "content": "hi"}]}
        headers = {"X-OpenWebUI-User-Id": "ann"}
        assert (await service.client.post("/v1/chat/completions", json=body, headers=headers)).status_code == 200
        answer = await service.client.post("/v1/chat/completions", json=body, headers=headers)
        assert (answer.status_code, answer.headers["x-should-retry"]) == (429, "false")
        assert answer.json()["error"]["type"] == "rate_limit_error"


async def waits(context: RunContext) -> AsyncIterator[Event]:
    yield Message(content="Waiting.")
    await asyncio.Event().wait()


async def test_runs_at_a_time_are_counted_at_all_servers_together(tmp_path: Path) -> None:
    waiting = ScriptedAgent(waits)
    limits = {"max_user_runs": 3, "run_queue_seconds": 0, "detach_grace_seconds": 600}
    async with AsyncExitStack() as closing:
        servers = [await closing.enter_async_context(serving(tmp_path, waiting, **limits)) for _ in range(3)]
        clients = [servers[number % 3].client for number in range(9)]

        async def begin(number: int, client: httpx.AsyncClient) -> int:
            body = request(chat_id=f"c{number}", run_id=f"r{number}", user={"id": "ann"})
            answer = await client.send(client.build_request("POST", "/v1/runs", json=body), stream=True)
            closing.push_async_callback(answer.aclose)
            return answer.status_code

        statuses = await asyncio.gather(*(begin(number, client) for number, client in enumerate(clients)))
        assert sorted(statuses) == [200] * 3 + [429] * 6
        # One that goes on is found again, also where there is no room.
        begun = statuses.index(200)
        other = servers[(begun + 1) % 3]
        assert await begin(begun, other.client) == 200
        # With an end there is room, at any of them.
        cancelled = await other.client.post(f"/v1/runs/r{begun}/cancel", params={"user_id": "ann"})
        assert cancelled.status_code == 202
        async with other.client.stream("GET", f"/v1/runs/r{begun}/events", params={"user_id": "ann"}) as answer:
            assert isinstance([event async for _, event in numbered(answer)][-1], Done)
        assert await begin(100, other.client) == 200
        assert await begin(101, other.client) == 429


async def test_a_database_that_cannot_be_written_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from callboard.storage.sql import database

    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.1)
    looker = Looker()
    async with serving(tmp_path, looker.agent, max_user_calls_per_day=4) as service:
        file = database_of(service).file
        assert file
        async with locked_by_another_program(file):
            assert ends(await service.events(asked())) == (3, [])


async def test_without_a_bound_nothing_is_counted(tmp_path: Path) -> None:
    async with serving(tmp_path, Looker(tokens=7).agent) as service:
        await service.events(asked())
        today = await service.state.store.usage("ann").today()
        assert (today.calls, today.tokens) == (0, 0)
