"""Answers outlive their servers: whatever befalls those, each ends as it would have, and no effect is doubled."""

import random
from pathlib import Path

import httpx
import pytest

from tests.faults.campaign import run_campaign, staging
from tests.faults.listener import Listener
from tests.faults.plans import Plan
from tests.runs.promises import check, read

POSTGRESQL = pytest.mark.needs("postgresql")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("engine", "faults"),
    [
        ("sqlite", 20),
        pytest.param("postgresql", 20, marks=POSTGRESQL),
        pytest.param("redis", 20, marks=[POSTGRESQL, pytest.mark.needs("redis")]),
    ],
)
async def test_every_answer_ends_as_it_would_have_and_no_effect_is_doubled(
    engine: str, faults: int, tmp_path: Path
) -> None:
    report = await run_campaign(engine, faults, random.randrange(10**6), tmp_path)
    print(report)
    assert not report.problems, str(report)
    assert any(answer.faults for answer in report.answers)


@POSTGRESQL
async def test_an_answer_is_the_same_to_the_byte_at_whatever_server_it_is_resumed_after_each_event(
    tmp_path: Path,
) -> None:
    async with staging("postgresql", random.Random(1), tmp_path) as stage:
        question = "a turn of several rounds"
        calls = Plan.of(question).calls
        body = {
            "agent": "shop",
            "run_id": "run",
            "chat_id": "chat",
            "message_id": "message",
            "user": {"id": "ann"},
            "messages": [{"role": "user", "content": question}],
        }
        listener = Listener(stage.balancer.url, body, lambda order: calls[order].is_agreed)
        await listener.start(at_most=1)
        whole = b"".join(listener.frames)
        check(read(whole))
        for server in stage.servers:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}") as client:
                for after in range(len(listener.frames)):
                    rest = await client.get("/v1/runs/run/events", params={"user_id": "ann", "after": after})
                    assert rest.content == b"".join(listener.frames[after:])
