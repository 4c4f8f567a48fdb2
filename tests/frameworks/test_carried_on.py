"""Another server continues a framework's run: no tool runs twice, and the model gets every result."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from callboard_protocol import (
    Done,
    Error,
    Event,
    InputRequest,
    Message,
    Rewind,
    ToolCallComplete,
    ToolCallError,
    ToolCallStart,
)
from tests.fakes.openai_server import Body, OpenAIServer, call, chunks, finish, text
from tests.runs.killing import Killing
from tests.runs.promises import check

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

AGENTS = str(Path(__file__).with_name("careful_agents.py"))
FRAMEWORKS = pytest.mark.parametrize("framework", ["Agno", "pydantic-ai", "LangGraph", "OpenAI Agents"])

SOLD = chunks(text("I sell it. "), call("sell", '{"seat": 7}', call_id="call_1"), finish("tool_calls"))
# A small model calls its calls the same each time.
SOLD_ANOTHER = chunks(call("sell", '{"seat": 8}', call_id="call_1"), finish("tool_calls"))
ANSWER = chunks(text("That is all."), finish("stop"))


def killing(folder: Path, model: OpenAIServer, framework: str, **settings: str) -> Killing:
    return Killing(folder, model, AGENTS, {"TEST_FRAMEWORK": framework, **settings})


def told(body: Body) -> list[Any]:
    """The messages of a model request: roles, texts, calls and the ids of answered calls."""
    return [
        (
            message["role"],
            message.get("content") or "",
            [(one["id"], one["function"]) for one in message.get("tool_calls") or ()],
            message.get("tool_call_id"),
        )
        for message in body["messages"]
    ]


def results(body: Body) -> list[str]:
    """The results in a model request."""
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


def stored(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The messages of a chat: the round, the role, and the text with the calls, or the result."""
    return [
        (
            message["round_index"],
            message["role"],
            message["content"] or message["tool_output"] or "",
            [one["function"]["arguments"] for one in message["tool_calls"] or ()],
        )
        for message in messages
    ]


def has_text(word: str, event: Event) -> bool:
    return isinstance(event, Message) and word in event.content


@FRAMEWORKS
async def test_answer_after_kill_in_text_equals_uninterrupted_answer(framework: str, tmp_path: Path) -> None:
    half = chunks(text("And anoth"), ending="hang")
    async with OpenAIServer([SOLD, half, SOLD_ANOTHER, ANSWER]) as model:
        play = killing(tmp_path, model, framework)
        await play.run_until(lambda event: has_text("And", event))
        messages = await play.go_on()
    check(play.seen)
    assert play.ran == ["sell 7", "sell 8"]
    assert told(model.requests[2]) == told(model.requests[1])
    assert results(model.requests[3]) == ["Seat 7 is sold.", "Seat 8 is sold."]
    assert stored(messages) == [
        (None, "user", "hi", []),
        (0, "assistant", "I sell it. ", ['{"seat": 7}']),
        (0, "tool", "Seat 7 is sold.", []),
        (1, "assistant", "", ['{"seat": 8}']),
        (1, "tool", "Seat 8 is sold.", []),
        (None, "assistant", "That is all.", []),
    ]
    *_, taken_back, _, _ = (one for one in play.events if isinstance(one, Rewind | ToolCallStart | ToolCallComplete))
    assert isinstance(taken_back, Rewind)
    assert [event.content for event in play.events if isinstance(event, Message)][-1] == "That is all."
    assert play.events[-1] == Done()


@FRAMEWORKS
async def test_limit_counts_calls_from_before_kill(framework: str, tmp_path: Path) -> None:
    async with OpenAIServer([SOLD, chunks(ending="hang"), SOLD_ANOTHER, ANSWER]) as model:
        play = killing(tmp_path, model, framework, MAX_TOOL_CALLS_PER_TURN="1")
        await play.run_until(lambda event: isinstance(event, ToolCallComplete), waits_for_model=True)
        await play.go_on()
    check(play.seen)
    assert play.ran == ["sell 7"]
    assert results(model.requests[2]) == ["Seat 7 is sold."]
    [refused] = [event for event in play.events if isinstance(event, ToolCallError)]
    assert refused.code == "limit"
    assert not any(isinstance(event, Rewind) for event in play.events)
    assert play.events[-1] == Done(finish_reason="max_turns")


@FRAMEWORKS
async def test_open_and_ended_calls_do_not_run_again_after_kill(framework: str, tmp_path: Path) -> None:
    both = chunks(
        call("wait_for_ever", '{"seat": 6}', call_id="call_0"),
        call("sell", '{"seat": 7}', index=1, call_id="call_1"),
        finish("tool_calls"),
    )
    async with OpenAIServer([both, ANSWER]) as model:
        play = killing(tmp_path, model, framework)
        await play.run_until(lambda event: isinstance(event, ToolCallComplete))
        messages = await play.go_on()
    check(play.seen)
    assert sorted(play.ran) == ["sell 7", "wait 6"]
    [left] = [event for event in play.events if isinstance(event, ToolCallError)]
    assert (left.tool_name, left.code) == ("wait_for_ever", "interrupted")
    unknown, sold = results(model.requests[1])
    assert "whether it took effect is not known" in unknown
    assert sold == "Seat 7 is sold."
    assert [message["error_code"] for message in messages if message["role"] == "tool"] == ["interrupted", None]
    assert play.events[-1] == Done()


@FRAMEWORKS
async def test_call_waiting_for_approval_at_kill_has_not_run_and_may_be_repeated(
    framework: str, tmp_path: Path
) -> None:
    paid_back = chunks(call("refund", '{"seat": 7}', call_id="call_1"), finish("tool_calls"))
    async with OpenAIServer([paid_back, paid_back, ANSWER]) as model:
        play = killing(tmp_path, model, framework)
        await play.run_until(lambda event: isinstance(event, InputRequest))
        await play.go_on(agrees=True)
    check(play.seen)
    assert play.ran == ["refund 7"]
    [not_run] = results(model.requests[1])
    assert not_run == "Error: Not run: the answer was interrupted while the user was asked."
    first, second = [event.tool_call_id for event in play.events if isinstance(event, ToolCallStart)]
    assert [event.tool_call_id for event in play.events if isinstance(event, InputRequest)] == [first, second]
    assert [event.tool_call_id for event in play.events if isinstance(event, ToolCallError)] == [first]
    assert [event.tool_call_id for event in play.events if isinstance(event, ToolCallComplete)] == [second]
    assert play.events[-1] == Done()


async def test_agent_with_on_owner_loss_end_keeps_text_and_reports_reason(tmp_path: Path) -> None:
    async with OpenAIServer([SOLD, chunks(text("And anoth"), ending="hang"), ANSWER]) as model:
        play = killing(tmp_path, model, "pydantic-ai", TEST_ON_OWNER_LOSS="end")
        await play.run_until(lambda event: has_text("And", event))
        await play.go_on()
    check(play.seen)
    assert play.ran == ["sell 7"]
    assert len(model.requests) == 2
    last = play.events[-1]
    assert isinstance(last, Error)
    assert last.code == "interrupted"
    assert "'careful' cannot continue the run of another server: send the message again" in last.message
    assert not any(isinstance(event, Rewind) for event in play.events)
