"""Requests made to block, fill or break a server: none gets a 500, and none delays or starves another client."""

import asyncio
import json
import logging
import string
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, insert, select
from structlog.testing import capture_logs

from callboard._history import Turn
from callboard.agents import RunContext
from callboard.http.body import BODIES_AT_ONCE, VALUE_BYTES
from callboard.storage.sql.tables import messages, tool_events
from callboard_protocol import Event, InputRequest, Message, ToolCallComplete, ToolCallStart
from tests.garbage import set_aside_what_is_there
from tests.http.hostile import Body, hostile_bodies
from tests.http.target import ROUTES
from tests.serving import ScriptedAgent, Service, database_of, request, serving
from tests.storage.postgres import throw_away_cluster
from tests.storage.turns import StoredSteps

# ------------------------------------------------------------------------------------- any request to any route

WORDS = [
    "",
    "scripted",
    "r",
    "c",
    "t",
    "q",
    "null",
    "\0",
    "\ud800",
    "١٢",
    "-1",
    "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5",
    "LTE=",
]
TEXT = st.text(max_size=40) | st.sampled_from(WORDS)
NUMBER = st.integers() | st.sampled_from([0, -1, 2**63, 2**64, 10**400]) | st.floats()
VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def one_of(*values: str) -> st.SearchStrategy[str]:
    return st.sampled_from(values)


def fields(optional: dict[str, Any], **required: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


FILE = one_of("data:application/pdf;base64,JVBERi0xLjQ=", "data:text/plain,%", "data:;base64,A", "data:", "http://x")
PART = st.one_of(
    fields({}, type=st.just("text"), text=TEXT),
    fields({}, type=st.just("file"), file=fields({}, filename=VALUE, file_data=FILE | VALUE)),
    st.dictionaries(TEXT, VALUE, max_size=3),
)
CALL = fields({}, id=TEXT, type=st.just("function"), function=fields({}, name=TEXT, arguments=TEXT))
MESSAGE = fields(
    {
        "content": TEXT | st.lists(PART, max_size=3) | VALUE,
        "tool_calls": st.lists(CALL, max_size=3) | VALUE,
        **dict.fromkeys(("tool_call_id", "id", "name"), TEXT | VALUE),
    },
    role=one_of("system", "developer", "user", "assistant", "tool"),
)
MESSAGES = st.lists(MESSAGE, min_size=1, max_size=4)
ITEM = st.one_of(
    MESSAGE,
    fields(
        {"output": VALUE}, type=one_of("function_call", "function_call_output", "mcp_call"), call_id=TEXT, name=TEXT
    ),
    VALUE,
)
RUN = dict.fromkeys(("chat_id", "message_id", "user", "task", "options", "run_id"), TEXT | VALUE)
OPENAI = dict.fromkeys(
    ("temperature", "max_tokens", "stop", "tools", "tool_choice", "n", "user", "text", "instructions"), VALUE
)
OPENAI["stream"] = st.booleans()
OPENAI["callboard"] = fields(dict.fromkeys(("chat_id", "message_id", "task", "tool_activity"), TEXT | VALUE))
BODY_OF = {
    "/v1/runs": fields(RUN, agent=st.just("scripted"), messages=MESSAGES),
    "/v1/chat/completions": fields(OPENAI, model=st.just("scripted"), messages=MESSAGES),
    "/v1/responses": fields(OPENAI, model=st.just("scripted"), input=TEXT | st.lists(ITEM, min_size=1, max_size=4)),
    "/v1/runs/{run_id}/input": fields({}, request_id=TEXT, value=VALUE),
}
QUERY = st.dictionaries(
    one_of("user_id", "chat_id", "status", "since", "until", "limit", "cursor", "after", "signature", "expires", "x"),
    TEXT | NUMBER.map(str) | one_of("running", "nan", "inf", "1e999"),
    max_size=5,
)
HEADER_TEXT = st.text(string.ascii_letters + string.digits + " {}%:;,-=/\xe9", max_size=30).map(str.strip)
HEADERS = st.dictionaries(
    one_of(
        "Last-Event-ID", "X-OpenWebUI-User-Id", "X-OpenWebUI-User-Name", "X-Callboard-Tool-Activity", "Authorization"
    ),
    HEADER_TEXT,
    max_size=3,
)
PLACES = [(method, route.path) for route in ROUTES for method in sorted((route.methods or set()) - {"HEAD"})]


async def asking(context: RunContext) -> AsyncIterator[Event]:
    yield ToolCallStart(tool_call_id="t", tool_name="tool")
    yield ToolCallComplete(tool_call_id="t", result="result")
    yield InputRequest(request_id="q", kind="input", title="?", timeout_seconds=0.001)
    yield Message(content="said")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server that runs in a thread of its own."""
    listening = threading.Event()
    over = threading.Event()
    found: list[httpx.URL] = []

    async def serve() -> None:
        async with serving(
            tmp_path_factory.mktemp("server"), ScriptedAgent(asking), input_timeout_seconds=0.01
        ) as service:
            found.append(service.client.base_url)
            listening.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    listening.wait()
    try:
        with httpx.Client(base_url=found[0], timeout=None) as opened:
            body = {"agent": "scripted", "messages": [{"role": "user", "content": "hi"}], "chat_id": "c", "run_id": "r"}
            assert opened.post("/v1/runs", json=body).status_code == 200
            yield opened
    finally:
        over.set()
        thread.join()


def in_path(path: str, value: str) -> str:
    """The path with these parameters, as a client writes them."""
    parts = path.split("/")
    quoted = quote(value.encode("utf-8", "surrogatepass"), safe="") or "x"
    return "/".join(quoted if part.startswith("{") else part for part in parts)


@pytest.mark.parametrize(("method", "path"), PLACES)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_request_is_a_failure_of_the_server(
    client: httpx.Client, caplog: pytest.LogCaptureFixture, method: str, path: str, data: st.DataObject
) -> None:
    caplog.set_level(logging.ERROR)
    query = {name: value.encode("utf-8", "surrogatepass") for name, value in data.draw(QUERY).items()}
    headers = {name.encode(): value.encode("latin-1") for name, value in data.draw(HEADERS).items()}
    parameter = data.draw(TEXT)
    content: bytes | None = None
    if method == "POST":
        body: Any = data.draw(BODY_OF.get(path, VALUE) | VALUE)
        content = json.dumps(body).encode()
        headers[b"Content-Type"] = b"application/json"
    address = f"{in_path(path, parameter)}?{urlencode(query)}"
    with capture_logs() as logged:
        answer = client.request(method, address, headers=headers, content=content)
    # The agent's own model is none here: what an OpenAI client reads as a failure of it has its own words.
    assert answer.status_code < 500, answer.text
    assert "Traceback" not in answer.text
    assert [entry for entry in logged if entry["log_level"] == "error"] == []
    assert caplog.records == []


# ------------------------------------------------------------------- NUL, which PostgreSQL cannot store in a text

NUL = "a\0b"
QUERIES = ("user_id", "chat_id", "tool_name", "cursor", "status")
HI = [{"role": "user", "content": "hi"}]
RESPONSE: dict[str, Any] = {"model": "scripted", "input": "hi"}
IDS: list[tuple[str, dict[str, Any]]] = [
    *[("/v1/runs", request(**{name: NUL})) for name in ("agent", "chat_id", "message_id")],
    ("/v1/runs", request(user={"id": NUL})),
    ("/v1/runs/r/input", {"request_id": NUL, "value": True}),
    ("/v1/chat/completions", {"model": "scripted", "messages": HI, "user": NUL}),
    ("/v1/responses", {**RESPONSE, "user": NUL}),
    ("/v1/responses", {**RESPONSE, "previous_response_id": f"resp_{NUL}"}),
    ("/v1/responses", {**RESPONSE, "input": [{"type": "item_reference", "id": NUL}, *HI]}),
    ("/v1/responses", {**RESPONSE, "input": [{"type": "mcp_call", "id": NUL, "name": "look"}, *HI]}),
]


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
async def test_nul_is_refused_in_paths_queries_and_ids_and_replaced_in_texts(tmp_path: Path, kind: str) -> None:
    with ExitStack() as stack:
        settings = {}
        if kind == "postgresql":
            folder = stack.enter_context(throw_away_cluster())
            settings["database_url"] = f"postgresql+asyncpg://postgres@/postgres?host={folder}"
        async with serving(tmp_path, ScriptedAgent(hello), **settings) as service:
            asked = [(method, route.path) for route in ROUTES for method in sorted(route.methods or ())]
            addresses = [(method, path.replace(part, "%00")) for method, path in asked for part in parameters(path)]
            addresses += [(method, f"{path}?{name}=a%00b") for method, path in asked for name in QUERIES]
            for method, address in addresses:
                if method == "HEAD":
                    continue
                answer = await service.client.request(method, address, json={} if method == "POST" else None)
                assert answer.status_code == 422, (method, address)
                assert "NUL character (%00), which no id has: remove it" in answer.json()["error"]["message"]
            for path, body in IDS:
                answer = await service.client.post(path, json=body)
                assert answer.status_code == (422 if path.startswith("/v1/runs") else 400), (path, body)
                assert "an id has no control characters, such as NUL: leave" in answer.json()["error"]["message"]
            said = [{"role": "user", "content": f"say {NUL}"}]
            await service.events(request(chat_id="c", message_id="m", messages=said))
            kept = (await service.client.get("/v1/chats/c/messages")).json()["messages"]
    assert kept[0]["content"] == "say a\ufffdb"


def parameters(path: str) -> list[str]:
    return [part for part in path.split("/") if part.startswith("{")]


# --------------------------------------------------------------------------- no request holds up another client

MOST_SECONDS = 1.0
"""Of the processor's time that the server's process spends between another's request and its answer: unlike the time on
a clock it does not depend on what else the machine does. It is four times what is promised, because it counts the work
of other threads too, and a busy processor does less in a second. `tests/bench` compares with the promise.
"""
BODIES = hostile_bodies()

CALLS = 30_000
EVENTS = 60_000
LARGE = 4
LARGE_RESULT = "я" * 4_000_000


async def hello(context: RunContext) -> AsyncIterator[Event]:
    yield Message(content="hello")


async def post(service: Service, body: Body) -> int:
    """The status of the answer to this request, which is written piece by piece: a client costs no time of its own."""
    path, content = body
    url = service.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    head = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {len(content)}", "Connection: close")
    try:
        writer.write("\r\n".join((f"POST {path} HTTP/1.1", *head, "", "")).encode())
        for piece in pieces(content):
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass  # Refused before it was sent: what was answered is there to be read.
    status = int((await reader.readline()).split()[1])
    while await reader.read(64 * 1024):
        pass
    writer.close()
    return status


def pieces(content: bytes) -> Iterator[bytes]:
    view = memoryview(content)
    for start in range(0, len(view), 64 * 1024):
        yield bytes(view[start : start + 64 * 1024])


async def longest_hold(service: Service, hostile: "asyncio.Task[Any]") -> float:
    """The most seconds of work between a request of a second client and its answer, until the hostile one is met."""
    longest = 0.0
    while not hostile.done():
        started = time.process_time()
        assert (await service.client.get("/v1/models")).status_code == 200
        longest = max(longest, time.process_time() - started)
    return longest


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BODIES))
async def test_no_body_holds_up_another_client(tmp_path: Path, name: str) -> None:
    body = BODIES[name]()
    async with serving(tmp_path, ScriptedAgent(hello)) as service:
        assert (await service.client.get("/v1/models")).status_code == 200
        set_aside_what_is_there()
        hostile = asyncio.create_task(post(service, body))
        held = await longest_hold(service, hostile)
        status = await hostile
    print(f"{name}: {status} {held * 1000:.0f} ms")
    assert status < 500
    assert held < MOST_SECONDS


async def fill(service: Service) -> None:
    """Write a chat of many calls, some of them with large results, each with some of the steps."""
    await StoredSteps(service.state.store, Turn("huge", "run", None, None, "hello")).begin()
    common: dict[str, object] = {
        "chat_id": "huge",
        "run_id": "run",
        "role": "tool",
        "tool_name": "search",
        "arguments": '{"q": 1}',
    }
    common |= {"round_index": 0, "sequence_index": 0, "started_at": 1.0, "ended_at": 2.0, "created_at": 1.0}
    rows = [
        {**common, "tool_call_id": f"c{number}", "tool_output": LARGE_RESULT if number < LARGE else "found " * 20}
        for number in range(CALLS)
    ]

    def write(connection: Connection) -> None:
        connection.execute(insert(messages), rows)
        ids = connection.scalars(select(messages.c.id).where(messages.c.role == "tool")).all()
        event = {"status": "processing", "message": "reading", "progress": 50.0, "created_at": 1.5}
        steps = [{**event, "tool_message_id": ids[number % CALLS]} for number in range(EVENTS)]
        connection.execute(insert(tool_events), steps)

    await database_of(service).write(write)


async def get(service: Service, path: str) -> bytes:
    """The body of the answer, which is parsed later: a client that parses it at once would cost time of its own."""
    async with service.client.stream("GET", path) as response:
        assert response.status_code == 200
        return b"".join([piece async for piece in response.aiter_raw()])


# -------------------------------------------------- all bodies share one budget of memory, and give their part back

MEBIBYTE = 2**20
LONG = "x" * (MEBIBYTE - 20_000)


class Waiting:
    """An agent whose runs last until the test ends them."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.agent = ScriptedAgent(self._script)

    async def _script(self, context: RunContext) -> AsyncIterator[Event]:
        yield Message(content="hello")
        await self.goes_on.wait()


def large(**fields: Any) -> dict[str, Any]:
    return request(messages=[{"role": "user", "content": LONG}], **fields)


async def start(service: Service, body: dict[str, Any]) -> "asyncio.Task[list[Event]]":
    """Start a run and wait for its first text."""
    started = asyncio.Event()

    async def listen() -> list[Event]:
        async with service.client.stream("POST", "/v1/runs", json=body) as response:
            assert response.status_code == 200
            async for chunk in response.aiter_bytes():
                if b"hello" in chunk:
                    started.set()
        return []

    task = asyncio.create_task(listen())
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not started.is_set():
        await task
    return task


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/runs", large()),
        ("/v1/chat/completions", {"model": "scripted", "messages": [{"role": "user", "content": LONG}]}),
        ("/v1/responses", {"model": "scripted", "input": LONG}),
        ("/v1/runs/other/input", {"request_id": "q", "value": LONG}),
    ],
)
async def test_request_gets_503_while_running_runs_use_the_body_budget(
    tmp_path: Path, path: str, body: dict[str, Any]
) -> None:
    waiting = Waiting()
    async with serving(tmp_path, waiting.agent, max_request_mib=1) as service:
        runs = [await start(service, large(run_id=f"r{number}")) for number in range(BODIES_AT_ONCE)]
        refused = await service.client.post(path, json=body)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "5"
        assert refused.json()["error"]["code"] == "server_busy"
        assert "CALLBOARD_MAX_REQUEST_MIB" in refused.json()["error"]["message"]
        # Others are answered all the same, and a small question has its place.
        assert (await service.client.get("/v1/models")).status_code == 200
        assert (await service.client.post("/v1/runs/other/cancel")).status_code == 404
        waiting.goes_on.set()
        await asyncio.gather(*runs)
        again = await service.client.post(path, json=body)
        assert again.status_code in (200, 404)
        assert "server_busy" not in again.text


@pytest.mark.parametrize(
    "body",
    [
        {"agent": "nobody", "messages": [{"role": "user", "content": LONG}]},
        {"agent": "scripted", "messages": [{"role": "nobody", "content": LONG}]},
        {"agent": "scripted", "messages": [[[]]] * 50_000},
    ],
)
async def test_refused_request_releases_its_memory(tmp_path: Path, body: dict[str, Any]) -> None:
    waiting = Waiting()
    waiting.goes_on.set()
    async with serving(tmp_path, waiting.agent, max_request_mib=1) as service:
        for _ in range(BODIES_AT_ONCE + 2):
            assert (await service.client.post("/v1/runs", json=body)).status_code in (404, 413, 422, 503)
        await service.events(large())


async def test_body_with_many_values_counts_their_parsed_size(tmp_path: Path) -> None:
    waiting = Waiting()
    async with serving(tmp_path, waiting.agent, max_request_mib=1) as service:
        many = request(messages=[{"role": "user", "content": [{}] * 40_000}])
        assert len(json.dumps(many)) < 40_000 * VALUE_BYTES / 50
        run = await start(service, many)
        refused = await service.client.post("/v1/runs", json=many)
        assert refused.status_code == 503
        waiting.goes_on.set()
        await run


async def test_client_that_disconnects_during_its_body_releases_its_memory(tmp_path: Path) -> None:
    waiting = Waiting()
    waiting.goes_on.set()
    async with serving(tmp_path, waiting.agent, max_request_mib=1) as service:
        url = service.client.base_url
        for _ in range(2 * BODIES_AT_ONCE + 2):
            _, writer = await asyncio.open_connection(url.host, url.port)
            head = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {MEBIBYTE}")
            writer.write("\r\n".join(("POST /v1/runs HTTP/1.1", *head, "", "")).encode())
            writer.write(b'"' + b"x" * (MEBIBYTE // 2))
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        await service.events(large())
