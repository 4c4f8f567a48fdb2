"""Each request has an id, in its response and in every log line of the request and its run."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from callboard.agents import RunContext
from callboard_protocol import Event, Message
from tests import processes
from tests.serving import ScriptedAgent, request, serving

MADE = re.compile(r"[0-9a-f]{32}")

LOGGING_AGENT = '''
import structlog
from callboard import Agent, Skill, register, tool
from callboard.testing import Call, FakeModel

@tool
def look() -> str:
    """Look."""
    structlog.get_logger().info("tool_looked")
    return "seen"

register(Agent("looker", model=FakeModel([Call("look")], "I have."), skills=[Skill("eyes", "Look.", tools=[look])]))
'''


async def hello(_: RunContext) -> AsyncIterator[Event]:
    yield Message(content="Hello.")


async def test_well_formed_request_id_is_returned_and_any_other_replaced(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(hello)) as service:

        async def answered(*given: str) -> str:
            headers = [(b"X-Request-Id", one.encode("latin-1")) for one in given]
            return (await service.client.get("/ready", headers=headers)).headers["X-Request-Id"]

        for given in ("a", "9f1c2d3e-4b5a-6978", "Root=1-67891233-abcdef", "x" * 128):
            assert await answered(given) == given
        for malformed in ("", "x" * 129, "two words", "a,b", 'quoted"', "line;", "caf\xe9"):
            assert MADE.fullmatch(await answered(malformed)), malformed
        assert MADE.fullmatch(await answered("one", "two"))
        assert len({await answered() for _ in range(5)}) == 5


async def test_error_responses_have_a_request_id(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedAgent(hello), api_key="a-long-random-key") as service:
        key = {"Authorization": "Bearer a-long-random-key"}

        async def asked(method: str, path: str, status: int, **headers: str) -> httpx.Response:
            answer = await service.client.request(method, path, headers={"X-Request-Id": f"of-{status}", **headers})
            assert answer.status_code == status
            return answer

        answers = [
            await asked("GET", "/v1/models", 401),
            await asked("GET", "/ready", 421, Host="elsewhere.example"),
            await asked("GET", "/ready", 403, Origin="https://page.example"),
            await asked("GET", "/nowhere", 404, **key),
            await asked("DELETE", "/ready", 405, **key),
            await asked("POST", "/v1/runs", 422, **key, **{"Content-Type": "application/json"}),
        ]
        stream = await service.client.post("/v1/runs", json=request(), headers={"X-Request-Id": "of-200", **key})
    for answer in [*answers, stream]:
        assert answer.headers.get_list("X-Request-Id") == [f"of-{answer.status_code}"]


def test_every_line_of_a_run_has_the_id_of_the_request_that_began_it(tmp_path: Path) -> None:
    agents = tmp_path / "looker.py"
    agents.write_text(LOGGING_AGENT)
    with processes.serving(tmp_path / "data", AGENTS=str(agents)) as (url, process):
        body = request(agent="looker", run_id="r", chat_id="c")
        httpx.post(f"{url}/v1/runs", json=body, headers={"X-Request-Id": "the-first"}, timeout=120)
        # Another listener of the same run has an id of its own, and its run keeps that of the first.
        httpx.get(f"{url}/v1/runs/r/events", headers={"X-Request-Id": "the-second"}, timeout=120)
        lines: list[dict[str, Any]] = []
        assert process.stderr
        while not lines or lines[-1]["event"] != "run_ended":
            lines.append(json.loads(process.stderr.readline()))
    of_run = {line["event"]: line.get("request_id") for line in lines if line.get("run_id") == "r"}
    assert of_run == {"run_started": "the-first", "tool_looked": "the-first", "run_ended": "the-first"}
