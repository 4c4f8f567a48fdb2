"""No request to any route gets a 500 or a traceback.

Requests are made by hypothesis: each route's path, query, headers and body, of the values that its fields take, and of
any other. The server is a real one, which runs in a thread of its own for as long as the examples last.
"""

import asyncio
import json
import logging
import string
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from callboard.agents import RunContext
from callboard_protocol import Event, InputRequest, Message, ToolCallComplete, ToolCallStart
from tests.http.target import ROUTES
from tests.serving import ScriptedAgent, serving

TEXT = st.text(max_size=40) | st.sampled_from(
    [
        "",
        "scripted",
        "r",
        "c",
        "t",
        "q",
        "user",
        "null",
        "\0",
        "\ud800",
        "١٢",
        "-1",
        "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5",
        "LTE=",
    ]
)
NUMBER = st.integers() | st.sampled_from([0, -1, 2**63, 2**64, 10**400]) | st.floats()
LEAF = st.none() | st.booleans() | NUMBER | TEXT
VALUE = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)

FILE = st.sampled_from(
    [
        "data:application/pdf;base64,JVBERi0xLjQ=",
        "data:text/plain,%",
        "data:;base64,A",
        "data:text/plain;base64,/w==",
        "data:",
        "http://x",
    ]
)
PART = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}),
    st.fixed_dictionaries(
        {
            "type": st.just("file"),
            "file": st.fixed_dictionaries(
                {
                    "filename": VALUE,
                    "file_data": FILE | VALUE,
                }
            ),
        }
    ),
    st.fixed_dictionaries({"type": TEXT, "text": VALUE}),
    st.dictionaries(TEXT, VALUE, max_size=3),
)
CALL = st.fixed_dictionaries(
    {"id": TEXT, "type": st.just("function"), "function": st.fixed_dictionaries({"name": TEXT, "arguments": TEXT})}
)
ROLE = st.sampled_from(["system", "developer", "user", "assistant", "tool"])
MESSAGE = st.fixed_dictionaries(
    {"role": ROLE},
    optional={
        "content": TEXT | st.lists(PART, max_size=3) | VALUE,
        "tool_calls": st.lists(CALL, max_size=3) | VALUE,
        "tool_call_id": TEXT | VALUE,
        "id": VALUE,
        "name": VALUE,
    },
)
USER = st.fixed_dictionaries({"id": TEXT}, optional={"name": VALUE, "email": TEXT, "role": TEXT}) | VALUE
MESSAGES = st.lists(MESSAGE, min_size=1, max_size=4)
ASKER = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        (
            "chat_id",
            "message_id",
            "task",
            "tool_activity",
        ),
        TEXT | VALUE,
    ),
)
OPTIONAL = dict.fromkeys(
    (
        "temperature",
        "top_p",
        "max_tokens",
        "stop",
        "tools",
        "tool_choice",
        "n",
        "user",
        "stream_options",
    ),
    VALUE,
)
ITEM = st.one_of(
    MESSAGE,
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["function_call", "function_call_output", "mcp_call"]),
            "call_id": TEXT,
            "name": TEXT,
            "output": VALUE,
        }
    ),
    VALUE,
)
BODIES = {
    "/v1/runs": st.fixed_dictionaries(
        {"agent": st.just("scripted"), "messages": MESSAGES},
        optional={
            "chat_id": TEXT,
            "message_id": TEXT | VALUE,
            "user": USER,
            "task": TEXT,
            "options": VALUE,
            "run_id": TEXT,
        },
    ),
    "/v1/chat/completions": st.fixed_dictionaries(
        {"model": st.just("scripted"), "messages": MESSAGES},
        optional={"stream": st.booleans(), "callboard": ASKER, **OPTIONAL},
    ),
    "/v1/responses": st.fixed_dictionaries(
        {"model": st.just("scripted"), "input": TEXT | st.lists(ITEM, min_size=1, max_size=4)},
        optional={
            "stream": st.booleans(),
            "callboard": ASKER,
            "instructions": TEXT,
            "text": VALUE,
            "metadata": VALUE,
            **OPTIONAL,
        },
    ),
    "/v1/runs/{run_id}/input": st.fixed_dictionaries({"request_id": TEXT, "value": VALUE}),
}
QUERY = st.dictionaries(
    st.sampled_from(
        [
            "user_id",
            "chat_id",
            "tool_name",
            "status",
            "since",
            "until",
            "limit",
            "cursor",
            "after",
            "signature",
            "expires",
            "x",
        ]
    ),
    TEXT | NUMBER.map(str) | st.sampled_from(["running", "complete", "nan", "inf", "1e999"]),
    max_size=5,
)
HEADER_TEXT = st.text(string.ascii_letters + string.digits + " {}%:;,-=/\xe9", max_size=30).map(str.strip)
HEADERS = st.dictionaries(
    st.sampled_from(
        ["Last-Event-ID", "X-OpenWebUI-Chat-Id", "X-OpenWebUI-User-Id", "X-OpenWebUI-User-Name", "X-OpenWebUI-Task",
         "X-Callboard-Tool-Activity", "Authorization", "Accept", "Range"]
    ),
    HEADER_TEXT,
    max_size=3,
)  # fmt: skip
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
        body: Any = data.draw(BODIES.get(path, VALUE) | VALUE)
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


@pytest.mark.parametrize(
    "cursor",
    [
        "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5",
        "LTE=",
        "MA==",
        "4pyT",
        "x",
    ],
)
def test_invalid_cursor_is_refused_with_a_reason(client: httpx.Client, cursor: str) -> None:
    answer = client.get("/v1/tool-calls", params={"cursor": cursor})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_request")
    assert "next_cursor" in answer.json()["error"]["message"]
