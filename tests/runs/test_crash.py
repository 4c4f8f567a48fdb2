"""A server that was killed at any event of a run opens its database again, with complete calls only."""

import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from callboard_protocol import Decoder, ToolCallComplete, decode
from tests.processes import serving
from tests.runs.stepping_agent import RESULT

EVENTS = 12
"""The number of events of a run of `stepping_agent`, with its first and last event."""

AGENT = str(Path(__file__).parent / "stepping_agent.py")


def run_until(url: str, chat_id: str, events: int) -> list[str]:
    """Run the agent and disconnect after that many events; return the ids of the calls that have ended by then."""
    body = {"agent": "stepping", "chat_id": chat_id, "messages": [{"role": "user", "content": "go"}]}
    decoder = Decoder()
    seen = 0
    ended = []
    with httpx.stream("POST", f"{url}/v1/runs", json=body, timeout=None) as response:
        assert response.status_code == 200
        if not events:
            return []
        for chunk in response.iter_bytes():
            for frame in decoder.feed(chunk):
                event = decode(frame)
                seen += 1
                if isinstance(event, ToolCallComplete):
                    ended.append(event.tool_call_id)
                if seen == events:
                    return ended
    return ended


def timeline(url: str, chat_id: str) -> list[dict[str, Any]]:
    response = httpx.get(f"{url}/v1/chats/{chat_id}/timeline")
    if response.status_code == 404:  # killed before the chat was written
        return []
    calls: list[dict[str, Any]] = response.json()["tool_calls"]
    return calls


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [EVENTS, pytest.param(50, marks=pytest.mark.slow)])
def test_server_killed_at_every_event_loses_no_finished_call_and_leaves_none_open(tmp_path: Path, kills: int) -> None:
    points = random.Random(7)
    at = [*range(EVENTS), *(points.randrange(EVENTS) for _ in range(kills - EVENTS))]
    interrupted = 0
    told: dict[str, list[str]] = {}
    for kill, events in enumerate([*at, EVENTS]):
        with serving(tmp_path, AGENTS=AGENT) as (url, process):
            for chat_id, ended in told.items():
                calls = {call["tool_call_id"]: call for call in timeline(url, chat_id)}
                assert set(ended) <= set(calls)
                for call in calls.values():
                    assert call["ended_at"] is not None
                    assert call["result"] == RESULT or call["error_code"] == "interrupted"
                assert all(calls[call_id]["result"] == RESULT for call_id in ended)
                interrupted += sum(call["error_code"] == "interrupted" for call in calls.values())
                # The chat goes on with the next message.
                assert len(run_until(url, chat_id, EVENTS)) == 3
            chat_id = f"chat{kill}"
            told = {chat_id: run_until(url, chat_id, events)}
            process.kill()
            process.wait()
    assert interrupted > kills / 4
