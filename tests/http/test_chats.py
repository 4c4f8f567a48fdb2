"""Stored chats over HTTP: they equal the events that were streamed, and only their owner can read them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from callboard.agents import RunContext
from callboard_protocol import (
    Event,
    Message,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
    ToolStatus,
    ToolStatusData,
)
from tests.serving import ScriptedAgent, Service, request, serving

LARGE = "x" * 200_000


async def two_rounds(context: RunContext) -> AsyncIterator[Event]:
    yield Message(content="Let me look.")
    yield ToolCallStart(tool_call_id="a", tool_name="search", tool_args='{ "q": "x" }')
    yield ToolCallStart(tool_call_id="b", tool_name="draw", tool_args="{}")
    yield ToolStatus(tool_call_id="b", data=ToolStatusData(status="pending"))
    yield ToolStatus(tool_call_id="b", data=ToolStatusData(status="processing", message="half", progress=50))
    yield ToolCallError(tool_call_id="b", error="no ink", code="timeout")
    yield ToolCallComplete(tool_call_id="a", result=LARGE)
    yield ToolCallStart(tool_call_id="c", tool_name="search", tool_args="")
    yield ToolCallComplete(tool_call_id="c", result="")
    yield Message(content="That is all.")


AGENT = ScriptedAgent(two_rounds)
MINE = {"user_id": "ann"}


async def chat(service: Service, chat_id: str = "chat", user: str = "ann") -> list[Event]:
    return await service.events(request(chat_id=chat_id, message_id="m1", user={"id": user}))


async def get(service: Service, path: str, **query: Any) -> Any:
    response = await service.client.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


async def test_the_timeline_after_a_restart_is_the_one_seen_live(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        live = await chat(service)
        before = await get(service, "/v1/chats/chat/timeline", **MINE)
    async with serving(tmp_path, AGENT) as service:
        timeline = await get(service, "/v1/chats/chat/timeline", **MINE)
    assert timeline == before
    calls = timeline["tool_calls"]
    starts = [event for event in live if isinstance(event, ToolCallStart)]
    assert [(c["tool_call_id"], c["tool_name"], c["round_index"], c["sequence_index"]) for c in calls] == [
        (e.tool_call_id, e.tool_name, e.round_index, e.sequence_index) for e in starts
    ]
    ends = {event.tool_call_id: event for event in live if isinstance(event, ToolCallComplete | ToolCallError)}
    assert [c["duration_ms"] for c in calls] == [ends[c["tool_call_id"]].duration_ms for c in calls]
    assert [(c["status"], c["error_code"]) for c in calls] == [
        ("complete", None),
        ("timed_out", "timeout"),
        ("complete", None),
    ]
    seen = [event.data.model_dump() for event in live if isinstance(event, ToolStatus)]
    assert [{k: e[k] for k in ("status", "message", "progress")} for e in calls[1]["events"]] == seen
    assert calls[1]["started_at"] <= calls[1]["events"][0]["at"] <= calls[1]["events"][1]["at"] <= calls[1]["ended_at"]


async def test_another_users_chat_is_404_everywhere(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        await chat(service)
        for query in ({}, {"user_id": "bob"}):
            for method, path in [
                ("GET", "/v1/chats/chat/messages"),
                ("GET", "/v1/chats/chat/timeline"),
                ("GET", "/v1/tool-calls/a?chat_id=chat"),
                ("DELETE", "/v1/chats/chat"),
            ]:
                separator = "&" if "?" in path else "?"
                url = path + (f"{separator}user_id=bob" if query else "")
                response = await service.client.request(method, url)
                assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_chat")
            assert (await get(service, "/v1/tool-calls", **query))["tool_calls"] == []
        assert len((await get(service, "/v1/tool-calls", **MINE))["tool_calls"]) == 3


async def test_a_deleted_chat_is_forgotten(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        await chat(service)
        await chat(service, "other")
        assert (await service.client.delete("/v1/chats/chat", params=MINE)).status_code == 204
        assert (await service.client.get("/v1/chats/chat/messages", params=MINE)).status_code == 404
        assert (await service.client.delete("/v1/chats/chat", params=MINE)).status_code == 404
        left = (await get(service, "/v1/tool-calls", **MINE))["tool_calls"]
        assert {call["chat_id"] for call in left} == {"other"}


async def test_delete_chats_requires_a_user(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        await chat(service)
        for query in ({}, {"user_id": ""}, {**MINE, "begun_before": "soon"}, {**MINE, "chat_id": "chat"}):
            assert (await service.client.delete("/v1/chats", params=query)).status_code == 422
        assert (await get(service, "/v1/tool-calls", **MINE))["tool_calls"]


async def test_calls_are_found_by_each_filter_and_page_by_page(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        await chat(service, "one")
        await chat(service, "two")
        [first, *_] = (await get(service, "/v1/chats/two/timeline", **MINE))["tool_calls"]
        at = first["started_at"]
        whole = (await get(service, "/v1/tool-calls", **MINE))["tool_calls"]
        for query, places in (
            ({"chat_id": "one"}, [3, 4, 5]),
            ({"tool_name": "draw"}, [1, 4]),
            ({"status": "complete"}, [0, 2, 3, 5]),
            ({"since": at}, [0, 1, 2]),
            ({"until": at}, [3, 4, 5]),
        ):
            assert (await get(service, "/v1/tool-calls", **MINE, **query))["tool_calls"] == [whole[n] for n in places]
        page = await get(service, "/v1/tool-calls", limit=4, **MINE)
        rest = await get(service, "/v1/tool-calls", limit=4, cursor=page["next_cursor"], **MINE)
    assert (len(page["tool_calls"]), page["tool_calls"] + rest["tool_calls"]) == (4, whole)
    assert rest["next_cursor"] is None


WRONG_QUERIES = [
    ("/v1/tool-calls?status=sleeping", 422, "status"),
    ("/v1/tool-calls?limit=1000", 422, "limit"),
    ("/v1/tool-calls?cursor=x", 422, "next_cursor"),
    ("/v1/tool-calls?since=yesterday", 422, "since"),
    ("/v1/tool-calls?tool=x", 422, "tool"),
    ("/v1/tool-calls/a?user_id=ann", 422, "chat_id is missing"),
    ("/v1/tool-calls/none?chat_id=chat&user_id=ann", 404, "no tool call 'none'"),
]


async def test_a_query_that_cannot_be_met_says_why(tmp_path: Path) -> None:
    async with serving(tmp_path, AGENT) as service:
        await chat(service)
        for path, status, words in WRONG_QUERIES:
            response = await service.client.get(path)
            assert response.status_code == status, path
            assert words in response.json()["error"]["message"]


async def test_a_bounded_history_reaches_the_agent_bounded(tmp_path: Path) -> None:
    seen: list[Any] = []

    async def script(context: RunContext) -> AsyncIterator[Event]:
        seen.extend(context.messages)
        yield Message(content="hello")

    old = [{"role": "user", "content": "old " * 500}, {"role": "assistant", "content": "answer"}]
    async with serving(tmp_path, ScriptedAgent(script), history_tokens=100) as service:
        await service.events(request(messages=[*old, {"role": "user", "content": "new"}]))
    assert seen == [{"role": "user", "content": "new"}]
