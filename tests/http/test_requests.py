"""Every invalid request gets an error with advice, each request has an id, and the agents are listed as models."""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from callboard.agents import Agent, RunContext
from callboard.agents.loading import load_all_agents
from callboard.settings import Settings
from callboard_protocol import Event, Message
from tests import processes
from tests.serving import ScriptedAgent, request, serving


async def hello(context: RunContext) -> AsyncIterator[Event]:
    yield Message(content="hello")


AGENT = ScriptedAgent(hello)


async def test_health_returns_version_and_protocol(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        response = await service.client.get("/health")
        assert response.status_code == 200
        assert response.json()["status"] == "ok"
        assert response.json()["protocol"] == 1


@pytest.mark.parametrize("header", [None, "Bearer", "Basic key", "Bearer kez", "Bearer schlüssel"])
async def test_only_health_answers_without_the_right_key(tmp_path: Path, header: str | None) -> None:
    async with serving(tmp_path, AGENT, api_key="key") as service:
        headers = {b"Authorization": header.encode()} if header else {}
        for method, path in [("GET", "/v1/models"), ("POST", "/v1/runs"), ("GET", "/nowhere")]:
            response = await service.client.request(method, path, headers=headers)
            assert response.status_code == 401
            assert "CALLBOARD_API_KEY" in response.json()["error"]["message"]
        assert (await service.client.get("/health", headers=headers)).status_code == 200
        assert (await service.client.get("/v1/models", headers={"Authorization": "bearer key"})).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 422, "body: Invalid JSON"),
        (b"{}", 422, "agent: Field required; messages: Field required"),
        (b'{"agent": "scripted", "messages": [{"role": "wizard"}]}', 422, "messages.0.role"),
        (b'{"agent": "nobody", "messages": [{"role": "user", "content": "hi"}]}', 404, "scripted"),
        (b" " * (1024 * 1024 + 1), 413, "CALLBOARD_MAX_REQUEST_MIB"),
    ],
)
async def test_a_request_that_cannot_be_met_says_why(tmp_path: Path, body: bytes, status: int, words: str) -> None:
    async with serving(tmp_path, AGENT, max_request_mib=1) as service:
        response = await service.client.post("/v1/runs", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == status
        assert words in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("GET", "/nowhere", 404, "/nowhere"),
        ("POST", "/v1/embeddings", 404, "no models for embeddings"),
        ("GET", "/v1/runs", 405, "Method Not Allowed"),
        ("GET", "/v1/runs/none/events", 404, "there is no run 'none'"),
        ("POST", "/v1/runs/none/cancel", 404, "there is no run 'none'"),
        ("GET", "/v1/runs/r/events?after=-1", 422, "must be the number of an event"),
        ("GET", "/v1/runs/r/events?after=x", 422, "must be the number of an event"),
    ],
)
async def test_a_route_that_is_used_wrongly_says_so_in_json(
    tmp_path: Path, method: str, path: str, status: int, words: str
) -> None:
    async with serving(tmp_path, AGENT) as service:
        await service.client.post("/v1/runs", json=request(run_id="r"))
        response = await service.client.request(method, path)
        assert response.status_code == status
        assert words in response.json()["error"]["message"]


TOO_MANY: list[tuple[list[dict[str, object]], str]] = [
    ([{"role": "user", "content": [{}] * 100_000}], "more than 100000 JSON values"),
    ([{"role": "assistant", "content": "\n</details>" * 10_001}], "more than 10000 tool calls"),
    ([{"role": "user", "content": "a"}] * 10_001, "messages"),
    ([{"role": "user", "content": "\n" * 2_000_001}], "backslashes"),
]


async def test_a_request_of_too_many_parts_says_so_to_a_client_that_is_still_sending(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        for messages, words in TOO_MANY:
            response = await service.client.post("/v1/runs", json=request(messages=messages))
            assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")
            assert words in response.json()["error"]["message"]


async def test_commas_and_brackets_in_strings_are_not_counted_as_values(tmp_path: Path) -> None:
    text = 'a, "b", [c], {d}, \\ ' * 50_000
    async with serving(tmp_path, AGENT) as service:
        response = await service.client.post("/v1/runs", json=request(messages=[{"role": "user", "content": text}]))
        assert response.status_code == 200


HALVES = r"x \ud83d \\ud83d \ud83d\ude00 \uDE00"


async def test_halves_of_emoji_are_replaced_and_the_rest_is_read_as_it_is(tmp_path: Path) -> None:
    said: list[object] = []

    async def listen(context: RunContext) -> AsyncIterator[Event]:
        said.append(context.messages[-1]["content"])
        yield Message(content="I see.")

    messages = '"messages": [{"role": "user", "content": "%s"}]'
    async with serving(tmp_path, ScriptedAgent(listen, "listener")) as service:
        for path, body in (
            ("/v1/runs", f'{{"agent": "listener", {messages}}}'),
            ("/v1/chat/completions", f'{{"model": "listener", {messages}}}'),
            ("/v1/responses", '{"model": "listener", "input": "%s"}'),
        ):
            headers = {"Content-Type": "application/json"}
            assert (await service.client.post(path, content=body % HALVES, headers=headers)).status_code == 200
    assert said == ["x \ufffd \\ud83d \U0001f600 \ufffd"] * 3


async def test_a_compressed_body_is_refused_in_words(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        body = gzip.compress(json.dumps(request()).encode())
        response = await service.client.post("/v1/runs", content=body, headers=headers)
        assert response.status_code == 415
        assert "without Content-Encoding" in response.json()["error"]["message"]


async def test_request_with_two_lengths_is_refused_and_cannot_smuggle_another(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        url = service.client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n"
        hidden = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
        writer.write(f"{head}0\r\n\r\n{hidden}".encode())
        answers = await reader.read()
        writer.close()
    assert answers.startswith(b"HTTP/1.1 400 ")
    assert answers.count(b"HTTP/1.1 ") == 1


# --------------------------------------------------------------------------------------------------- the list of models


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["demo", "own", "home"]),
        ({"model_base_url": "http://127.0.0.1:1/v1"}, ["demo", "assistant", "naked", "own", "home"]),
    ],
)
async def test_built_in_agents_that_need_a_model_are_listed_once_there_is_one(
    tmp_path: Path, settings: dict[str, Any], expected: list[str]
) -> None:
    built_in = load_all_agents(Settings(**settings), {}).registry
    async with serving(tmp_path, *built_in, Agent("own"), Agent("home"), **settings) as service:
        listed = (await service.client.get("/v1/models")).json()["data"]
        assert [one["id"] for one in listed] == expected


async def test_an_agent_that_is_not_listed_says_how_to_connect_a_model(tmp_path: Path) -> None:
    async with serving(tmp_path, *load_all_agents(Settings(), {}).registry) as service:
        events = await service.events(request(agent="naked"))
        assert "CALLBOARD_MODEL_BASE_URL" in "".join(event.content for event in events if isinstance(event, Message))


async def test_each_agent_has_its_suggestions_and_its_icon(tmp_path: Path) -> None:
    icon = "data:image/png;base64,QUJD"
    cook = Agent("cook", "Cooks.", suggestions=["What is in the fridge?"], icon=icon)
    async with serving(tmp_path, cook, Agent("other")) as service:
        listed = (await service.client.get("/v1/models")).json()["data"]
        assert (listed[0]["suggestions"], listed[0]["icon"]) == (["What is in the fridge?"], icon)
        assert (listed[0]["name"], listed[0]["description"]) == ("cook", "Cooks.")
        assert listed[0]["created"] > 0
        assert listed[1].keys().isdisjoint({"suggestions", "icon"})


# -------------------------------------------------------------------------------------------------- the id of a request


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
    assert of_run == dict.fromkeys(("run_started", "call", "tool_looked", "run_ended"), "the-first")
